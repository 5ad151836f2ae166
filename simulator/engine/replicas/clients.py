"""The clients of one replica: their sessions come from the front, and go back to it."""

from typing import Any

from caesura.simulator.engine.clients.clients import Clients
from caesura.simulator.engine.clients.live import Live
from caesura.simulator.engine.clients.styles import Style
from caesura.simulator.engine.plan import Plan
from caesura.simulator.engine.replicas.messages import Ended, Orders, Progress, Returned, Send
from caesura.simulator.engine.tokens import Tokens
from caesura.simulator.session import Session, Workload

NOBODY = Workload("none", ())


class RoutedClients(Clients):
    """Sends what the front routes here; returns of tools go to the front unless sessions stay."""

    def __init__(
        self, tokens: Tokens, style: Style, scheduler: Any, plan: Plan, truth: dict[str, Session]
    ) -> None:
        """Create it; `truth` holds the sessions that are here, by key."""
        super().__init__(NOBODY, tokens, style, scheduler, plan)
        self._truth = truth
        self._held: dict[int, Live] = {}
        self.stay = False
        """Whether sessions stay at this replica for good, so that the front is not asked."""
        self.requests = 0
        """The requests that were sent here and have not ended."""
        self._returned: list[Returned] = []
        self._ended: list[Ended] = []

    def obey(self, orders: Orders) -> None:
        """Let sessions leave, and add requests to the agenda."""
        for place in orders.leaves:
            live = self._held.pop(place)
            del self._truth[live.session.key]
            self._close(live)
        for send in orders.sends:
            self.requests += 1
            live = self._held[send.place] if send.session is None else self._adopt(send)
            live.sent = send.sent
            self._agenda.add(send.at, live)

    def _adopt(self, send: Send) -> Live:
        session, progress = send.session, send.progress
        assert session is not None and progress is not None, "a new session comes with its progress"
        live = Live(
            session,
            progress.result,
            self._names.of(session, send.place),
            send.place,
            index=progress.index,
            context=progress.context,
            reached=progress.reached,
        )
        self._held[send.place] = live
        self._truth[session.key] = session
        return live

    def hand_over(self, now: float) -> None:
        """Give the scheduler all requests that have reached this replica by `now`."""
        for at, live in self._agenda.take_due(now):
            if live.index < 0:
                live.result.arrival = live.sent
            self._send(live, live.sent, at)

    def receive(self, ended: list[Live], outputs: Any, now: float) -> None:
        """Receive the outputs of a step in which the `ended` sessions ended a segment."""
        self.requests -= len(ended)
        super().receive(ended, outputs, now)
        for live in ended:
            if live.result.ended:
                del self._held[live.place], self._truth[live.session.key]
                self._ended.append(Ended(live.place, live.result))

    def go_on(self, live: Live, at: float) -> None:
        """Send a call's result at the second `at`, or tell the front."""
        if self.stay:
            self.requests += 1
            live.sent = at
            self._agenda.add(at, live)
            return
        progress = Progress(live.result, live.index, live.context, live.reached)
        self._returned.append(Returned(live.place, at, progress))

    def tokens(self) -> int:
        """Return the tokens in the contexts of the requests that the engine has."""
        return sum(live.context + live.decoded for live in self.live.values())

    def take_news(self) -> tuple[list[Returned], list[Ended]]:
        """Return the sessions that returned from tools, and that ended, since the last call."""
        returned, self._returned = self._returned, []
        ended, self._ended = self._ended, []
        return returned, ended

    def unfinished(self) -> list[Ended]:
        """Return the sessions that are here and have not ended."""
        for live in self._held.values():
            live.cut_off()
        return [Ended(place, live.result) for place, live in self._held.items()]
