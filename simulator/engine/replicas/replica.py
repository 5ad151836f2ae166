"""One replica: its scheduler, its clock and its clients, run epoch by epoch.

Its clients get their sessions from the front, and give them back to it.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from caesura.simulator.engine.build import build_scheduler
from caesura.simulator.engine.clients import Clients, Style
from caesura.simulator.engine.clock import Clock
from caesura.simulator.engine.core import Core
from caesura.simulator.engine.live import Live
from caesura.simulator.engine.plan import Plan
from caesura.simulator.engine.replicas.messages import (
    Account,
    Ended,
    News,
    Orders,
    Progress,
    Returned,
    Send,
)
from caesura.simulator.engine.run import copies_of, style_of
from caesura.simulator.engine.tokens import Tokens
from caesura.simulator.machine import Machine
from caesura.simulator.policy import Policy
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

    def tokens(self) -> tuple[int, int]:
        """Return the tokens in the contexts of the requests that the engine has.

        The second number is what those without a first token were given.
        """
        lives = self.live.values()
        given = sum(live.segment.given_tokens for live in lives if not live.first)
        return sum(live.context + live.decoded for live in lives), given

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


@dataclass(frozen=True)
class Build:
    """What replicas are built from.

    `sample` is a part of the workload that calls all its tools. `tokens_told`: the front wants to
    know the tokens of requests. `stay`: sessions stay at their replica.
    """

    sample: Workload
    plan: Plan
    machine: Machine
    policy: Policy
    stay: bool
    tokens_told: bool
    check: bool = False

    @cached_property
    def tokens(self) -> Tokens:
        """Return the vocabulary of the workload."""
        return Tokens(self.sample)


class Replica:
    """One engine of many."""

    def __init__(self, build: Build) -> None:
        machine, policy, plan, tokens = build.machine, build.policy, build.plan, build.tokens
        truth: dict[str, Session] = {}
        self._tokens_told = build.tokens_told
        self._clock = Clock()
        self._scheduler = build_scheduler(plan, policy, self._clock, truth.get, tokens)
        self._clients = RoutedClients(
            tokens, style_of(policy, tokens), self._scheduler, plan, truth
        )
        self._clients.stay = build.stay
        copies = copies_of(self._scheduler, machine, plan, policy, self._clients)
        self._core = Core(self._scheduler, self._clients, copies, machine, self._clock, build.check)

    def run(self, orders: Orders | None, end: float) -> News:
        """Take the front's orders, and run all steps that begin before the second `end`."""
        clients, core = self._clients, self._core
        if orders is not None:
            clients.obey(orders)
        while (at := core.next_at) is not None and at < end:
            core.step_at(at)
        returned, ended = clients.take_news()
        tokens, prefill = clients.tokens() if self._tokens_told else (0, 0)
        return News(clients.requests, tokens, prefill, core.next_at, returned, ended)

    def close(self, end: float) -> Account:
        """Pass the time up to the second `end`, stop, and return what was measured."""
        core, clients = self._core, self._clients
        core.pass_until(end)
        core.meter.sample(self._clock.now, last=True)
        self._scheduler.shutdown()
        meter = core.meter
        return Account(meter.totals, meter.timeline(), clients.segments_done, clients.unfinished())
