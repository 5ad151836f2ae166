"""One replica: its scheduler, its clock and its clients, run epoch by epoch."""

from dataclasses import dataclass
from functools import cached_property

from caesura.simulator.engine.build import build_scheduler
from caesura.simulator.engine.clock import Clock
from caesura.simulator.engine.core import Core
from caesura.simulator.engine.plan import Plan
from caesura.simulator.engine.replicas.clients import RoutedClients
from caesura.simulator.engine.replicas.messages import Account, News, Orders
from caesura.simulator.engine.run import copies_of, style_of
from caesura.simulator.engine.tokens import Tokens
from caesura.simulator.machine import Machine
from caesura.simulator.policy import Policy
from caesura.simulator.session import Session, Workload


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
        self._scheduler = build_scheduler(plan, machine, policy, self._clock, truth.get, tokens)
        self._clients = RoutedClients(
            tokens, style_of(policy, tokens), self._scheduler, plan, truth
        )
        self._clients.stay = build.stay
        copies = copies_of(self._scheduler, machine, policy, self._clients)
        self._core = Core(
            self._scheduler, self._clients, copies, machine.latency, self._clock, build.check
        )

    def run(self, orders: Orders | None, end: float) -> News:
        """Take the front's orders, and run all steps that begin before the second `end`."""
        clients, core = self._clients, self._core
        if orders is not None:
            clients.obey(orders)
        while (at := core.next_at) is not None and at < end:
            core.step_at(at)
        returned, ended = clients.take_news()
        tokens = clients.tokens() if self._tokens_told else 0
        return News(clients.requests, tokens, core.next_at, returned, ended)

    def close(self, end: float) -> Account:
        """Pass the time up to the second `end`, stop, and return what was measured."""
        core, clients = self._core, self._clients
        core.pass_until(end)
        core.meter.sample(self._clock.now, last=True)
        self._scheduler.shutdown()
        meter = core.meter
        return Account(meter.totals, meter.timeline(), clients.segments_done, clients.unfinished())
