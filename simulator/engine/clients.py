"""The clients: they send sessions, run tools as long as the workload says, and send results.

A client of Caesura keeps one request for its session and pushes results to it. A client of stock
vLLM sends the whole context again after every tool, as agents do today. A call may start
sub-agents, and then it lasts until the last of them has ended. Forecasts of calls reach the
scheduler as the API process sends them.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from vllm import SamplingParams
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from caesura.intercept.calls.events import TurnKind
from caesura.intercept.calls.watch import WatchPlan
from caesura.scheduler.programs import Origin
from caesura.scheduler.vllm.engine.scheduler import PausingScheduler
from caesura.scheduler.vllm.wire import REPORT_KEY, WATCH_KEY
from caesura.simulator.engine.clock import Agenda
from caesura.simulator.engine.live import Live
from caesura.simulator.engine.plan import Plan
from caesura.simulator.engine.tokens import WORD, BlockNames, Tokens
from caesura.simulator.results import SessionResult
from caesura.simulator.session import Session, Workload


class Style(Protocol):
    """The way in which a client requests segments."""

    def request_id(self, live: Live) -> str:
        """Return the id of the request that serves the present segment."""
        ...

    def request(self, live: Live, most_tokens: int, now: float) -> Request:
        """Return the request, or the chunk of a request, for the present segment."""
        ...

    def goodbye(self, live: Live) -> Request | None:
        """Return the request to send after the last segment, or None."""
        ...


class Pausing:
    """One resumable request for a session; the client pushes results to it."""

    def __init__(self, tokens: Tokens, names_parents: bool = False) -> None:
        """Create it; with `names_parents`, a sub-agent's request names its parent."""
        self._tokens = tokens
        self._names_parents = names_parents

    def request_id(self, live: Live) -> str:
        """Return the session's key."""
        return live.session.key

    def request(self, live: Live, most_tokens: int, now: float) -> Request:
        """Return a prompt with the whole context, or what follows the engine's request.

        That is the last segment's final token with the tool's result.
        """
        given = [WORD] * (live.context if live.anew else live.segment.given_tokens)
        if not live.anew:
            # The last token of a turn has no KV yet, so it is sent again.
            given.insert(0, self._tokens.last_of(live.session.segments[live.index - 1].tool))
        # The call's single token does not show that its turn holds a call.
        turn: TurnKind = "holding" if live.segment.tool else "fresh"
        plan = WatchPlan(("hermes",), self._tokens.offered_to(live.session.kind), (), turn)
        return Request(
            request_id=live.session.key,
            prompt_token_ids=given,
            sampling_params=_sampling(live, most_tokens, self._extra_args(live.session, plan)),
            pooling_params=None,
            arrival_time=now,
            block_hasher=live.names.hash_blocks if live.anew else None,
            resumable=True,
        )

    def _extra_args(self, session: Session, plan: WatchPlan) -> dict[str, Any]:
        """Return vLLM's `extra_args`: the plan of the watch, and where the session comes from."""
        origin = Origin(session.tenant)
        if self._names_parents:
            origin = Origin(session.tenant, session.key, session.parent)
        return {WATCH_KEY: plan.to_wire(), **origin.to_wire()}

    def goodbye(self, live: Live) -> Request | None:
        """Return a final request that closes the session's input, as vLLM's frontend sends it."""
        return Request(
            request_id=live.session.key,
            prompt_token_ids=[WORD],
            sampling_params=SamplingParams(),
            pooling_params=None,
            arrival_time=live.result.ended,
        )


class Anew:
    """A new request for every segment, with all tokens so far.

    Its priority is its session's place, which matters if vLLM schedules by priority.
    """

    def request_id(self, live: Live) -> str:
        """Return an id that is new for every segment."""
        return f"{live.session.key}/{live.index}"

    def request(self, live: Live, most_tokens: int, now: float) -> Request:
        """Return a request with the whole context."""
        return Request(
            request_id=self.request_id(live),
            prompt_token_ids=[WORD] * live.context,
            sampling_params=_sampling(live, most_tokens, None),
            pooling_params=None,
            arrival_time=now,
            priority=live.place,
            block_hasher=live.names.hash_blocks,
        )

    def goodbye(self, live: Live) -> Request | None:
        """Return None: the last request has already ended."""
        return None


def _sampling(live: Live, most_tokens: int, extra: dict[str, Any] | None) -> SamplingParams:
    return SamplingParams(max_tokens=most_tokens, stop_token_ids=[live.last], extra_args=extra)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a session at its begin.

    It is call number `index` of `session`, from 0 on. `asked` are the sessions that it starts,
    possibly on other engines, and `load` is the most requests that one of these engines runs or
    queues. Without them the call is that of a tool.
    """

    session: Session
    index: int
    asked: tuple[Session, ...]
    load: int
    at: float


class Forecaster(Protocol):
    """Forecasts calls, and learns how long they lasted."""

    def forecast(self, call: Call) -> float | None:
        """Return the expected seconds of a call that begins now; None if they are unknown."""
        ...

    def returned(self, call: Call, seconds: float) -> None:
        """Learn that a call lasted `seconds`."""
        ...


class Foretold:
    """Asks a forecaster about each call, and tells the scheduler while the session is paused."""

    def __init__(self, forecaster: Forecaster, scheduler: Scheduler) -> None:
        """Create it; a stock scheduler is told nothing."""
        self._forecaster = forecaster
        self._pauses = scheduler.parts.pauses if isinstance(scheduler, PausingScheduler) else None
        self._open: dict[str, Call] = {}

    def paused(
        self, live: Live, request_id: str, asked: Sequence[Session], load: int, now: float
    ) -> None:
        """Forecast the call with which a session has paused."""
        call = Call(live.session, live.index, tuple(asked), load, now)
        self._open[live.session.key] = call
        seconds = self._forecaster.forecast(call)
        if seconds is not None and self._pauses is not None:
            self._pauses.expect(request_id, seconds)

    def returned(self, live: Live, at: float) -> None:
        """Learn that a session's call returns at the second `at`."""
        call = self._open.pop(live.session.key)
        self._forecaster.returned(call, at - call.at)


class Families:
    """Parents that wait for their sub-agents; sessions of no family are ignored.

    Raises `ValueError` for a sub-agent whose parent is unknown or never makes its call.
    """

    def __init__(self, sessions: Iterable[Session]) -> None:
        known = {session.key: session for session in sessions}
        self._of: defaultdict[tuple[str, int], list[Session]] = defaultdict(list)
        for session in known.values():
            if session.parent:
                _demand_call(session, known.get(session.parent))
                self._of[session.parent, session.parent_call].append(session)
        self._waiting: dict[str, tuple[Live, int]] = {}

    def started_by(self, live: Live) -> list[Session]:
        """Return the sub-agents that a session's last call starts; the session waits for them."""
        started = self._of.pop((live.session.key, live.index), [])
        if started:
            self._waiting[live.session.key] = (live, len(started))
        return started

    def ended(self, live: Live) -> Live | None:
        """Return the parent that goes on after the end of `live`, or None.

        The seconds that its last sub-agent waited for tools become the parent's.
        """
        key = live.session.parent
        if not key:
            return None
        parent, left = self._waiting.pop(key)
        if left > 1:
            self._waiting[key] = (parent, left - 1)
            return None
        parent.result.tool_seconds += live.result.tool_seconds
        return parent


def _demand_call(session: Session, parent: Session | None) -> None:
    calls = len(parent.segments) - 1 if parent is not None else 0
    if not 0 <= session.parent_call < calls:
        raise ValueError(
            f"session {session.key} is started by call {session.parent_call} of"
            f" {session.parent!r}, which makes {calls} calls: name a parent of the workload"
            " and one of its calls"
        )


class Peers:
    """The clients of engines that run side by side, whose sessions may start each other.

    Raises `ValueError` for two sessions of the same key, and for a sub-agent whose parent is
    unknown or never makes its call.
    """

    def __init__(self, workloads: Sequence[Workload]) -> None:
        sessions = [session for workload in workloads for session in workload.sessions]
        if len({session.key for session in sessions}) < len(sessions):
            raise ValueError("two sessions of the workloads have the same key: make keys unique")
        self.families = Families(sessions)
        self._of: dict[str, Clients] = {}

    def join(self, clients: "Clients", workload: Workload) -> None:
        """Add the clients of one engine, which send the sessions of `workload`."""
        self._of.update(dict.fromkeys((session.key for session in workload.sessions), clients))

    def of(self, session: Session) -> "Clients":
        """Return the clients that send a session."""
        return self._of[session.key]

    def load_of(self, sessions: Iterable[Session]) -> int:
        """Return the most requests that an engine of these sessions runs or queues."""
        return max((len(self.of(session).live) for session in sessions), default=0)


class Clients:
    """All clients of a run; `live` holds the sessions that the engine has now, by request id."""

    def __init__(
        self,
        workload: Workload,
        tokens: Tokens,
        style: Style,
        scheduler: Scheduler,
        plan: Plan,
        peers: "Peers | None" = None,
        forecaster: Forecaster | None = None,
    ) -> None:
        """The `plan` gives the model's longest context and the block size.

        `peers` are the clients of engines that run side by side, this one included; None: it runs
        alone. The `forecaster` forecasts the pauses of calls.
        """
        self._tokens = tokens
        self._style = style
        self._scheduler = scheduler
        self._model_tokens = plan.model_tokens
        self._names = BlockNames(plan.block_tokens)
        self._numbers = 0
        self._agenda: Agenda[Live] = Agenda()
        self._begun: list[Live] = []
        own = [session for session in workload.sessions if not session.parent]
        self._peers = Peers([workload]) if peers is None else peers
        self._peers.join(self, workload)
        self._foretold = None if forecaster is None else Foretold(forecaster, scheduler)
        self._waiting = list(reversed(own)) if workload.clients else []
        self.live: dict[str, Live] = {}
        self.segments_done = 0
        for session in () if workload.clients else own:
            self._agenda.add(session.arrival, self._live(session))
        for _ in range(min(workload.clients, len(self._waiting))):
            self._agenda.add(0.0, self._live(self._waiting.pop()))

    @property
    def next_at(self) -> float | None:
        """Return when the next client sends on its own; None if none does."""
        return self._agenda.next_at

    def hand_over(self, now: float) -> None:
        """Give the scheduler all requests sent up to `now`, most of them during the last step."""
        for at, live in self._agenda.take_due(now):
            if live.index < 0:
                live.place = len(self._begun)
                self._begun.append(live)
                live.result.arrival = at
            self._send(live, at, at)

    def _send(self, live: Live, sent: float, at: float) -> None:
        """Give the scheduler at the second `at` what the client sent at the second `sent`."""
        segments = live.session.segments
        live.begin(self._tokens.last_of(segments[live.index + 1].tool), sent)
        most = live.segment.most_tokens or self._model_tokens - live.context
        self.live[self._style.request_id(live)] = live
        self._scheduler.add_request(self._style.request(live, most, at))
        live.anew = False

    def receive(self, ended: list[Live], outputs: Mapping[int, Any], now: float) -> None:
        """Receive the outputs of a step in which the `ended` sessions ended a segment.

        Raises `RuntimeError` if the engine ended other requests, or paused a wrong one.
        """
        finished = {
            output.request_id: output
            for of_client in outputs.values()
            for output in of_client.outputs
            if output.finish_reason is not None
        }
        for live in ended:
            request_id = self._style.request_id(live)
            output = finished.pop(request_id, None)
            if output is None or str(output.finish_reason) != "stop":
                raise RuntimeError(f"{request_id} decoded its last token but was not stopped")
            report = (output.kv_transfer_params or {}).get(REPORT_KEY)
            if report is not None and report["paused"] != bool(live.segment.tool):
                raise RuntimeError(f"{request_id}: it paused without a call or ran on: {report}")
            del self.live[request_id]
            self.segments_done += 1
            self._go_on(live, now)
        if finished:
            raise RuntimeError(f"the engine ended requests by itself: {sorted(finished)}")

    def _go_on(self, live: Live, now: float) -> None:
        """Run the tool, or close the session after its last segment."""
        seconds = live.segment.tool_seconds
        if not live.end(now):
            live.result.tool_seconds += seconds
            agents = self._peers.families.started_by(live)
            if self._foretold is not None:
                load = self._peers.load_of(agents)
                self._foretold.paused(live, self._style.request_id(live), agents, load, now)
            for agent in agents:
                self._peers.of(agent).begin(agent, now)
            if not agents:
                self.go_on(live, now + seconds)
            return
        parent = self._peers.families.ended(live)
        if parent is not None:
            self._peers.of(parent.session).go_on(parent, now)
        self._close(live)
        if self._waiting:
            self._agenda.add(now, self._live(self._waiting.pop()))

    def _close(self, live: Live) -> None:
        """Close the input of a session that has ended or goes elsewhere."""
        goodbye = self._style.goodbye(live)
        if goodbye is not None:
            self._scheduler.add_request(goodbye)

    def begin(self, session: Session, at: float) -> None:
        """Send a session at the second `at`."""
        self._agenda.add(at, self._live(session))

    def go_on(self, live: Live, at: float) -> None:
        """Send a call's result at the second `at`."""
        if self._foretold is not None:
            self._foretold.returned(live, at)
        self._agenda.add(at, live)

    def _live(self, session: Session) -> Live:
        result = SessionResult(
            session.key,
            session.kind,
            session.arrival,
            session.decode_tokens,
            parent=session.parent,
        )
        names = self._names.of(session, self._numbers)
        self._numbers += 1
        return Live(session, result, names, place=0)

    def results(self) -> list[SessionResult]:
        """Return the results of all sessions that were sent, in the order of sending."""
        for live in self._begun:
            live.cut_off()
        return [live.result for live in self._begun]
