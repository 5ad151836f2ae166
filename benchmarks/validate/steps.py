"""The steps of a run, as the engine's process saw them, and what they say of its cost.

The rows lie in a file that both processes map. `time.perf_counter` is the system's monotonic clock
on Linux, so that moments of the two processes compare.
"""

import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from math import log2
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np
from vllm.v1.core.sched.output import SchedulerOutput

from caesura.intercept.kv.costs import CostModel
from caesura.scheduler.calibration import Step, fit
from caesura.scheduler.vllm import CaesuraScheduler

MOST_STEPS = 1 << 16
BANDS = 4
"""Steps whose sizes differ by less than a quarter of an octave are averaged before the fit."""


class Row(NamedTuple):
    """A step: when it began and ended, and its query tokens and tokens of context.

    `goes_on`: a request runs, so that the next step begins at once.
    """

    began: float
    ended: float
    tokens: float
    context: float
    goes_on: float


class RecordingScheduler(CaesuraScheduler):
    """Caesura's scheduler, with every step written down."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        path = self.vllm_config.additional_config["benchmark"]["ledger"]
        shape = (MOST_STEPS, len(Row._fields))
        self._recorded = np.memmap(path, dtype=np.float64, mode="r+", shape=shape)
        self._record_index = 0
        self._record_began = 0.0
        self._record_context = 0

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        self._record_began = time.perf_counter()
        output = super().schedule(*args, **kwargs)
        # As the engine's own samples count it: the context after the step.
        self._record_context = sum(
            self.requests[request_id].num_computed_tokens
            for request_id in output.num_scheduled_tokens
        )
        return output

    def update_from_output(self, scheduler_output: SchedulerOutput, runner_output: Any) -> Any:
        outputs = super().update_from_output(scheduler_output, runner_output)
        tokens = scheduler_output.total_num_scheduled_tokens
        if tokens and self._record_index < MOST_STEPS:
            self._recorded[self._record_index] = Row(
                self._record_began,
                time.perf_counter(),
                tokens,
                self._record_context,
                bool(self.running),
            )
            self._record_index += 1
        return outputs


def new_rows(path: Path) -> Path:
    """Make the file, empty and sparse."""
    with path.open("wb") as file:
        file.truncate(MOST_STEPS * len(Row._fields) * np.dtype(np.float64).itemsize)
    return path


def read_rows(path: Path) -> list[Row]:
    """Return the steps so far."""
    table = np.fromfile(path).reshape(MOST_STEPS, len(Row._fields))
    return [Row(*row) for row in table[table[:, 0] > 0].tolist()]


@dataclass(frozen=True, slots=True)
class RunCost:
    """What the steps of a run cost.

    `cost` is the fitted model of their periods, `scale` the factor that made its sum theirs, and
    `error` its mean relative error, step by step; `gap` the mean seconds between two steps of
    which one follows the other at once, which the periods include.
    """

    cost: CostModel
    scale: float
    error: float
    gap: float


def run_cost(rows: list[Row]) -> RunCost:
    """Fit the steps of a run; raises `ValueError` for too few.

    What counts for a queue is the mean of a noisy step, not its median. So similar steps are
    averaged, and the model is scaled such that all steps together take what they took.
    """
    gaps = [max(0.0, after.began - row.ended) for row, after in pairwise(rows) if row.goes_on]
    gap = fmean(gaps) if gaps else 0.0
    steps = [(int(row.tokens), int(row.context), row.ended - row.began + gap) for row in rows]
    fitted, _ = fit(_averages(steps))
    total = sum(seconds for *_, seconds in steps)
    scale = total / sum(fitted.step_seconds(tokens, context) for tokens, context, _ in steps)
    cost = replace(
        fitted,
        base=fitted.base * scale,
        per_token=fitted.per_token * scale,
        per_token_beyond=fitted.per_token_beyond * scale,
        per_context=fitted.per_context * scale,
    )
    error = fmean(abs(cost.step_seconds(t, c) / seconds - 1) for t, c, seconds in steps)
    return RunCost(cost, scale, error, gap)


def delays(rows: list[Row], alone: list[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Yield, of requests served alone, the seconds on the way to the engine and back.

    `alone` holds when each was sent and when its first token came; that is decoded in its first
    step.
    """
    for sent, first in alone:
        step = next(row for row in rows if row.began >= sent)
        yield step.began - sent, first - step.ended


def overhead(rows: list[Row], alone: list[tuple[float, float]]) -> float:
    """Return the median seconds that a segment spends outside of the engine, both ways."""
    return median(there + back for there, back in delays(rows, alone))


def _averages(steps: list[Step]) -> Iterator[Step]:
    bands: dict[tuple[int, int], list[Step]] = defaultdict(list)
    for step in steps:
        bands[round(BANDS * log2(step[0])), round(BANDS * log2(1 + step[1]))].append(step)
    for band in bands.values():
        if len(band) > 1:
            tokens, context, seconds = (fmean(column) for column in zip(*band, strict=True))
            yield round(tokens), round(context), seconds
