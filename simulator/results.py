"""What a simulated run has measured, as plain data."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class SessionResult:
    """What became of one session; times in simulated seconds.

    `segments` holds, for each that began: when it was sent, when its first token came and when it
    ended; 0.0 for what has not happened. `ended` is 0.0 for a session that was cut off.

    `preemptions` counts how often it lost its KV while it ran. When its segments were admitted,
    `cached_tokens` of their contexts needed no computation: they were kept, found in the prefix
    cache, or loaded from the host. `loaded_tokens` came from the host, `recomputed_tokens` were
    computed although they had been before.
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

    @property
    def latency(self) -> float:
        """Seconds from arrival to the end, less what its tools took."""
        return self.ended - self.arrival - self.tool_seconds

    @property
    def ttft(self) -> float:
        """Seconds from arrival to the first token."""
        return self.segments[0][1] - self.arrival

    @property
    def normalized_latency(self) -> float:
        """Seconds of latency per decoded token (InferCept, section 5)."""
        return self.latency / self.decode_tokens


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
"""The columns of a run's timeline: one row per sample, counts summed and levels as they were."""


@dataclass(slots=True)
class Totals:
    """Sums over a whole run.

    `busy_seconds` of the engine's time were spent in steps, `stall_seconds` of these waiting for
    copies; `decode_steps` counts the steps in which somebody decoded. Query tokens are
    `recompute_tokens` if they had been computed before, `decode_tokens` if they are all that a
    step computes of their request, `prefill_tokens` else: a session's first computations, the last
    two, are one less than the tokens of its context. Blocks count as saved or loaded when that is
    ordered.

    Waste is in block-seconds: `waste_recompute` is memory held while it is filled for a second
    time, with what others held for the time that this added; `waste_preserve` memory of paused
    requests while somebody queued; `waste_stall` all memory while a copy held up the step.
    `used_block_seconds` is all memory in use.
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
    """One run: what was run, what became of its sessions, the timeline and the sums.

    `wall_seconds` is how long the simulation itself took; it is the only field that two runs with
    the same seed differ in.
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
