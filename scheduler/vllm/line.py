"""The waiting line: the order in which requests are tried, and what each has lacked.

The ranking gives scores, which are kept as long as they hold; admission may refuse. With
back-filling a request that fits goes before a larger one that does not. Neither the ranking nor
back-filling may starve a request: one that was overtaken in `MAX_OVERTAKEN_STEPS` steps is overdue.
It goes to the front, nothing is admitted past it, and what is freed is kept for it.
"""

from collections.abc import Callable
from typing import Any

from vllm.v1.request import Request

from caesura.intercept.kv.costs import CostTracker
from caesura.scheduler.admission import DEFAULT_ADMISSION
from caesura.scheduler.admission.view import Batched, Gate
from caesura.scheduler.rank.view import Queued, QueueView, Ranking
from caesura.scheduler.vllm.engine_state import EngineState
from caesura.scheduler.vllm.engine_state.requests import computed_tokens, is_ready
from caesura.scheduler.vllm.keeper import Keeper
from caesura.scheduler.vllm.life import Life
from caesura.scheduler.vllm.lives import Lives

Clock = Callable[[], float]
"""Returns seconds of a clock that never goes backwards."""

LOOKAHEAD = 64
"""So many requests that do not fit are passed over in a step, before the rest is left alone."""

FORGET = 16
"""After so many steps it is asked anew what a request needs that did not fit."""

MAX_OVERTAKEN_STEPS = 512
"""A request is overtaken in at most this many steps of one wait, whatever the ranking says."""


class Line:
    """Ranks the waiting requests of one scheduler and says whom vLLM may try."""

    def __init__(
        self,
        port: EngineState,
        lives: Lives,
        keeper: Keeper,
        costs: CostTracker,
        clock: Clock,
        ranking: Ranking,
        backfill: bool,
    ) -> None:
        """`backfill`: a request that fits may go before one that does not."""
        self._port = port
        self._keeper = keeper
        self._costs = costs
        self._clock = clock
        self.ranking = ranking
        self.lives = lives
        self.backfill = backfill
        self._step = 0
        self._ready: list[Request] = []

    # -- before the step -------------------------------------------------------------------------

    def ready(self) -> list[Request]:
        """Return the waiting requests that could be admitted, the best first."""
        found = self._port.ready()
        self._step += 1
        self._ready = found
        if len(found) < 2 or self._port.goes_by_priority:
            return found
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

    def _place(self, request: Request) -> Any:
        life = self.lives[request.request_id]
        if self.overdue(request):
            return (0, (life.queued_at,), life.arrival)
        return (1, life.score or (), life.arrival)

    def overdue(self, request: Request) -> bool:
        """Return whether the request was overtaken so often that nothing may go before it now."""
        return self.lives[request.request_id].overtaken >= MAX_OVERTAKEN_STEPS

    def _stands(self, life: Life, mark: Any) -> bool:
        """Whether a score may be used again."""
        if life.score is None or life.scored_for != mark:
            return False
        refresh = self.ranking.refresh_steps
        return not refresh or self._step - life.scored_in < refresh

    def _kv_of(self, request: Request) -> Any:
        holding = self._keeper.holdings.get(request.request_id)
        return (computed_tokens(request), holding.resident if holding is not None else 0)

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
            forecast=self.lives.forecast(request),
            starved=life.starved,
        )
        return self.ranking.score(queued, view)

    def _kv_tokens(self, request: Request) -> tuple[int, int]:
        """Return the tokens of a request whose KV is on the device, and on the host only."""
        holding, computed = self._keeper.holdings.get(request.request_id), computed_tokens(request)
        if computed or holding is None:
            return computed, 0
        self._keeper.sight.freshen(holding)
        block_size = self._port.block_size
        resident = len(holding.detached or ())
        hosted = max(0, len(holding.keys) - resident - holding.missing)
        return resident * block_size, hosted * block_size

    def _view(self) -> QueueView:
        running, batch = len(self._port.running()), self._port.running_context()
        cost = self._costs.model
        return QueueView(
            now=self._clock(),
            capacity_tokens=self._capacity_tokens,
            step_seconds=cost.step_seconds(max(1, running), batch),
            running=running,
            batch_tokens=batch,
            swap_pays=self._keeper.sight.swap_pays,
            cost=cost,
        )

    def gate(self) -> Gate | None:
        """Begin the admissions of a step; None lets everybody in."""
        admission = self.lives.admission
        if admission.name == DEFAULT_ADMISSION:
            return None
        running = [self.batched(one) for one in self._port.running()]
        return admission.begin(running, self._capacity_tokens)

    @property
    def _capacity_tokens(self) -> int:
        return self._port.blocks.total * self._port.block_size

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
            return self.backfill and passed <= LOOKAHEAD and not self.overdue(request)

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

    def passed_over(self, ready: list[Request], chosen: list[Request]) -> None:
        """Count for those who are not among the chosen that others were served."""
        among = {request.request_id for request in chosen}
        threshold = self.ranking.starvation_steps
        for request in ready:
            if request.request_id in among:
                continue
            life = self.lives[request.request_id]
            # A session that was never served has not been put off by its rank alone.
            life.passes += life.started
            if threshold and life.passes >= threshold and not life.starved:
                life.starved, life.score = True, None

    def after_step(self) -> None:
        """Count who was overtaken: a request whose wait began later was admitted before it.

        The order of the waits decides and not the order of the line, since a ranking may put
        every newcomer before the same request.
        """
        ready, self._ready = self._ready, []
        waits = [(one, self.lives[one.request_id]) for one in ready]
        admitted = [life.queued_at for one, life in waits if not is_ready(one)]
        if not admitted:
            return
        latest = max(admitted)
        for request, life in waits:
            life.overtaken += is_ready(request) and life.queued_at < latest
