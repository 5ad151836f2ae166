"""The waiting line: who is tried first, and who is not tried in this step.

vLLM admits from the front of its queues and stops at the first request that does not fit. So before
a step the waiting requests are ranked, it is found out which of them will fit (`pressure` makes
room for them), and these alone are left in vLLM's queues, in their order; the others are put back
behind them when the step is made. So nobody is blocked by a large request before him, which is
back-filling, and an admission policy can keep requests out.

A request that was overtaken for too long is not overtaken again: nobody behind it is admitted
before it is.
"""

from collections.abc import Callable, Iterator
from typing import Any

from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.request_queue import SchedulingPolicy
from vllm.v1.request import Request, RequestStatus

from caesura.scheduler.admission import DEFAULT_ADMISSION
from caesura.scheduler.admission.view import Admission, Batched, Gate
from caesura.scheduler.rank.view import Queued, QueueView, Ranking
from caesura.scheduler.vllm.life import Life
from caesura.scheduler.vllm.lives import Lives

READY = (RequestStatus.WAITING, RequestStatus.PREEMPTED)

LOOKAHEAD = 64
"""So many requests that do not fit are passed over in a step, before the rest is left alone."""

FORGET = 16
"""After so many steps it is asked anew what a request needs that did not fit."""

PATIENCE = 512
"""In so many steps at most a request is overtaken by one behind it."""


class Line:
    """Ranks the waiting requests of one scheduler and says whom vLLM may try."""

    def __init__(
        self, scheduler: Any, ranking: Ranking, admission: Admission, lives: Lives, backfill: bool
    ) -> None:
        """`backfill`: whoever fits may go before somebody who does not."""
        self._scheduler = scheduler
        self.ranking = ranking
        self.admission = admission
        self.lives = lives
        self.backfill = backfill
        self._step = 0
        self._left: list[tuple[Any, list[Request], dict[int, int]]] = []

    # -- before the step -------------------------------------------------------------------------

    def ready(self) -> list[Request]:
        """Return the waiting requests that could be admitted, the best first."""
        scheduler = self._scheduler
        queues = [scheduler.kv_holding_waiting]
        if scheduler.pause_state != PauseState.PAUSED_NEW:
            queues.append(scheduler.waiting)
        found = [one for queue in queues for one in queue if one.status in READY]
        self._step += 1
        if len(found) < 2:
            return found
        if self._in_vllms_order:
            return sorted(found)
        view = None
        for request in found:
            life = self.lives[request.request_id]
            mark = self._kv_of(request)
            if not self._stands(life, mark):
                view = view or self._view()
                life.score = self._rank(request, life, view)
                life.scored_for, life.scored_in = mark, self._step
        found.sort(key=self._place)
        return found

    @property
    def _in_vllms_order(self) -> bool:
        """Whether vLLM was told to go by priorities: then nothing else ranks."""
        return bool(self._scheduler.policy == SchedulingPolicy.PRIORITY)

    def _place(self, request: Request) -> Any:
        life = self.lives[request.request_id]
        return (life.score or (), life.arrival)

    def _stands(self, life: Life, mark: Any) -> bool:
        """Whether a score may be used again."""
        if life.score is None or life.scored_for != mark:
            return False
        refresh = self.ranking.refresh_steps
        return not refresh or self._step - life.scored_in < refresh

    def _kv_of(self, request: Request) -> Any:
        holding = self._scheduler._keeper.holdings.get(request.request_id)
        return (request.num_computed_tokens, holding.resident if holding is not None else 0)

    def _rank(self, request: Request, life: Life, view: QueueView) -> tuple[float, ...]:
        resident, hosted = self._kv_tokens(request)
        queued = Queued(
            key=request.request_id,
            arrival=life.arrival,
            queued_at=life.queued_at,
            context_tokens=request.num_tokens,
            resident_tokens=resident,
            hosted_tokens=hosted,
            decoded_tokens=request.num_output_tokens,
            calls=life.calls,
            forecast=self.lives.predictor.forecast(self.lives.about(request)),
            starved=life.starved,
        )
        return self.ranking.score(queued, view)

    def _kv_tokens(self, request: Request) -> tuple[int, int]:
        """Return the tokens of a request whose KV is on the device, and on the host only."""
        holding = self._scheduler._keeper.holdings.get(request.request_id)
        if request.num_computed_tokens or holding is None:
            return request.num_computed_tokens, 0
        self._scheduler._keeper.sight.freshen(holding)
        block_size = self._scheduler.block_size
        resident = len(holding.detached or ())
        hosted = max(0, len(holding.keys) - resident - holding.missing)
        return resident * block_size, hosted * block_size

    def _view(self) -> QueueView:
        scheduler = self._scheduler
        keeper, running = scheduler._keeper, scheduler.running
        batch = sum(request.num_computed_tokens for request in running)
        cost = keeper.costs.model
        pool = scheduler.kv_cache_manager.block_pool
        return QueueView(
            now=scheduler._clock(),
            capacity_tokens=(pool.num_gpu_blocks - 1) * scheduler.block_size,
            step_seconds=cost.step_seconds(max(1, len(running)), batch),
            running=len(running),
            batch_tokens=batch,
            swap_pays=keeper.sight.swap_pays,
            cost=cost,
        )

    def gate(self) -> Gate | None:
        """Begin the admissions of a step; None lets everybody in."""
        if self.admission.name == DEFAULT_ADMISSION:
            return None
        scheduler = self._scheduler
        pool = scheduler.kv_cache_manager.block_pool
        capacity = (pool.num_gpu_blocks - 1) * scheduler.block_size
        return self.admission.begin([self.batched(one) for one in scheduler.running], capacity)

    def batched(self, request: Request) -> Batched:
        """Show a request as a member of the batch."""
        life = self.lives[request.request_id]
        return Batched(
            key=request.request_id,
            kind=life.kind,
            held_tokens=request.num_tokens,
            generated_tokens=request.num_output_tokens,
            most_new_tokens=request.max_tokens,
        )

    # -- misfits ---------------------------------------------------------------------------------

    def misfits(self) -> Callable[[Request], bool]:
        """Return what to ask about each request that does not fit: whether to look further."""
        passed = 0

        def look_further(request: Request) -> bool:
            nonlocal passed
            passed += 1
            overtaken = self.lives[request.request_id].overtaken
            return self.backfill and passed <= LOOKAHEAD and overtaken < PATIENCE

        return look_further

    def misfitted(self, request: Request, needed: int, computed: int) -> None:
        """Remember what a request lacked blocks for: it is not found out anew at every step."""
        life = self.lives[request.request_id]
        life.misfit, life.misfit_in = (needed, computed), self._step

    def misfit(self, request: Request, free: int) -> tuple[int, int] | None:
        """Return what a request was found to need lately, if that would still not fit."""
        life = self.lives[request.request_id]
        if life.misfit is None or self._step - life.misfit_in >= FORGET:
            return None
        return life.misfit if life.misfit[0] > free else None

    def known_tokens(self, request: Request) -> int:
        """Return a request's tokens that are known to need no computation."""
        return sum(self._kv_tokens(request))

    # -- around the step -------------------------------------------------------------------------

    def leave(self, ready: list[Request], chosen: list[Request], refused: set[str]) -> None:
        """Take out of vLLM's queues, until `put_back`, whom it must not try before the `chosen`.

        The others stay behind them: vLLM tries them too, and stops at the first that does not fit,
        as ever. So nothing depends on what was found out about them. `refused` are not to be tried
        at all.
        """
        places = {request.request_id: place for place, request in enumerate(ready)}
        among = {request.request_id for request in chosen}
        last = max((places[one] for one in among), default=-1)
        scheduler = self._scheduler
        # vLLM tries all who hold KV before all others, and stops at a misfit among them.
        before_all, others = scheduler.kv_holding_waiting, scheduler.waiting
        ahead = min((places.get(one.request_id, len(ready)) for one in others), default=len(ready))

        def stays(request: Request, queue: Any) -> bool:
            request_id = request.request_id
            if request_id in among or request_id not in places:
                return not _waits_for_a_tool(request)
            if request_id in refused or places[request_id] < last:
                return False
            return queue is others or places[request_id] < ahead

        for queue in (before_all, others):
            left = [request for request in queue if not stays(request, queue)]
            self._left.append((queue, left, {id(one): at for at, one in enumerate(queue)}))
            self._reorder(queue, set(left), places)
        self._count(ready, among, last)

    def leave_paused(self) -> None:
        """Take out those that wait for a tool: vLLM would look at each of them in every step."""
        scheduler = self._scheduler
        if self._in_vllms_order:
            return
        for queue in (scheduler.kv_holding_waiting, scheduler.waiting):
            left = [request for request in queue if _waits_for_a_tool(request)]
            if not left:
                continue
            stay = (
                [one for one in queue if not _waits_for_a_tool(one)]
                if len(left) < len(queue)
                else []
            )
            places = {id(one): at for at, one in enumerate(queue)} if stay else {}
            self._left.append((queue, left, places))
            queue.clear()
            queue.extend(stay)

    def _reorder(self, queue: Any, left: set[Request], places: dict[str, int]) -> None:
        """Have vLLM try those who are ready in their order; who is blocked keeps his place."""
        if self._in_vllms_order:
            queue.remove_requests(left)
            return
        stay = [request for request in queue if request not in left]
        ranked = iter(
            sorted(
                (one for one in stay if one.request_id in places),
                key=lambda one: places[one.request_id],
            )
        )
        queue.clear()
        queue.extend(next(ranked) if one.request_id in places else one for one in stay)

    def _count(self, ready: list[Request], among: set[str], last: int) -> None:
        """Count for those who are left that others were served."""
        threshold = self.ranking.starvation_steps
        for place, request in enumerate(ready):
            if request.request_id in among:
                continue
            life = self.lives[request.request_id]
            life.overtaken += place < last
            # A session that was never served has not been put off by its rank alone.
            life.passes += life.started
            if threshold and life.passes >= threshold and not life.starved:
                life.starved, life.score = True, None

    def put_back(self) -> None:
        """Put those who were left out where they were, behind whom the step has preempted."""
        for queue, left, places in self._left:
            if not left or self._in_vllms_order:
                for request in left:
                    queue.add_request(request)
                continue
            everybody = [*queue, *left]
            if len(everybody) > len(left):
                everybody.sort(key=lambda one: places.get(id(one), -1))
            queue.clear()
            queue.extend(everybody)
        self._left.clear()


def _waits_for_a_tool(request: Request) -> bool:
    return request.status == RequestStatus.WAITING_FOR_STREAMING_REQ


def waiting(scheduler: Any) -> Iterator[Request]:
    """Return everybody in vLLM's queues, in the order in which it will try them."""
    for queue in (scheduler.kv_holding_waiting, scheduler.waiting):
        yield from tuple(queue)
