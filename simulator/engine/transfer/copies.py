"""The workers' side of copies: orders in, copies over the link, reports out.

`Copies` is the part that every engine shares: how copies and a step hold each other up. What is
ordered and how it is reported is the connector's: `SwapCopies` does it as
`caesura.scheduler.vllm.swap.worker`, `caesura.simulator.engine.transfer.offload` as vLLM's own.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

from vllm.v1.outputs import KVConnectorOutput

from caesura.scheduler.vllm.swap.messages import SwapReport
from caesura.simulator.engine.clients.live import Live
from caesura.simulator.engine.transfer.connectors import kv_spec
from caesura.simulator.engine.transfer.link import Copy, Link
from caesura.simulator.machine import Machine
from caesura.simulator.policy import Policy


class Span(NamedTuple):
    """When a step computes and ends, and for how many seconds copies held it up."""

    ends: float
    stall: float


@dataclass(slots=True)
class Ordered:
    """Blocks that a step was ordered to copy."""

    saved: int = 0
    loaded: int = 0


class Copies(ABC):
    """What a machine's workers copy."""

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
        """Take a step's orders, before its forward pass."""

    @abstractmethod
    def report(self, now: float) -> KVConnectorOutput:
        """Tell what has been done since the last step ended."""

    def step(self, now: float, seconds: float) -> Span:
        """Return how a step goes that begins now and takes so long without copies.

        Loads that join it run layer by layer beside it, so that it ends no sooner than they do.
        Copies beside it slow it down for as long as they run.
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
        """Return when a step may begin that the scheduler has made now."""
        return now

    def take_ordered(self) -> Ordered:
        """Return what was ordered since the last call."""
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
    """Carries out `SwapOrders` of our own connector."""

    def begin(self, orders: Any, now: float) -> None:
        """Loads go first: somebody waits for them."""
        for load in orders.loads:
            self._put(load, len(load.blocks), now, out=False, urgent=load.in_step)
            self._note_load(load.request_id, len(load.blocks))
        for save in orders.saves:
            self._put(save, len(save.blocks), now, out=True)

    def report(self, now: float) -> KVConnectorOutput:
        """Report saves by job, loads over steps by request when their last piece is there."""
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
        # An ordered collection stands in for a set, whose order would change from run to run.
        return KVConnectorOutput(
            finished_recving=received,
            kv_connector_worker_meta=report if done else None,
        )
