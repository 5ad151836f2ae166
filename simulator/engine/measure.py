"""What a run measures besides its sessions: sums, rows over time, and how good forecasts were.

Waste is measured in block-seconds, as memory times the time for which it was useless. It follows
InferCept's equations 1 to 3, but with what really happened.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from caesura.scheduler.predict.forecast import About, Forecast
from caesura.scheduler.records import ForecastRecord
from caesura.scheduler.records.accuracy import accuracies
from caesura.scheduler.records.outcomes import (
    FEW_CALLS,
    LONG_SECONDS,
    QUANTITIES,
    Outcome,
    pairs_of,
)
from caesura.scheduler.vllm.engine.export.writer import forecast_record
from caesura.scheduler.vllm.engine.scheduler import PausingScheduler
from caesura.scheduler.vllm.engine.sessions.recorder import Recorder
from caesura.scheduler.vllm.engine.sessions.served import SessionState
from caesura.simulator.engine.check import port_of
from caesura.simulator.engine.runner import Work
from caesura.simulator.engine.transfer import Ordered, Span
from caesura.simulator.machine import LatencyModel
from caesura.simulator.results import TIMELINE, Totals
from caesura.simulator.session import Session, Workload

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
            levels.paused_blocks = paused_kvs.counts.resident - levels.queued_blocks
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


class Meter:
    """Adds up the steps, the copies and the time of a run."""

    def __init__(self, scheduler: Scheduler, latency: LatencyModel) -> None:
        self.totals = Totals()
        self._gauge = Gauge(scheduler)
        self._latency = latency
        self._timeline = Timeline()
        self._levels = Levels()

    def look(self) -> None:
        """Read the levels, which count for the time that passes next."""
        self._levels = self._gauge.read(whose=False)

    def pass_time(self, seconds: float) -> None:
        """Count `seconds` at the latest levels."""
        totals, levels = self.totals, self._levels
        totals.seconds += seconds
        totals.used_block_seconds += levels.used * seconds
        totals.total_block_seconds += self._gauge.blocks * seconds
        if levels.queued:
            totals.waste_preserve += levels.paused_blocks * seconds

    def step(self, work: Work, span: Span, began: float, plain: float) -> None:
        """Count a step that would take `plain` seconds without copies."""
        totals, seconds = self.totals, span.ends - began
        totals.steps += 1
        totals.busy_seconds += seconds
        totals.decode_steps += work.decode_tokens > 0
        totals.decode_tokens += work.decode_tokens
        prefill = work.shape.tokens - work.decode_tokens - work.again
        totals.prefill_tokens += prefill
        totals.recompute_tokens += work.again
        totals.preemptions += work.preempted
        totals.stall_seconds += span.stall
        totals.waste_stall += self._levels.used * span.stall
        if work.again:
            self._count_again(work, plain)
        self._timeline.add(
            seconds=seconds,
            decode_tokens=work.decode_tokens,
            prefill_tokens=prefill,
            recompute_tokens=work.again,
        )

    def copied(self, ordered: Ordered) -> None:
        """Count the blocks that were ordered to be copied."""
        self.totals.saved_blocks += ordered.saved
        self.totals.loaded_blocks += ordered.loaded
        self._timeline.add(saved_blocks=ordered.saved, loaded_blocks=ordered.loaded)

    def _count_again(self, work: Work, plain: float) -> None:
        """Count recomputation: its own memory for the step, others' memory for the added time."""
        own = min(work.again_blocks, self._levels.used)
        rest = work.shape_without_again
        added = plain - (self._latency.seconds(rest) if rest.tokens else 0.0)
        others = self._levels.used - own
        self.totals.waste_recompute += own * plain + others * max(0.0, added)

    def sample(self, now: float, last: bool = False) -> None:
        """Add a row to the timeline if one is due, or at the end of the run."""
        if self._timeline.due(now) or (last and not self._timeline.reaches(now)):
            levels = self._gauge.read(whose=True)
            self._timeline.sample(now, levels, self._gauge.hosted, self._gauge.blocks)

    def timeline(self) -> dict[str, list[float]]:
        """Return the timeline by columns."""
        return self._timeline.columns()


class ForecastRecorder(Recorder):
    """Keeps what was predicted of each segment when it was queued."""

    takes_forecasts = True

    def __init__(self, clock: Callable[[], float], workload: Workload) -> None:
        """Create it; `clock` returns the simulated second."""
        self._clock = clock
        self._sessions = {session.key: session for session in workload.sessions}
        self._made: list[ForecastRecord] = []

    def forecast(
        self,
        request: Request,
        session: SessionState,
        about: About,
        forecasts: Mapping[str, Forecast],
    ) -> None:
        """Keep what predictors, by their names, expect of a session that was just queued."""
        ids = request.request_id, session.session_id
        self._made.append(forecast_record(*ids, about, forecasts, self._clock()))

    def accuracies(self) -> list[dict[str, Any]]:
        """Return the accuracy of each predictor by quantity, as plain data.

        Sessions that the run cut off count too, since the workload says how they would go on.
        """
        return [each.public() for each in accuracies(self._outcomes())]

    def _outcomes(self) -> Iterator[Outcome]:
        for made in self._made:
            session = self._sessions.get(made.session)
            if session is None or made.calls >= len(session.segments):
                continue
            truth = _truth(session, made.calls)
            for quantity in QUANTITIES:
                if quantity in truth:
                    yield from pairs_of(made, quantity, truth[quantity])


def _truth(session: Session, calls: int) -> dict[str, float]:
    """Return what comes after `calls` calls, by quantity; the last segment has no pause."""
    segment, left = session.segments[calls], len(session.segments) - 1 - calls
    truth = {
        "decode_tokens": float(segment.decode_tokens),
        "calls_left": float(left),
        "ends_now": float(left == 0),
        "ends_within_3": float(left <= FEW_CALLS),
    }
    if left:
        truth["pause_seconds"] = segment.tool_seconds
        truth["long_pause"] = float(segment.tool_seconds > LONG_SECONDS)
    return truth
