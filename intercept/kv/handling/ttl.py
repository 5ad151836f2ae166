"""Time to live: keep a paused KV cache for a time that depends on its tool, then discard it.

Agent serving systems such as Continuum pin the KV cache of a tool call for a time to live. Here
that time, tau, is the one of greatest value. A tool that returns before tau saves the
recomputation. The memory is held until the tool returns or tau has passed.

    value(tau) = P(T < tau) · (block-seconds of recomputing) - E[min(T, tau)] · blocks

Divided by the blocks, the value is linear in the ratio (recomputing : blocks). So a tool's best tau
is a step function of that ratio: the upper hull of the lines, computed once per tool.
"""

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from math import exp, inf
from typing import NamedTuple

from caesura.intercept.kv.handling.taking import oldest_largest_first
from caesura.intercept.kv.pause_durations import Durations
from caesura.intercept.kv.views import Decision, PausedKVView, StepView
from caesura.intercept.kv.waste import prices

MAX_MEANS = 3.0
"""The largest tau as a multiple of the mean pause, unless a longer pause was observed."""


class BestTime(NamedTuple):
    """The best tau by ratio: `times[i]` seconds from a ratio of `ratios[i]` on."""

    ratios: tuple[float, ...]
    times: tuple[float, ...]

    def at(self, ratio: float) -> float:
        """Return the best tau in seconds for `ratio`, in block-seconds of recomputing per block."""
        return self.times[bisect_right(self.ratios, ratio) - 1]


@lru_cache(maxsize=256)
def best_times(durations: Durations) -> BestTime:
    """Return the best tau for every ratio; candidates are 0, all observed pauses, and one more."""
    lines = [(0.0, 0.0, 0.0), *_lines(durations)]
    hull: list[tuple[float, float, float]] = []
    starts: list[float] = []
    for line in lines:  # slopes ascend; each line is the highest from `start` on
        start = 0.0
        while hull:
            gain = line[0] - hull[-1][0]
            start = (hull[-1][1] - line[1]) / gain if gain > 0 else inf
            if start > starts[-1]:
                break
            hull.pop()
            starts.pop()
            start = 0.0
        if start < inf:
            hull.append(line)
            starts.append(start)
    return BestTime(tuple(starts), tuple(line[2] for line in hull))


def _lines(durations: Durations) -> list[tuple[float, float, float]]:
    """Return (P(T <= tau), -E[min(T, tau)], tau) for each candidate tau."""
    taus, tail = list(durations.sample), durations.tail_mean
    if not taus or taus[-1] < MAX_MEANS * tail:
        taus.append(MAX_MEANS * tail)
    lines, shorter_seconds = [], 0.0
    whole = durations.count + durations.prior_weight
    for index, tau in enumerate(taus):
        held = shorter_seconds + (durations.count - index) * tau
        held += durations.prior_weight * tail * (1 - exp(-tau / tail))
        lines.append((1 - durations.survival(tau), -held / whole, tau))
        shorter_seconds += tau
    return lines


class TimeToLive:
    """Preserves until a pause has lasted longer than its time to live, then discards."""

    name = "ttl"
    write_behind = False
    every_step = True

    def decide(self, paused: Sequence[PausedKVView], step: StepView) -> list[Decision]:
        """Return a discard for each request whose time to live is over."""
        decisions = []
        by_tool: dict[int, BestTime] = {}  # many requests wait for the same tool
        for one in paused:
            if one.resident and not one.returned:
                tool = id(one.durations)
                best = by_tool.get(tool) or by_tool.setdefault(tool, best_times(one.durations))
                price = prices(one, step)
                if one.elapsed > best.at(price.discard / one.resident):
                    decisions.append(Decision(one.key, "discard"))
        return decisions

    def victims(
        self, paused: Sequence[PausedKVView], step: StepView, needed: int, forced: bool
    ) -> list[tuple[str, int]]:
        """Return the blocks to release, by elapsed time x context, largest first."""
        return oldest_largest_first(paused, needed, forced)
