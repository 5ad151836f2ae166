"""Fair shares of one scheduler: who consumed what in each step, and the order that follows."""

from collections import deque
from collections.abc import Mapping, Sequence

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request

from caesura.scheduler.admission.fair import Accounts
from caesura.scheduler.vllm.engine_state import EngineState
from caesura.scheduler.vllm.engine_state.requests import is_ready
from caesura.scheduler.vllm.queue.sessions import Sessions, SessionState


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
        running = {self._sessions[one.request_id].tenant for one in self._port.running()}
        self._waiting = frozenset(one.tenant for one in waiting)
        self._accounts.set_present(running | self._waiting)
        begins = self._accounts.begins((one.tenant, one.expected_seconds) for one in waiting)
        places = sorted(range(len(ready)), key=begins.__getitem__)
        return [ready[place] for place in places]

    def scheduled(self, output: SchedulerOutput) -> None:
        """Note what each tenant uses of a step: its shares of the KV cache and of the tokens."""
        total = output.total_num_scheduled_tokens
        waiting, self._waiting = self._waiting, None
        if not total:
            return
        capacity = self._port.blocks.total * self._port.block_size
        used: dict[str, float] = {}
        for request_id, tokens in output.num_scheduled_tokens.items():
            request = self._port.request(request_id)
            assert request is not None
            tenant = self._sessions[request_id].tenant
            used[tenant] = used.get(tenant, 0.0) + request.num_tokens / capacity + tokens / total
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
            latest = of_tenant.get(session.tenant, session.queued_at)
            of_tenant[session.tenant] = max(latest, session.queued_at)
    found, behind = [], float("-inf")
    for request, session in zip(reversed(ready), reversed(waits), strict=True):
        if is_ready(request):
            latest = max(behind, of_tenant.get(session.tenant, behind))
            found.append(session.queued_at < latest)
        else:
            behind = max(behind, session.queued_at)
            found.append(False)
    return found[::-1]
