"""The measurements of a simulated run, as plain data."""

from dataclasses import dataclass, field
from typing import Any

from caesura.scheduler.policy.slo import Slo


@dataclass(slots=True)
class SessionResult:
    """The result of one session; times are simulated seconds.

    `segments` has a row for each segment that began: when it was sent, when its first token came
    and when it ended; 0.0 if that has not happened. `ended` is 0.0 for a session that was cut off.
    `segment_tokens` are the tokens that each of these segments decodes.

    `preemptions` counts how often it lost its KV while it ran. When its segments were admitted,
    `cached_tokens` of their contexts needed no computation: they were kept, found in the prefix
    cache, or loaded from the host. `loaded_tokens` came from the host. `recomputed_tokens` were
    computed more than once. A sub-agent names its `parent`. The time of a parent's sub-agents is
    part of its latency, less the tools of the one that ended last.
    """

    key: str
    kind: str
    arrival: float
    decode_tokens: int
    segments: list[tuple[float, float, float]] = field(default_factory=list)
    tool_seconds: float = 0.0
    ended: float = 0.0
    preemptions: int = 0
    cached_tokens: int = 0
    loaded_tokens: int = 0
    recomputed_tokens: int = 0
    segment_tokens: list[int] = field(default_factory=list)
    parent: str = ""

    @property
    def latency(self) -> float:
        """Return the seconds from arrival to the end, without the time of its tools."""
        return self.ended - self.arrival - self.tool_seconds

    @property
    def ttft(self) -> float:
        """Return the seconds from arrival to the first token."""
        return self.segments[0][1] - self.arrival

    @property
    def normalized_latency(self) -> float:
        """Return the seconds of latency per decoded token (InferCept, section 5)."""
        return self.latency / self.decode_tokens

    def met(self, slo: Slo) -> list[bool]:
        """Return for each segment that ended whether it met the objective."""
        rows = zip(self.segments, self.segment_tokens, strict=True)
        return [slo.met(*times, tokens) for times, tokens in rows if times[2] > 0]


TIMELINE = (
    "at",
    "seconds",
    "running",
    "queued",
    "paused",
    "decode_tokens",
    "prefill_tokens",
    "recompute_tokens",
    "running_blocks",
    "paused_blocks",
    "queued_blocks",
    "free_blocks",
    "host_blocks",
    "saved_blocks",
    "loaded_blocks",
)
"""The columns of a run's timeline: each row has sums over its interval and levels at its end."""


@dataclass(slots=True)
class Totals:
    """Sums over a whole run.

    The engine spent `busy_seconds` in steps, and `stall_seconds` of these waiting for copies.
    `decode_steps` counts the steps in which a request decoded. Query tokens that had been computed
    before are `recompute_tokens`. Other query tokens are `decode_tokens` if they are the only token
    of their request in the step, and `prefill_tokens` otherwise. These two together are one less
    than the tokens of a session's context. Blocks count as saved or loaded when the copy is
    ordered.

    Waste is in block-seconds. `waste_recompute` is the memory held while it is filled again, and
    the other requests' memory for the time that this adds. `waste_preserve` is the memory of paused
    requests while a request waits in the queue. `waste_stall` is all memory while a copy delays
    the step. `used_block_seconds` is all memory in use.
    """

    seconds: float = 0.0
    busy_seconds: float = 0.0
    steps: int = 0
    decode_steps: int = 0
    decode_tokens: int = 0
    prefill_tokens: int = 0
    recompute_tokens: int = 0
    saved_blocks: int = 0
    loaded_blocks: int = 0
    preemptions: int = 0
    stall_seconds: float = 0.0
    waste_recompute: float = 0.0
    waste_preserve: float = 0.0
    waste_stall: float = 0.0
    used_block_seconds: float = 0.0
    total_block_seconds: float = 0.0


@dataclass(slots=True)
class RunResult:
    """One run: its inputs, the results of its sessions, the timeline and the sums.

    `predictions` are rows of `caesura.scheduler.records.accuracy.Accuracy`, if they were asked for.
    `wall_seconds` is the duration of the simulation itself, and the only field in which two runs
    with the same seed differ.

    With replicas, `totals` are sums over them, and means for its seconds. `replicas` has a row for
    each, with its busy seconds and its work. `load_variation` is the mean over time of the
    coefficient of variation of their requests.
    """

    policy: str
    workload: str
    machine: str
    rate: float
    seed: int
    sessions: list[SessionResult]
    totals: Totals
    timeline: dict[str, list[float]]
    records: list[dict[str, Any]]
    settings: dict[str, Any]
    wall_seconds: float = 0.0
    predictions: list[dict[str, Any]] = field(default_factory=list)
    replicas: list[dict[str, Any]] = field(default_factory=list)
    load_variation: float = 0.0
