"""Copies of KV between device and host: the connectors' configuration, the link, and the workers.

Host memory is counted in blocks. A block of the configured tiny model has another size than a block
on the simulated machine, which has the bytes of the largest group of layers.

A `Link` carries copies one after the other. Both directions share its rate, unless it is full
duplex. Copies that a step waits for go first, as in `caesura.scheduler.vllm.engine.swap.copier`.
All others keep their order and continue between steps.

`Copies` is what all workers share: how copies and steps delay each other. Orders and reports depend
on the connector. `SwapCopies` does what `caesura.scheduler.vllm.engine.swap.worker` does, and
`OffloadCopies` what `OffloadingConnectorWorker` does, in the same order. There a step's stores are
submitted with the next step, so that they do not delay its tokens, and a step waits for the stores
of blocks that it will overwrite.
"""

import mmap
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import (
    OffloadingWorkerMetadata,
)
from vllm.utils.math_utils import round_up
from vllm.v1.outputs import KVConnectorOutput

from caesura.scheduler.vllm.engine.port import EngineState
from caesura.scheduler.vllm.engine.port.blocks import ids_of
from caesura.scheduler.vllm.engine.port.requests import computed_tokens
from caesura.scheduler.vllm.engine.swap.messages import Load, SwapReport
from caesura.simulator.engine.layout import Layout
from caesura.simulator.engine.live import Live
from caesura.simulator.machine import Machine
from caesura.simulator.policy import Policy


def connector_config(host_blocks: int, block_bytes: int, policy: Policy) -> KVTransferConfig | None:
    """Return the policy's connector with `host_blocks` of host memory; None without one.

    `block_bytes` is the size of a block as connectors count it.
    """
    if not host_blocks or policy.engine == "stock":
        return None
    if policy.engine == "stock-offload":
        # vLLM's own connector rounds the size of a block on the host up to whole pages.
        host_bytes = host_blocks * round_up(block_bytes, mmap.PAGESIZE)
        return KVTransferConfig(
            kv_connector="OffloadingConnector",
            kv_role="kv_both",
            kv_connector_extra_config={"cpu_bytes_to_use": host_bytes},
        )
    # Half a block more, so that rounding does not lose a block.
    host_gib = (host_blocks + 0.5) * block_bytes / (1 << 30)
    return KVTransferConfig(
        kv_connector="CaesuraConnector",
        kv_connector_module_path="caesura.scheduler.vllm",
        kv_role="kv_both",
        kv_load_failure_policy="recompute",
        kv_connector_extra_config={"host_gib": host_gib, "in_step": policy.in_step},
    )


WINDOWS = 64
"""The number of forward passes that are kept, to measure the copies beside them."""


@dataclass(slots=True, eq=False)
class Copy:
    """One copy: it takes `seconds`, from the time `begins` to the time `ends`.

    `out`: it goes from the device to the host. `urgent`: a step waits for it.
    """

    order: Any
    out: bool
    blocks: int
    seconds: float
    urgent: bool = False
    begins: float = 0.0
    ends: float = 0.0


@dataclass(slots=True)
class _Lane:
    """Copies that run one after the other without a gap."""

    urgent: deque[Copy] = field(default_factory=deque)
    others: deque[Copy] = field(default_factory=deque)

    def put(self, copy: Copy, now: float) -> None:
        ahead = self.urgent if copy.urgent else self.others or self.urgent
        copy.begins = max(now, ahead[-1].ends) if ahead else now
        copy.ends = copy.begins + copy.seconds
        if not copy.urgent:
            self.others.append(copy)
            return
        self.urgent.append(copy)
        for other in self.others:
            other.begins += copy.seconds if other.begins >= now else 0.0
            other.ends += copy.seconds

    def take_done(self, now: float) -> list[Copy]:
        done: list[Copy] = []
        for queue in (self.urgent, self.others):
            while queue and queue[0].ends <= now:
                done.append(queue.popleft())
        return done

    def ends(self) -> Iterable[tuple[float, float]]:
        """Return the ends of the first and the last copy of each queue."""
        return [(queue[0].ends, queue[-1].ends) for queue in (self.urgent, self.others) if queue]


class Link:
    """A link that carries `bytes_per_second`; an infinite rate serves as a bound."""

    def __init__(self, bytes_per_second: float, full_duplex: bool) -> None:
        self._rate = bytes_per_second
        lane = _Lane()
        self._out, self._in = lane, _Lane() if full_duplex else lane
        self._lanes = [self._out, self._in] if full_duplex else [lane]
        self._windows: deque[tuple[float, float]] = deque(maxlen=WINDOWS)

    def put(
        self, order: Any, blocks: int, size: int, now: float, *, out: bool, urgent: bool = False
    ) -> Copy:
        """Queue a copy of `blocks` blocks with `size` bytes together, and return it."""
        copy = Copy(order, out, blocks, size / self._rate, urgent)
        (self._out if out else self._in).put(copy, now)
        return copy

    def take_done(self, now: float) -> list[Copy]:
        """Remove and return the copies that have ended by `now`."""
        return [copy for lane in self._lanes for copy in lane.take_done(now)]

    def forward(self, begins: float, ends: float) -> None:
        """Record a forward pass."""
        self._windows.append((begins, ends))

    def beside(self, copy: Copy) -> float:
        """Return the seconds of a copy that ran beside forward passes."""
        total = 0.0
        for begins, ends in reversed(self._windows):
            if ends <= copy.begins:
                break
            total += max(0.0, min(ends, copy.ends) - max(begins, copy.begins))
        return min(total, copy.seconds)

    @property
    def next_end(self) -> float | None:
        """Return when the next copy ends; None if there is none."""
        return min((first for lane in self._lanes for first, _ in lane.ends()), default=None)

    def idle_at(self, now: float) -> float:
        """Return when the last queued copy ends, or `now` if there is none."""
        return max((last for lane in self._lanes for _, last in lane.ends()), default=now)


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

    def __init__(
        self, machine: Machine, layout: Layout, policy: Policy, live: dict[str, Live]
    ) -> None:
        rate = float("inf") if policy.free_link else machine.link_bytes
        self.link = Link(rate, machine.full_duplex)
        self._ordered = Ordered()
        self._layout = layout
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

    def _put(
        self, order: Any, blocks: int, size: int, now: float, out: bool, urgent: bool = False
    ) -> Copy:
        """Queue a copy of so many `blocks` with `size` bytes together, and return it."""
        copy = self.link.put(order, blocks, size, now, out=out, urgent=urgent)
        if urgent:
            self._urgent_until = copy.ends
        if out:
            self._ordered.saved += blocks
        else:
            self._ordered.loaded += blocks
        return copy


class SwapCopies(Copies):
    """Carries out the `SwapOrders` of Caesura's connector.

    It copies whole blocks, so that a block takes the same bytes whichever group has it.
    """

    def __init__(
        self,
        machine: Machine,
        layout: Layout,
        policy: Policy,
        live: dict[str, Live],
        port: EngineState,
    ) -> None:
        super().__init__(machine, layout, policy, live)
        self._port = port

    def begin(self, orders: Any, now: float) -> None:
        """Submit the orders; loads go first, since requests wait for them."""
        for load in orders.loads:
            blocks = len(load.blocks)
            size = blocks * self._layout.block_bytes
            self._put(load, blocks, size, now, out=False, urgent=load.in_step)
            self._note_load(load)
        for save in orders.saves:
            blocks = len(save.blocks)
            self._put(save, blocks, blocks * self._layout.block_bytes, now, out=True)

    def _note_load(self, load: Load) -> None:
        """Count the tokens of a load; the first group is one of full attention."""
        live = self._live.get(load.request_id)
        request = None if live is None else self._port.request(load.request_id)
        if live is None or request is None:
            return
        loaded, size = set(load.blocks), self._layout.attention_tokens
        computed = computed_tokens(request)  # a whole request is loaded up to there
        first = self._port.blocks_of(load.request_id)[: -(-computed // size)]
        begins = [at * size for at, block in enumerate(ids_of(first)) if block in loaded]
        live.result.loaded_tokens += sum(min(size, computed - begin) for begin in begins)

    def report(self, now: float) -> KVConnectorOutput:
        """Return finished saves by job, and loads by request once their last part is done."""
        received: list[str] = []
        report = SwapReport()
        done = self.link.take_done(now)
        for copy in done:
            traffic = report.out if copy.out else report.into
            traffic.bytes += copy.blocks * self._layout.planned_bytes
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


class OffloadCopies(Copies):
    """Carries out the jobs of vLLM's `OffloadingConnector`."""

    def __init__(
        self, machine: Machine, layout: Layout, policy: Policy, live: dict[str, Live]
    ) -> None:
        super().__init__(machine, layout, policy, live)
        self._unsubmitted: dict[int, Any] = {}
        self._under_way: dict[int, Copy] = {}
        self._flushed_at = 0.0

    def begin(self, orders: Any, now: float) -> None:
        """Submit the deferred stores and those to flush, then the loads."""
        flush = sorted(orders.jobs_to_flush or ())
        for job in flush:
            if job in orders.store_jobs:
                self._unsubmitted[job] = orders.store_jobs.pop(job)
        for job, entry in self._unsubmitted.items():
            self._submit(job, entry.src_spec.group_sizes, now, out=True)
        for job, entry in orders.load_jobs.items():
            blocks = entry.dst_spec.group_sizes
            self._submit(job, blocks, now, out=False, request_id=entry.req_id)
            live = self._live.get(entry.req_id)
            if live is not None:
                # The first group is one of full attention.
                live.result.loaded_tokens += blocks[0] * self._layout.attention_tokens
        self._unsubmitted = dict(orders.store_jobs)
        ends = [self._under_way[job].ends for job in flush if job in self._under_way]
        self._flushed_at = max(ends, default=0.0)

    def _submit(
        self, job: int, blocks: Sequence[int], now: float, out: bool, request_id: str = ""
    ) -> None:
        sizes = self._layout.group_bytes
        size = sum(some * each for some, each in zip(blocks, sizes, strict=True))
        self._under_way[job] = self._put((job, request_id), sum(blocks), size, now, out)

    def held_until(self, now: float) -> float:
        """Return when the stores that the step waits for are done."""
        return max(now, self._flushed_at)

    def report(self, now: float) -> KVConnectorOutput:
        """Return the finished jobs, and the requests whose load is done."""
        received: list[str] = []
        report = OffloadingWorkerMetadata()
        for copy in self.link.take_done(now):
            job, request_id = copy.order
            del self._under_way[job]
            report.mark_completed(job)
            if not copy.out:
                received.append(request_id)
        # A list replaces the set, whose order would differ from run to run.
        return KVConnectorOutput(
            finished_recving=received,
            kv_connector_worker_meta=report if report.completed_jobs else None,
        )
