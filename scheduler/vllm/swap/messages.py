"""Messages between the connector's two sides, in the scheduler and in a worker."""

from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
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
        """Add another worker's bytes; keep the longer times, since workers copy in parallel."""
        self.bytes += other.bytes
        self.seconds = max(self.seconds, other.seconds)
        self.beside = max(self.beside, other.beside)


@dataclass(slots=True)
class SwapReport(KVConnectorWorkerMetadata):
    """The copies that workers made since their last report.

    `saved` and `failed` count, per job, the workers that finished it. A job is confirmed when all
    workers have finished it.
    """

    saved: dict[int, int] = field(default_factory=dict)
    failed: dict[int, int] = field(default_factory=dict)
    out: Traffic = field(default_factory=Traffic)
    into: Traffic = field(default_factory=Traffic)

    def aggregate(self, other: KVConnectorWorkerMetadata) -> "SwapReport":
        """Combine the reports of two workers of the same step."""
        assert isinstance(other, SwapReport)
        for mine, theirs in ((self.saved, other.saved), (self.failed, other.failed)):
            for job, workers in theirs.items():
                mine[job] = mine.get(job, 0) + workers
        self.out.add(other.out)
        self.into.add(other.into)
        return self
