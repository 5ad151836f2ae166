"""A run over time, row by row: requests and blocks by state, and the work done."""

from dataclasses import dataclass

from vllm.v1.core.sched.scheduler import Scheduler

from caesura.scheduler.vllm.engine.scheduler import PausingScheduler
from caesura.simulator.engine.check import port_of
from caesura.simulator.results import TIMELINE

MAX_ROWS = 2000
FIRST_INTERVAL = 0.25
"""The first interval between samples in seconds; it doubles at `MAX_ROWS` rows."""

SUMMED = frozenset(
    (
        "seconds",
        "decode_tokens",
        "prefill_tokens",
        "recompute_tokens",
        "saved_blocks",
        "loaded_blocks",
    )
)
"""The columns of the timeline that are sums over an interval; the others are levels."""


@dataclass(slots=True)
class Levels:
    """The numbers of requests and of used blocks by state; free blocks are cached or empty.

    Blocks that several paused requests share count as blocks of running requests.
    """

    running: int = 0
    queued: int = 0
    paused: int = 0
    used: int = 0
    paused_blocks: int = 0
    queued_blocks: int = 0


class Gauge:
    """Reads the levels of a scheduler."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._port = port_of(scheduler)
        ours = isinstance(scheduler, PausingScheduler)
        self._manager = scheduler.parts.manager if ours else None
        self.blocks = self._port.blocks.total

    def read(self, whose: bool) -> Levels:
        """Return the present levels; `whose`: always with the blocks of paused requests.

        Otherwise these blocks are counted only if requests queue.
        """
        running, queued, paused = self._port.levels()
        levels = Levels(
            running=running,
            queued=queued,
            paused=paused,
            used=self.blocks - self._port.blocks.free(),
        )
        if self._manager is not None and (whose or levels.queued):
            paused_kvs = self._manager.paused_kvs
            levels.queued_blocks = sum([one.resident for one in paused_kvs.returned.values()])
            levels.paused_blocks = paused_kvs.resident - levels.queued_blocks
        return levels

    @property
    def hosted(self) -> int:
        """Return the number of used blocks of host memory."""
        planner = self._manager.planner if self._manager is not None else None
        return planner.store.used if planner is not None else 0


class Timeline:
    """A row for each interval; intervals grow to keep the rows below `MAX_ROWS`."""

    def __init__(self) -> None:
        self._interval = FIRST_INTERVAL
        self._next = FIRST_INTERVAL
        self._sums = dict.fromkeys(SUMMED, 0.0)
        self._rows: list[dict[str, float]] = []

    def add(self, **sums: float) -> None:
        """Add to the sums of the current row."""
        for name, value in sums.items():
            self._sums[name] += value

    def due(self, now: float) -> bool:
        """Return whether a row is due."""
        return now >= self._next

    def reaches(self, now: float) -> bool:
        """Return whether the rows cover all time up to `now`."""
        return bool(self._rows) and self._rows[-1]["at"] >= now

    def sample(self, now: float, levels: Levels, hosted: int, blocks: int) -> None:
        """Add a row: the sums since the last row, and the present levels."""
        in_batch = levels.used - levels.paused_blocks - levels.queued_blocks
        self._rows.append(
            {
                "at": now,
                **self._sums,
                "running": levels.running,
                "queued": levels.queued,
                "paused": levels.paused,
                "running_blocks": in_batch,
                "paused_blocks": levels.paused_blocks,
                "queued_blocks": levels.queued_blocks,
                "free_blocks": blocks - levels.used,
                "host_blocks": hosted,
            }
        )
        self._sums = dict.fromkeys(SUMMED, 0.0)
        if len(self._rows) >= MAX_ROWS:
            self._thin_out()
        self._next = (now // self._interval + 1) * self._interval

    def _thin_out(self) -> None:
        """Merge every two rows into one."""
        self._interval *= 2
        pairs = zip(self._rows[::2], self._rows[1::2], strict=True)
        self._rows = [
            {name: value + (first[name] if name in SUMMED else 0) for name, value in last.items()}
            for first, last in pairs
        ]

    def columns(self) -> dict[str, list[float]]:
        """Return the timeline by columns."""
        return {name: [row[name] for row in self._rows] for name in TIMELINE}
