"""Messages between the connector's two sides, in the scheduler and in a worker."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorWorkerMetadata,
)


@dataclass(slots=True)
class Save:
    """An order to copy device blocks to host slots, pairwise; blocks stay until confirmation."""

    job: int
    blocks: list[int]
    slots: list[int]


@dataclass(slots=True)
class Load:
    """An order to copy host slots to device blocks, pairwise, for a request.

    With `in_step` the request computes in this step, so each layer waits for its own part.
    Otherwise vLLM schedules the request after the worker has reported it as received. The worker
    reports it when the piece marked `last` and all earlier pieces are done. The last piece is
    empty if the rest was cancelled.
    """

    request_id: str
    blocks: list[int]
    slots: list[int]
    in_step: bool
    last: bool


@dataclass(slots=True)
class SwapOrders(KVConnectorMetadata):
    """The copies of one step for a worker; loads go first, since requests wait for them."""

    loads: list[Load] = field(default_factory=list)
    saves: list[Save] = field(default_factory=list)


@dataclass(slots=True)
class Traffic:
    """Bytes copied in one direction, and the time that took.

    `seconds` is the time that the copies took; `beside` is its part during a forward pass.
    """

    bytes: int = 0
    seconds: float = 0.0
    beside: float = 0.0

    def add(self, other: "Traffic") -> None:
        """Add later copies of the same worker."""
        self.bytes += other.bytes
        self.seconds += other.seconds
        self.beside += other.beside


@dataclass(slots=True)
class SwapReport(KVConnectorWorkerMetadata):
    """The copies that workers made since their last report.

    `saved` and `failed` count, per job, the workers that finished it. A job is confirmed when all
    workers have finished it. `out` and `into` are of `worker` alone; `others` are the reports of
    the other workers.
    """

    worker: int = 0
    saved: dict[int, int] = field(default_factory=dict)
    failed: dict[int, int] = field(default_factory=dict)
    out: Traffic = field(default_factory=Traffic)
    into: Traffic = field(default_factory=Traffic)
    others: list["SwapReport"] = field(default_factory=list)

    def aggregate(self, other: KVConnectorWorkerMetadata) -> "SwapReport":
        """Combine the reports of two workers of the same step, or of one worker."""
        assert isinstance(other, SwapReport)
        for mine, theirs in ((self.saved, other.saved), (self.failed, other.failed)):
            for job, workers in theirs.items():
                mine[job] = mine.get(job, 0) + workers
        if other.worker == self.worker:
            self.out.add(other.out)
            self.into.add(other.into)
            self.others += other.others
        else:
            self.others += [other, *other.others]
        return self

    def by_worker(self) -> Iterator["SwapReport"]:
        """Yield the reports of the single workers, for their traffic."""
        yield self
        yield from self.others


@dataclass(frozen=True, slots=True)
class WorkerMemory(KVConnectorHandshakeMetadata):
    """What a worker tells the scheduler at its start.

    Its rank in the engine, the blocks that fit into its host memory, and the bytes of a block in
    it. With 0 slots the worker cannot swap.
    """

    worker: int
    slots: int
    block_bytes: int
