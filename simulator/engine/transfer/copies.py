"""The workers' side of copies: orders in, copies over the link, reports out.

`Copies` is what all engines share: how copies and steps delay each other. Orders and reports depend
on the connector. `SwapCopies` does what `caesura.scheduler.vllm.engine.swap.worker` does, and
`caesura.simulator.engine.transfer.offload` what vLLM's own worker does.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

from vllm.v1.outputs import KVConnectorOutput

from caesura.scheduler.vllm.engine.swap.messages import SwapReport
from caesura.simulator.engine.clients.live import Live
from caesura.simulator.engine.transfer.connectors import kv_spec
from caesura.simulator.engine.transfer.link import Copy, Link
from caesura.simulator.machine import Machine
from caesura.simulator.policy import Policy


class Span(NamedTuple):
    """The end of a step, and the seconds for which copies delayed it."""

    ends: float
    stall: float


@dataclass(slots=True)
class Ordered:
    """The numbers of blocks that a step was ordered to copy."""

    saved: int = 0
    loaded: int = 0


class Copies(ABC):
    """The copies of a machine's workers."""

    def __init__(self, machine: Machine, policy: Policy, live: dict[str, Live]) -> None:
        rate = float("inf") if policy.free_link else machine.link_bytes
        self.link = Link(rate, machine.full_duplex)
        self._ordered = Ordered()
        self._block_tokens = machine.block_tokens
        self._block_bytes = machine.block_tokens * machine.kv_bytes
        self._planned_bytes = kv_spec(machine.block_tokens).page_size_bytes
        self._interference = machine.interference
        self._synchronous = policy.synchronous_swap
        self._live = live
        self._urgent_until = 0.0

    @abstractmethod
    def begin(self, orders: Any, now: float) -> None:
        """Submit a step's orders, before its forward pass."""

    @abstractmethod
    def report(self, now: float) -> KVConnectorOutput:
        """Return the copies done since the last step ended."""

    def step(self, now: float, seconds: float) -> Span:
        """Return the end and the delay of a step that takes `seconds` without copies.

        Loads that join the step run layer by layer beside it, and it ends no sooner than they do.
        Copies beside the step slow it down while they run.
        """
        begins = self.link.idle_at(now) if self._synchronous else self.held_until(now)
        stall = begins - now
        busy = min(self.link.idle_at(begins) - begins, seconds * (1 + self._interference))
        ends = begins + seconds + busy * self._interference / (1 + self._interference)
        self.link.forward(begins, ends)
        if self._urgent_until > ends:
            stall += self._urgent_until - ends
            ends = self._urgent_until
        return Span(ends, stall)

    def held_until(self, now: float) -> float:
        """Return when a step scheduled `now` may begin."""
        return now

    def take_ordered(self) -> Ordered:
        """Return the blocks ordered since the last call."""
        ordered, self._ordered = self._ordered, Ordered()
        return ordered

    def _put(self, order: Any, blocks: int, now: float, out: bool, urgent: bool = False) -> Copy:
        copy = self.link.put(order, blocks, blocks * self._block_bytes, now, out=out, urgent=urgent)
        if urgent:
            self._urgent_until = copy.ends
        if out:
            self._ordered.saved += blocks
        else:
            self._ordered.loaded += blocks
        return copy

    def _note_load(self, request_id: str, blocks: int) -> None:
        live = self._live.get(request_id)
        if live is not None:
            live.result.loaded_tokens += blocks * self._block_tokens


class SwapCopies(Copies):
    """Carries out the `SwapOrders` of Caesura's connector."""

    def begin(self, orders: Any, now: float) -> None:
        """Submit the orders; loads go first, since requests wait for them."""
        for load in orders.loads:
            self._put(load, len(load.blocks), now, out=False, urgent=load.in_step)
            self._note_load(load.request_id, len(load.blocks))
        for save in orders.saves:
            self._put(save, len(save.blocks), now, out=True)

    def report(self, now: float) -> KVConnectorOutput:
        """Return finished saves by job, and loads by request once their last part is done."""
        received: list[str] = []
        report = SwapReport()
        done = self.link.take_done(now)
        for copy in done:
            traffic = report.out if copy.out else report.into
            traffic.bytes += copy.blocks * self._planned_bytes
            traffic.seconds += copy.seconds
            traffic.beside += self.link.beside(copy)
            order = copy.order
            if copy.out:
                report.saved[order.job] = 1
            elif order.last and not order.in_step:
                received.append(order.request_id)
        # A list replaces the set, whose order would differ from run to run.
        return KVConnectorOutput(
            finished_recving=received,
            kv_connector_worker_meta=report if done else None,
        )
