"""What the connector's two sides, in the scheduler and in a worker, tell each other."""

from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorMetadata,
    KVConnectorWorkerMetadata,
)


@dataclass(slots=True)
class Save:
    """Copy device blocks to host slots, pairwise; the blocks are kept until that is confirmed."""

    job: int
    blocks: list[int]
    slots: list[int]


@dataclass(slots=True)
class Load:
    """Copy host slots to device blocks, pairwise, for a request that comes back.

    `in_step`: the request computes in this very step, so that each layer waits for its own part.
    Otherwise the request is not scheduled before the worker has reported it as received, which it
    does when the piece that is `last` and all before it are done. A last piece may be empty: the
    rest was called off.
    """

    request_id: str
    blocks: list[int]
    slots: list[int]
    in_step: bool
    last: bool


@dataclass(slots=True)
class SwapOrders(KVConnectorMetadata):
    """What a worker is to copy in a step, in this order: loads first, since somebody waits."""

    loads: list[Load] = field(default_factory=list)
    saves: list[Save] = field(default_factory=list)


@dataclass(slots=True)
class Traffic:
    """What was copied one way: tokens are not known here, bytes are.

    `seconds` is the time that the copies took, `beside` those of them that ran beside a forward
    pass.
    """

    bytes: int = 0
    seconds: float = 0.0
    beside: float = 0.0

    def add(self, other: "Traffic") -> None:
        """Sum up; workers copy at the same time, so seconds are the longest."""
        self.bytes += other.bytes
        self.seconds = max(self.seconds, other.seconds)
        self.beside = max(self.beside, other.beside)


@dataclass(slots=True)
class SwapReport(KVConnectorWorkerMetadata):
    """What workers have done since their last report.

    `saved` and `failed` count, per job, the workers that are done with it; a job is confirmed when
    all are.
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
