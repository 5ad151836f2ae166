"""A linear model of the hazards of a quantity, learned online with AdaGrad.

The hazard of bin b is P(value in b | value in b or beyond) = sigmoid(l_b + sum of x_i w_ib). l_b
is the logit of the table's hazard, so that a model that has learned nothing is the table. The
weight w_ib of a feature is a curve over the bins: an interpolation between a few knots, each of
which is learned. So a word that announces the end weighs on the near bins, and a large context on
the far ones, with few weights. An observation that was cut off teaches only the bins that it
outlived.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caesura.scheduler.predict.hazard.bins import Numbers
from caesura.scheduler.predict.hazard.features import FEATURES, Features

LEARNING_RATE = 0.05
DECAY = 3e-3
"""The pull of the weights of active features towards 0, at each update."""

FIRST_SQUARES = 1.0
MIN_HAZARD = 2e-3
"""Bounds the hazards of a table, which may be 0 or 1 where it has seen few sessions."""

MAX_LOGIT = 9.0
MAX_WEIGHT = 100.0

_TYPE = np.dtype("<f4")


class HazardModel:
    """Learns the hazards of one quantity; `knots` weights per feature span the `hazards`."""

    def __init__(self, hazards: int, knots: int) -> None:
        self._basis = _basis(hazards, knots)
        knots = self._basis.shape[1]
        self._weights = np.zeros((FEATURES, knots), _TYPE)
        self._squares = np.full((FEATURES, knots), FIRST_SQUARES, _TYPE)

    def learn(self, features: Features, table: Numbers, bin_: int, whole: bool) -> None:
        """Learn a value in this bin; if not `whole`, the value is only known to reach the bin."""
        errors = self.hazards(features, table)
        errors[bin_ + 1 :] = 0
        if bin_ < len(errors):
            errors[bin_] = errors[bin_] - 1 if whole else 0
        at = features.indices
        steps = np.outer(features.values, errors @ self._basis) + DECAY * self._weights[at]
        self._squares[at] += steps * steps
        self._weights[at] -= LEARNING_RATE * steps / np.sqrt(self._squares[at])

    def hazards(self, features: Features, table: Numbers) -> Numbers:
        """Return the hazards of all bins but the last, given those of the table."""
        shares = np.clip(table, MIN_HAZARD, 1 - MIN_HAZARD)
        logits = np.log(shares / (1 - shares))
        logits = logits + self._basis @ (features.values @ self._weights[features.indices])
        hazards: Numbers = 1 / (1 + np.exp(-np.clip(logits, -MAX_LOGIT, MAX_LOGIT)))
        return hazards

    def to_wire(self) -> dict[str, Any]:
        """Return the state as plain data, which `restore` reads."""
        return {"weights": _packed(self._weights), "squares": _packed(self._squares)}

    def restore(self, wire: Mapping[str, Any]) -> None:
        """Load the data that `to_wire` wrote, or raise `ValueError` and change nothing."""
        if not isinstance(wire, Mapping):
            raise ValueError(f"a hazard model must be an object, got {wire!r:.100}")
        weights = _unpacked(wire.get("weights"), self._weights.shape)
        squares = _unpacked(wire.get("squares"), self._squares.shape)
        if np.abs(weights).max() > MAX_WEIGHT or squares.min() <= 0:
            raise ValueError(
                f"the weights of a hazard model must be within {MAX_WEIGHT:g}, and its squares"
                f" above 0, got {np.abs(weights).max():g} and {squares.min():g}"
            )
        self._weights, self._squares = weights, squares


def _basis(hazards: int, knots: int) -> NDArray[np.float32]:
    """Return the share of each knot in each hazard, of shape (hazards, knots)."""
    if knots >= hazards:
        return np.eye(hazards, dtype=_TYPE)
    places = np.linspace(0, knots - 1, hazards)
    distances = np.abs(places[:, None] - np.arange(knots))
    shares: NDArray[np.float32] = np.maximum(0, 1 - distances).astype(_TYPE)
    return shares


def _packed(array: NDArray[np.float32]) -> str:
    return base64.b64encode(array.tobytes()).decode()


def _unpacked(text: Any, shape: tuple[int, ...]) -> NDArray[np.float32]:
    try:
        data = base64.b64decode(text, validate=True)
        array = np.frombuffer(data, _TYPE).reshape(shape).copy()
    except (TypeError, ValueError, binascii.Error) as error:
        raise ValueError(f"not the numbers of a hazard model of shape {shape}: {error}") from error
    if not np.isfinite(array).all():
        raise ValueError("the numbers of a hazard model must be finite")
    return array
