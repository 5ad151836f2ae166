"""The waiting queue: the order in which requests are tried, and what each one lacked.

The queue caches the ranking's scores while they are valid; admission may refuse requests. With
backfilling, a request that fits goes before a larger one that does not. Neither the ranking nor
backfilling can starve a request: a request that was overtaken too often is overdue (`StepRules`).
It goes to the front, no other request overtakes it, and freed blocks are kept for it.

With fair shares, tenants are charged for what they use of each step, and their virtual times order
the queue.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request

from caesura.scheduler.policy.admission import Batched, Gate, StepRules
from caesura.scheduler.policy.names import DEFAULT_ADMISSION
from caesura.scheduler.policy.ranking import Queued, QueueView, Ranking, segment_seconds
from caesura.scheduler.policy.shares import Accounts
from caesura.scheduler.policy.slo import Slo, chance, latest_start
from caesura.scheduler.vllm.engine.kv.paused_kvs import PausedKVs
from caesura.scheduler.vllm.engine.kv.views import PolicyViews
from caesura.scheduler.vllm.engine.port import EngineState
from caesura.scheduler.vllm.engine.port.requests import computed_tokens, is_ready
from caesura.scheduler.vllm.engine.sessions.served import Clock, SessionState
from caesura.scheduler.vllm.engine.sessions.sessions import Sessions


class Shares:
    """Charges tenants for the steps of their requests, and orders the queue by virtual time."""

    def __init__(self, port: EngineState, sessions: Sessions, accounts: Accounts) -> None:
        self._port = port
        self._sessions = sessions
        self._accounts = accounts
        self._in_flight: deque[Mapping[str, float]] = deque()
        self._waiting: frozenset[str] | None = None

    def order(self, ready: list[Request]) -> list[Request]:
        """Return the waiting requests, given in order of rank, in the order of virtual time.

        Each tenant's own requests stay in order of rank.
        """
        waiting = [self._sessions[one.request_id] for one in ready]
        running = {self._sessions[one.request_id].origin.tenant for one in self._port.running()}
        self._waiting = frozenset(one.origin.tenant for one in waiting)
        self._accounts.set_present(running | self._waiting)
        begins = self._accounts.begins((one.origin.tenant, one.expected_seconds) for one in waiting)
        places = sorted(range(len(ready)), key=begins.__getitem__)
        return [ready[place] for place in places]

    def scheduled(self, output: SchedulerOutput) -> None:
        """Note what each tenant uses of a step: its shares of the KV cache and of the tokens."""
        total = output.total_num_scheduled_tokens
        waiting, self._waiting = self._waiting, None
        if not total:
            return
        groups, size = self._port.groups, self._port.attention_tokens
        capacity = groups.tokens(self._port.blocks.total, size)
        used: dict[str, float] = {}
        for request_id, tokens in output.num_scheduled_tokens.items():
            request = self._port.request(request_id)
            assert request is not None
            tenant = self._sessions[request_id].origin.tenant
            held = request.num_tokens + groups.fixed_tokens(request.num_tokens, size)
            used[tenant] = used.get(tenant, 0.0) + held / capacity + tokens / total
        if waiting is None and self._port.anything_queued():
            # The queue was not looked at, for example because no slot is free.
            waiting = self._accounts.present
        self._accounts.set_present(used.keys() | (waiting or frozenset()))
        self._in_flight.append(used)

    def ended(self, output: SchedulerOutput, seconds: float) -> None:
        """Charge the oldest step in flight, which took `seconds`."""
        if output.total_num_scheduled_tokens and self._in_flight:
            for tenant, share in self._in_flight.popleft().items():
                self._accounts.charge(tenant, share * seconds)


def overtaken(ready: Sequence[Request], waits: Sequence[SessionState]) -> list[bool]:
    """Return for each ready request of a step, in order, whether another one overtook it.

    That is an admitted request whose wait began later, and which is of the same tenant or has a
    place behind it: a tenant that goes first by its share overtakes no other.
    """
    of_tenant: dict[str, float] = {}
    for request, session in zip(ready, waits, strict=True):
        if not is_ready(request):
            latest = of_tenant.get(session.origin.tenant, session.queued_at)
            of_tenant[session.origin.tenant] = max(latest, session.queued_at)
    found, behind = [], float("-inf")
    for request, session in zip(reversed(ready), reversed(waits), strict=True):
        if is_ready(request):
            latest = max(behind, of_tenant.get(session.origin.tenant, behind))
            found.append(session.queued_at < latest)
        else:
            behind = max(behind, session.queued_at)
            found.append(False)
    return found[::-1]


@dataclass(frozen=True, slots=True)
class QueueOrder:
    """What orders the queue: a ranking, and the rules that bound it.

    With an objective `slo`, requests that can meet it go first. With `shares`, tenants go in the
    order of their virtual times, and all other orders hold within a tenant.
    """

    ranking: Ranking
    rules: StepRules
    slo: Slo | None = None
    shares: Shares | None = None


class WaitingQueue:
    """Ranks the waiting requests of one scheduler, and remembers which did not fit."""

    def __init__(
        self,
        port: EngineState,
        sessions: Sessions,
        paused_kvs: PausedKVs,
        views: PolicyViews,
        clock: Clock,
        order: QueueOrder,
    ) -> None:
        self._port = port
        self._paused_kvs = paused_kvs
        self._views = views
        self._clock = clock
        self.ranking = order.ranking
        self.sessions = sessions
        self.rules = order.rules
        self._slo = order.slo
        self._shares = order.shares
        self._step = 0
        self._now = 0.0
        self._ready: list[Request] = []

    # -- before the step -------------------------------------------------------------------------

    def ready(self) -> list[Request]:
        """Return the waiting requests that could be admitted, in order of rank."""
        found = self._port.ready()
        self._step += 1
        self._now = self._clock()
        self._ready = found
        if len(found) < 2 or self._port.goes_by_priority:
            return found
        view = None
        for request in found:
            session = self.sessions[request.request_id]
            mark = self._kv_of(request)
            if not self._stands(session, mark):
                view = view or self._view()
                session.score = self._rank(request, session, view)
                session.scored_for, session.scored_in = mark, self._step
        found.sort(key=self._place)
        if self._shares is not None:
            found = self._ready = self._shares.order(found)
        return found

    def _place(self, request: Request) -> Any:
        session = self.sessions[request.request_id]
        if self.overdue(request):
            return (0, (session.queued_at,), session.arrival)
        if self._slo is not None:
            reach = chance(self._now, session.latest_start, session.spoilt)
            return (1 + reach, session.score or (), session.arrival)
        return (1, session.score or (), session.arrival)

    def overdue(self, request: Request) -> bool:
        """Return whether the request was overtaken so often that it must be admitted next."""
        session = self.sessions[request.request_id]
        return self.rules.is_overdue(session.overtaken, self._now - session.queued_at)

    def _stands(self, session: SessionState, mark: Any) -> bool:
        """Return whether the session's cached score is still valid."""
        if session.score is None or session.scored_for != mark:
            return False
        refresh = self.ranking.refresh_steps
        return not refresh or self._step - session.scored_in < refresh

    def _kv_of(self, request: Request) -> Any:
        kv = self._paused_kvs.get(request.request_id)
        return (computed_tokens(request), kv.resident if kv is not None else 0)

    def _rank(self, request: Request, session: SessionState, view: QueueView) -> tuple[float, ...]:
        resident, hosted = self._kv_tokens(request)
        queued = Queued(
            key=request.request_id,
            arrival=session.arrival,
            queued_at=session.queued_at,
            context_tokens=request.num_tokens,
            resident_tokens=resident,
            hosted_tokens=hosted,
            decoded_tokens=request.num_output_tokens,
            calls=session.calls,
            forecast=self.sessions.forecast(request),
            starved=session.starved,
            fixed_tokens=self._fixed_tokens(request),
        )
        if self._slo is not None:
            session.latest_start = latest_start(queued, view, self._slo)
        if self._shares is not None:
            session.expected_seconds = segment_seconds(queued, view)
        return self.ranking.score(queued, view)

    def _kv_tokens(self, request: Request) -> tuple[int, int]:
        """Return the tokens of a request whose KV is on the device, and on the host only."""
        kv, computed = self._paused_kvs.get(request.request_id), computed_tokens(request)
        if computed or kv is None:
            return computed, 0
        self._paused_kvs.freshen(kv)
        return self._paused_kvs.blocks.tokens_of(kv)

    def _fixed_tokens(self, request: Request) -> float:
        """Return the memory of a request's windows and states, in tokens of full attention."""
        port = self._port
        return port.groups.fixed_tokens(request.num_tokens, port.attention_tokens)

    def _view(self) -> QueueView:
        running, batch = len(self._port.running()), self._port.running_context()
        cost = self._views.cost
        return QueueView(
            now=self._now,
            capacity_tokens=self._capacity_tokens,
            step_seconds=cost.step_seconds(max(1, running), batch),
            running=running,
            batch_tokens=batch,
            swap_pays=self._views.swap_pays,
            cost=cost,
        )

    def gate(self) -> Gate | None:
        """Return the admission gate of a step; None admits every request."""
        admission = self.sessions.admission
        if admission.name == DEFAULT_ADMISSION:
            return None
        running = [self.batched(one) for one in self._port.running()]
        return admission.begin(running, self._capacity_tokens)

    @property
    def _capacity_tokens(self) -> int:
        return int(self._port.groups.tokens(self._port.blocks.total, self._port.attention_tokens))

    def batched(self, request: Request) -> Batched:
        """Return the request's view as a member of the batch."""
        session = self.sessions[request.request_id]
        return Batched(
            key=request.request_id,
            kind=session.kind,
            held_tokens=round(request.num_tokens + self._fixed_tokens(request)),
            generated_tokens=request.num_output_tokens,
            most_new_tokens=request.max_tokens,
        )

    # -- misfits ---------------------------------------------------------------------------------

    def misfits(self) -> Callable[[Request], bool]:
        """Return a function that says, after each misfit, whether to examine further requests."""
        passed = 0

        def look_further(request: Request) -> bool:
            nonlocal passed
            passed += 1
            return self.rules.look_further(passed, self.overdue(request))

        return look_further

    def misfitted(self, request: Request, needed: int, computed: int) -> None:
        """Remember a request's need, so that it is not computed again at every step."""
        session = self.sessions[request.request_id]
        session.misfit, session.misfit_in = (needed, computed), self._step

    def misfit(self, request: Request, free: int) -> tuple[int, int] | None:
        """Return a request's remembered need, if it is recent and exceeds `free`, else None."""
        session = self.sessions[request.request_id]
        steps = self._step - session.misfit_in
        if session.misfit is None or not self.rules.misfit_holds(steps):
            return None
        return session.misfit if session.misfit[0] > free else None

    def known_tokens(self, request: Request) -> int:
        """Return a request's tokens that are known to need no computation."""
        return sum(self._kv_tokens(request))

    def passed_over(self, ready: list[Request], chosen: list[Request]) -> None:
        """Count a step for the ready requests that were not chosen."""
        among = {request.request_id for request in chosen}
        threshold = self.ranking.starvation_steps
        for request in ready:
            if request.request_id in among:
                continue
            session = self.sessions[request.request_id]
            # A session that was never served has not waited because of its rank alone.
            session.passes += session.started
            if threshold and session.passes >= threshold and not session.starved:
                session.starved, session.score = True, None

    def after_step(self) -> None:
        """Count the requests that were overtaken by one whose wait began later.

        The order of the waits decides, and not the order of the queue, since a ranking may put
        every new request before the same old one.
        """
        ready, self._ready = self._ready, []
        waits = [(one, self.sessions[one.request_id]) for one in ready]
        admitted = [session for one, session in waits if not is_ready(one)]
        if not admitted:
            return
        if self._slo is not None:
            for session in admitted:
                session.spoilt |= self._now > session.queued_at + self._slo.ttft
        if self._shares is not None:
            for late, (_, session) in zip(
                overtaken(ready, [w for _, w in waits]), waits, strict=True
            ):
                session.overtaken += late
            return
        latest = max(session.queued_at for session in admitted)
        for request, session in waits:
            session.overtaken += is_ready(request) and session.queued_at < latest
