"""What a predictor of lengths is trained for, and what its outputs then say in tokens.

A model gives `width` outputs for a prompt. An objective compares them with the tokens, as a loss
with its gradient. The gradients are written out, so that models with and without automatic
differentiation share them.

A `Spread` turns the outputs into the likeliest length and equally likely quantiles. The outputs of
regressions and rankings are calibrated on the choose part: its lengths by bands of the output give
the quantiles. Classes bring their own distribution.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

CLASS_QUANTILES = (0.25, 0.5, 0.75, 0.99)
"""Percentiles that bound SSJF's five classes (section 3.2: categories of percentile values)."""

BINS = 50
BIN_TOKENS = 10
"""LAMPS' bins (section 4): 50 of 10 tokens each. The last one is open here."""

MARGIN = 0.2
MIN_RATIO = 1.2
"""Pairs whose lengths differ by less than this factor have no order in the margin loss (PARS)."""


class Objective(Protocol):
    """The loss of a model's outputs."""

    @property
    def width(self) -> int:
        """Return the number of outputs."""
        ...

    def start(self, tokens: Array) -> Array:
        """Return the best outputs (width,) that are the same for all prompts."""
        ...

    def loss(self, outputs: Array, tokens: Array) -> tuple[float, Array]:
        """Return the mean loss and its gradient; outputs are (n, width), tokens (n,)."""
        ...


@dataclass(frozen=True, slots=True)
class Regression:
    """Regression of tokens / `scale`: L1 loss, or MSE if `squared` (SSJF, option 1)."""

    scale: float
    squared: bool
    width: int = 1

    def start(self, tokens: Array) -> Array:
        """Return the mean for squares, and the median for L1."""
        middle = tokens.mean() if self.squared else np.median(tokens)
        return np.array([middle / self.scale])

    def loss(self, outputs: Array, tokens: Array) -> tuple[float, Array]:
        """Return the mean loss and its gradient."""
        error = outputs[:, 0] - tokens / self.scale
        if self.squared:
            return float(np.mean(error**2)), (2 * error / len(error))[:, None]
        return float(np.mean(np.abs(error))), (np.sign(error) / len(error))[:, None]


@dataclass(frozen=True, slots=True)
class Classes:
    """Cross-entropy of classes: SSJF's five (option 2), or LAMPS' 50 bins.

    `edges` are the first tokens of each class but the first, ascending.
    """

    edges: tuple[float, ...]

    @property
    def width(self) -> int:
        """Return the number of classes."""
        return len(self.edges) + 1

    def start(self, tokens: Array) -> Array:
        """Return the logarithms of the classes' shares, each counted half a time more."""
        counts = np.bincount(classes_of(tokens, self.edges), minlength=self.width) + 0.5
        shares: Array = np.log(counts / counts.sum())
        return shares

    def loss(self, outputs: Array, tokens: Array) -> tuple[float, Array]:
        """Return the mean loss and its gradient."""
        rows = np.arange(len(tokens))
        truth = classes_of(tokens, self.edges)
        chances = softmax(outputs)
        loss = -np.log(np.maximum(chances[rows, truth], 1e-12)).mean()
        chances[rows, truth] -= 1
        return float(loss), chances / len(rows)


@dataclass(frozen=True, slots=True)
class ListMle:
    """The likelihood of the true order, longest first (ListMLE; used for lengths by vllm-ltr)."""

    width: int = 1

    def start(self, tokens: Array) -> Array:
        """Return 0: a rank has no level."""
        return np.zeros(1)

    def loss(self, outputs: Array, tokens: Array) -> tuple[float, Array]:
        """Return the loss of the batch's order per item, and its gradient.

        The loss is the sum over ranks i of log(sum of exp(s_j) for j >= i) - s_i.
        """
        order = np.argsort(-tokens, kind="stable")
        scores = outputs[order, 0]
        shifted = np.exp(scores - scores.max())
        rest = np.cumsum(shifted[::-1])[::-1]
        loss = float(np.mean(np.log(rest) + scores.max() - scores))
        by_rank = shifted * np.cumsum(1 / rest) - 1
        gradient = np.empty_like(outputs)
        gradient[order, 0] = by_rank / len(order)
        return loss, gradient


@dataclass(frozen=True, slots=True)
class MarginRank:
    """A margin between the scores of each pair whose lengths clearly differ (PARS)."""

    width: int = 1

    def start(self, tokens: Array) -> Array:
        """Return 0: a rank has no level."""
        return np.zeros(1)

    def loss(self, outputs: Array, tokens: Array) -> tuple[float, Array]:
        """Return the mean hinge loss of the pairs and its gradient."""
        scores = outputs[:, 0]
        longer = (tokens[:, None] + 1) > MIN_RATIO * (tokens[None, :] + 1)
        short = np.where(longer, MARGIN - (scores[:, None] - scores[None, :]), 0.0)
        wrong = (short > 0).astype(np.float64)
        pairs = max(1.0, float(longer.sum()))
        gradient = (wrong.sum(axis=0) - wrong.sum(axis=1)) / pairs
        return float(np.maximum(short, 0).sum() / pairs), gradient[:, None]


OBJECTIVES = ("l1", "mse", "classes", "bins", "listmle", "margin")


def make_objective(name: str, tokens: Array) -> Objective:
    """Return the objective of that name for the tokens of the training part.

    Raises `ValueError` for an unknown name.
    """
    if name in ("l1", "mse"):
        return Regression(max(1.0, float(tokens.mean())), name == "mse")
    if name == "classes":
        return Classes(class_edges(tokens))
    if name == "bins":
        return Classes(tuple(float(BIN_TOKENS * index) for index in range(1, BINS)))
    if name in ("listmle", "margin"):
        return ListMle() if name == "listmle" else MarginRank()
    raise ValueError(f"the objective must be one of {', '.join(OBJECTIVES)}, got {name!r}")


def class_edges(tokens: Array) -> tuple[float, ...]:
    """Return the bounds of SSJF's five classes: percentiles of the training part, ascending."""
    return tuple(float(edge) for edge in np.quantile(tokens, CLASS_QUANTILES))


def classes_of(tokens: Array, edges: tuple[float, ...]) -> NDArray[np.int64]:
    """Return the class of each length, from 0."""
    classes: NDArray[np.int64] = np.searchsorted(np.asarray(edges), tokens, side="right")
    return classes


def softmax(outputs: Array) -> Array:
    """Return the chances of each row's classes."""
    raised: Array = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    chances: Array = raised / raised.sum(axis=1, keepdims=True)
    return chances


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
