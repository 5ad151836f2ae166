"""What a predictor of lengths is trained for: losses of its outputs, with their gradients.

A model gives `width` outputs for a prompt. An objective compares them with the tokens, and a
`Spread` turns them into a length and its distribution. The gradients are written out, so that
models with and without automatic differentiation share them.
"""

from dataclasses import dataclass
from typing import Protocol

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
