"""From a model's outputs to tokens: the likeliest length, and equally likely quantiles.

The outputs of regressions and rankings are calibrated on the choose part: its lengths by bands of
the output give the quantiles. Classes bring their own distribution.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caesura.scheduler.prompt_lengths.objectives import (
    Array,
    Classes,
    Objective,
    Regression,
    classes_of,
    softmax,
)

Indices = NDArray[np.int64]

QUANTILES = 16
"""The number of equally likely lengths of a prediction."""

LEVELS = (np.arange(QUANTILES) + 0.5) / QUANTILES
MAX_BANDS = 16
MIN_IN_BAND = 15
"""The fewest outputs of the choose part in a band; the bands of a small part overlap."""

TOP = 0.95
"""The quantile of the training part's last class at which that class ends."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Predictions of n prompts: `tokens` (n,), and ascending `quantiles` (n, `QUANTILES`)."""

    tokens: Array
    quantiles: Array

    @property
    def means(self) -> Array:
        """Return the expected tokens (n,)."""
        means: Array = self.quantiles.mean(axis=1)
        return means


@dataclass(frozen=True, slots=True)
class Bands:
    """The map of one output: `table[i]` are the quantiles at the output `centres[i]`.

    `centres` (b,) ascend, and so do the columns of `table` (b, `QUANTILES`). The likeliest length
    is `scale` times the output, or the median where `scale` is 0.
    """

    centres: Array
    table: Array
    scale: float

    def lengths(self, outputs: Array) -> Lengths:
        """Return the predictions for outputs (n, 1)."""
        score = outputs[:, 0]
        columns = [np.interp(score, self.centres, column) for column in self.table.T]
        quantiles = np.stack(columns, axis=1)
        middle = quantiles[:, QUANTILES // 2 - 1 : QUANTILES // 2 + 1].mean(axis=1)
        point = np.maximum(0.0, score * self.scale) if self.scale else middle
        return Lengths(point, quantiles)

    def to_wire(self) -> dict[str, Any]:
        """Return plain data, which `spread_from` reads."""
        return {
            "centres": self.centres.tolist(),
            "table": self.table.tolist(),
            "scale": self.scale,
        }


@dataclass(frozen=True, slots=True)
class ClassSpread:
    """The map of classes: class i reaches from `bounds[i]` to `bounds[i + 1]`.

    `typical[i]` is the median length within it; half of its mass lies below that.
    """

    bounds: Array
    typical: Array

    def lengths(self, outputs: Array) -> Lengths:
        """Return the predictions for outputs (n, classes)."""
        chances = softmax(outputs)
        knots = np.empty(2 * len(self.typical) + 1)
        knots[0::2], knots[1::2] = self.bounds, self.typical
        halves = np.repeat(chances / 2, 2, axis=1)
        below = np.concatenate([np.zeros((len(halves), 1)), np.cumsum(halves, axis=1)], axis=1)
        quantiles = [np.interp(LEVELS, row / row[-1], knots) for row in below]
        point = self.typical[chances.argmax(axis=1)]
        return Lengths(point, np.array(quantiles).reshape(-1, QUANTILES))

    def to_wire(self) -> dict[str, Any]:
        """Return plain data, which `spread_from` reads."""
        return {"bounds": self.bounds.tolist(), "typical": self.typical.tolist()}


Spread = Bands | ClassSpread


def spread_from(wire: Mapping[str, Any], width: int) -> Spread:
    """Return the map of `width` outputs that `to_wire` wrote; raises `ValueError` for others."""
    try:
        arrays = {name: np.array(value, dtype=np.float64) for name, value in wire.items()}
        if "table" in arrays:
            bands = Bands(arrays["centres"], arrays["table"], float(wire["scale"]))
            right = bands.table.shape == (len(bands.centres), QUANTILES) and len(bands.centres)
            spread: Spread = bands
        else:
            spread = ClassSpread(arrays["bounds"], arrays["typical"])
            right = spread.typical.shape == (width,) and spread.bounds.shape == (width + 1,)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not a map from outputs to tokens: {error!r}, {wire!r:.200}") from error
    if not right or not all(np.isfinite(array).all() for array in arrays.values()):
        raise ValueError(f"a map has finite bands or classes of {width} outputs, got {wire!r:.200}")
    return spread


def fit_spread(objective: Objective, trained: Array, outputs: Array, tokens: Array) -> Spread:
    """Return the map for an objective.

    `trained` are the tokens of the training part. `outputs` (n, width) and `tokens` (n,) are those
    of the choose part.
    """
    if isinstance(objective, Classes):
        return _fit_classes(objective, trained)
    ranked = np.argsort(outputs[:, 0], kind="stable")
    bands = min(MAX_BANDS, max(1, len(ranked) // 4))
    parts = [_around(ranked, (band + 0.5) / bands, bands) for band in range(bands)]
    centres = np.array([float(np.median(outputs[part, 0])) for part in parts])
    table = np.array([np.quantile(tokens[part], LEVELS) for part in parts])
    scale = objective.scale if isinstance(objective, Regression) else 0.0
    return Bands(centres, np.maximum.accumulate(table, axis=0), scale)


def _around(ranked: Indices, share: float, bands: int) -> Indices:
    """Return the indices in the band around a share of the ranked outputs."""
    size = max(MIN_IN_BAND, -(-len(ranked) // bands))
    first = round(share * len(ranked) - size / 2)
    first = max(0, min(first, len(ranked) - size))
    return ranked[first : first + size]


def _fit_classes(objective: Classes, trained: Array) -> ClassSpread:
    """Return the classes' bounds, and the median length of the training part in each."""
    found = classes_of(trained, objective.edges)
    last = trained[found == objective.width - 1]
    top = float(np.quantile(last, TOP)) if len(last) else objective.edges[-1] + 1
    bounds = np.maximum.accumulate([0.0, *objective.edges, top])
    typical = [
        float(np.median(trained[found == index]))
        if (found == index).any()
        else float(bounds[index] + bounds[index + 1]) / 2
        for index in range(objective.width)
    ]
    return ClassSpread(bounds, np.clip(typical, bounds[:-1], bounds[1:]))
