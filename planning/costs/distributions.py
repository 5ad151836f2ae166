"""Distributions of output lengths, drawn from by levels in [0, 1)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

MIN_ROWS = 40
"""The fewest observed lengths of a task, or of a region of prompt lengths, to count alone."""

MAX_REGIONS = 4
"""Regions of prompt lengths of a task, each with the same number of observed lengths."""


class Observed(NamedTuple):
    """An observed output of `tokens` tokens.

    `task` and `prompt_tokens` are empty and 0 if they are unknown. `cut`: the output ended at its
    limit, so that it would have been at least as long.
    """

    tokens: int
    task: str = ""
    prompt_tokens: int = 0
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Empirical:
    """A distribution: ascending `lengths` (n,) in tokens, and their `cumulative` probability (n,).

    Raises `ValueError` if it is empty, or if its numbers are no distribution.
    """

    lengths: Array
    cumulative: Array

    def __post_init__(self) -> None:
        steps = np.diff(self.cumulative, prepend=0.0)
        if not len(self.lengths) or (steps < 0).any() or not np.isfinite(self.cumulative).all():
            raise ValueError("a distribution of lengths needs lengths with probabilities >= 0")

    def at(self, levels: Array) -> Array:
        """Return the lengths at `levels` in [0, 1): the inverse of the cumulative probability."""
        places = np.searchsorted(self.cumulative, levels * self.cumulative[-1], side="right")
        return np.asarray(self.lengths[np.minimum(places, len(self.lengths) - 1)])

    @property
    def mean(self) -> float:
        """Return the expected tokens."""
        weights = np.diff(self.cumulative, prepend=0.0)
        return float((weights * self.lengths).sum() / self.cumulative[-1])


def weighted(pairs: Sequence[tuple[float, float]]) -> Empirical:
    """Return the distribution of (length, probability) pairs; probabilities are normalised.

    Raises `ValueError` without a positive probability, and for a negative one.
    """
    lengths, weights = np.array(sorted(pairs), np.float64).reshape(-1, 2).T
    if (weights < 0).any() or not weights.sum() > 0:
        raise ValueError("probabilities must be >= 0, and at least one above 0")
    return Empirical(lengths, np.cumsum(weights) / weights.sum())


def observed(rows: Sequence[Observed]) -> Empirical:
    """Return the distribution of observed lengths, some of which were cut by a limit.

    It is the product-limit estimate (Kaplan and Meier, 1958): an output that was cut counts as
    longer than its length, not as ended there. What no output shows the end of has the largest
    length. Raises `ValueError` without rows.
    """
    tokens = np.array([row.tokens for row in rows], np.float64)
    ended = np.array([not row.cut for row in rows])
    lengths, group = np.unique(tokens, return_inverse=True)
    ends = np.bincount(group, weights=ended, minlength=len(lengths))
    at_risk = len(tokens) - np.concatenate(([0.0], np.cumsum(np.bincount(group))[:-1]))
    left = np.cumprod(1 - ends / np.maximum(at_risk, 1))
    cumulative = 1 - left
    if len(cumulative):
        cumulative[-1] = 1.0
    return Empirical(lengths, cumulative)


@dataclass(frozen=True, slots=True)
class Regions:
    """Distributions by the prompt's length: `parts[i]` is for at most `edges[i]` prompt tokens.

    `parts` has one element more than `edges`, for all longer prompts.
    """

    edges: Array
    parts: tuple[Empirical, ...]

    def at(self, prompt_tokens: Array, levels: Array) -> Array:
        """Return the lengths (n,) at `levels` (n,) for prompts of `prompt_tokens` (n,)."""
        region = np.searchsorted(self.edges, prompt_tokens, side="left")
        found = np.empty(len(levels))
        for number, part in enumerate(self.parts):
            inside = region == number
            found[inside] = part.at(levels[inside])
        return found


@dataclass(frozen=True, slots=True)
class Conditioned:
    """Distributions by task and by region of prompt lengths; `otherwise` is for unknown tasks."""

    otherwise: Regions
    tasks: Mapping[str, Regions] = field(default_factory=dict)

    def at(self, tasks: Sequence[str], prompt_tokens: Array, levels: Array) -> Array:
        """Return the lengths (n,) of n requests at `levels` (n,)."""
        found = np.empty(len(levels))
        names = np.array(tasks, dtype=object)
        for name in dict.fromkeys(tasks):
            inside = names == name
            part = self.tasks.get(name, self.otherwise)
            found[inside] = part.at(prompt_tokens[inside], levels[inside])
        return found


def alone(distribution: Empirical) -> Conditioned:
    """Return the same distribution for every request."""
    return Conditioned(Regions(np.empty(0), (distribution,)))


def conditioned(rows: Sequence[Observed]) -> Conditioned:
    """Return the distributions of the tasks with at least `MIN_ROWS` rows, and that of all rows.

    Each has up to `MAX_REGIONS` regions of prompt lengths of at least `MIN_ROWS` rows, if the rows
    tell their prompts' lengths. Raises `ValueError` without rows.
    """
    by_task: dict[str, list[Observed]] = {}
    for row in rows:
        by_task.setdefault(row.task, []).append(row)
    tasks = {task: _regions(own) for task, own in by_task.items() if task and len(own) >= MIN_ROWS}
    return Conditioned(_regions(rows), tasks)


def _regions(rows: Sequence[Observed]) -> Regions:
    prompts = np.array([row.prompt_tokens for row in rows], np.float64)
    count = min(MAX_REGIONS, len(rows) // MIN_ROWS) if (prompts > 0).all() else 1
    levels = np.arange(1, max(1, count)) / max(1, count)
    edges = np.unique(np.quantile(prompts, levels)) if len(levels) else np.empty(0)
    region = np.searchsorted(edges, prompts, side="left")
    kept, parts = [], []
    for number in range(len(edges) + 1):
        own = [row for row, place in zip(rows, region, strict=True) if place == number]
        if own:
            parts.append(observed(own))
            kept.append(edges[number] if number < len(edges) else np.inf)
    if not parts:
        raise ValueError("there is no observed length")
    return Regions(np.array(kept[:-1]), tuple(parts))
