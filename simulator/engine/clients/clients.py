"""The clients: they send sessions, run tools as long as the workload says, and send results."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler

from caesura.scheduler.vllm.wire import REPORT_KEY
from caesura.simulator.engine.clients.families import Families
from caesura.simulator.engine.clients.forecasts import Forecaster, Foretold
from caesura.simulator.engine.clients.live import Live
from caesura.simulator.engine.clients.styles import Style
from caesura.simulator.engine.clock import Agenda
from caesura.simulator.engine.plan import Plan
from caesura.simulator.engine.tokens import BlockNames, Tokens
from caesura.simulator.results import SessionResult
from caesura.simulator.session import Session, Workload


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
