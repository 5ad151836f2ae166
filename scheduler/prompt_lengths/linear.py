"""A linear model on hashed n-grams: the baseline that learned predictors must beat."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caesura.scheduler.prompt_lengths.learner import Loss
from caesura.scheduler.prompt_lengths.ngrams import BUCKETS, features_of
from caesura.scheduler.prompt_lengths.objectives import Array

WEIGHTS_FILE = "weights.safetensors"
DECAY = 1e-5
"""L2 penalty of the weights that a batch touches."""

Features = tuple[NDArray[np.int64], NDArray[np.float64]]


class Linear:
    """Outputs are sums of weights, learned by AdaGrad from batches."""

    kind = "linear"

    def __init__(self, width: int) -> None:
        self._weights = np.zeros((BUCKETS, width), dtype=np.float32)
        self._squares = np.full((BUCKETS, width), 1e-8, dtype=np.float32)

    def prepare(self, prompt: str) -> Features:
        """Return the buckets and values of a prompt."""
        return features_of(prompt)

    def start(self, outputs: Array) -> None:
        """Set the weights of the constant, which is the first bucket."""
        self._weights[0] = outputs

    def outputs(self, inputs: Sequence[Features]) -> Array:
        """Return the outputs (n, width)."""
        rows = [values @ self._weights[buckets] for buckets, values in inputs]
        return np.array(rows, dtype=np.float64).reshape(-1, self._weights.shape[1])

    def learn(self, inputs: Sequence[Features], loss: Loss, rate: float) -> float:
        """Take a step of AdaGrad, and return the loss before it."""
        lost, errors = loss(self.outputs(inputs))
        touched, where = np.unique(np.concatenate([b for b, _ in inputs]), return_inverse=True)
        values = np.concatenate([values for _, values in inputs])
        rows = np.repeat(np.arange(len(inputs)), [len(buckets) for buckets, _ in inputs])
        order = np.argsort(where, kind="stable")
        starts = np.searchsorted(where[order], np.arange(len(touched)))
        gradient = np.add.reduceat((values[:, None] * errors[rows])[order], starts, axis=0)
        gradient += DECAY * self._weights[touched]
        self._squares[touched] += gradient**2
        self._weights[touched] -= rate * gradient / np.sqrt(self._squares[touched])
        return lost

    def freeze(self) -> None:
        """Do nothing: the model is all head."""

    def state(self) -> Any:
        """Return a copy of the weights."""
        return self._weights.copy()

    def restore(self, state: Any) -> None:
        """Set the weights."""
        self._weights = state.copy()

    def save(self, folder: Path) -> None:
        """Write the weights."""
        from safetensors.numpy import save_file

        save_file({"weights": self._weights}, folder / WEIGHTS_FILE)

    @classmethod
    def load(cls, folder: Path, width: int) -> "Linear":
        """Return the saved model; raises `ValueError` if the weights have another shape."""
        from safetensors.numpy import load_file

        weights = load_file(folder / WEIGHTS_FILE)["weights"]
        if weights.shape != (BUCKETS, width):
            raise ValueError(f"weights must be {(BUCKETS, width)}, got {weights.shape}")
        model = cls(width)
        model._weights = weights
        return model
