"""The sums that a run measures besides its sessions.

Waste is measured in block-seconds, as memory times the time for which it was useless. It follows
InferCept's equations 1 to 3, but with what really happened.
"""

from vllm.v1.core.sched.scheduler import Scheduler

from caesura.simulator.engine.runner import Work
from caesura.simulator.engine.timeline import Gauge, Levels, Timeline
from caesura.simulator.engine.transfer.copies import Ordered, Span
from caesura.simulator.machine import LatencyModel
from caesura.simulator.results import Totals


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
