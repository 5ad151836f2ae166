"""Models that learn lengths from prompts: their interface, and a linear one on hashed n-grams.

The linear model is the baseline that learned predictors must beat. Words are hashed, so that a
model holds no text of a prompt.
"""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import log1p, sqrt
from pathlib import Path
from typing import Any, Protocol
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from caesura.scheduler.prompt_lengths.objectives import Array

Loss = Callable[[Array], tuple[float, Array]]
"""Returns the loss of outputs (n, width), and its gradient of the same shape."""


class Learner(Protocol):
    """A model with `width` outputs. Prompts are prepared once and then read many times."""

    @property
    def kind(self) -> str:
        """Return the name by which a saved model is loaded."""
        ...

    def prepare(self, prompt: str) -> Any:
        """Return the model's input for a prompt."""
        ...

    def start(self, outputs: Array) -> None:
        """Set the outputs (width,) that every prompt gets before the model has learned."""
        ...

    def outputs(self, inputs: Sequence[Any]) -> Array:
        """Return the outputs (n, width) for prepared prompts."""
        ...

    def learn(self, inputs: Sequence[Any], loss: Loss, rate: float) -> float:
        """Take one step down the gradient at a learning rate, and return the loss before it."""
        ...

    def freeze(self) -> None:
        """Learn only the head from now on, if the model has one (SSJF, second phase)."""
        ...

    def state(self) -> Any:
        """Return a copy of the weights."""
        ...

    def restore(self, state: Any) -> None:
        """Set the weights that `state` returned."""
        ...

    def save(self, folder: Path) -> None:
        """Write the weights into a folder that exists."""
        ...


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


BUCKETS = 2**15
"""The number of weights of the linear model, for each output."""

NUMBERS = 8
"""The first buckets, which hold measures of the prompt instead of words."""

MAX_CHARACTERS = 4096
"""The length of a prompt's end that is read: about 512 tokens' (SSJF, section 3.2), or more."""

MAX_WORDS = 1024
_WORD = re.compile(r"\w+|[^\w\s]")


def words_of(prompt: str) -> list[str]:
    """Return the last words and signs of a prompt, in lower case; at most `MAX_WORDS`."""
    return _WORD.findall(prompt[-MAX_CHARACTERS:].lower())[-MAX_WORDS:]


def word_ids(prompt: str, size: int, most: int) -> list[int]:
    """Return hashes in [1, size) of the last `most` words of a prompt."""
    return [1 + _hash(word) % (size - 1) for word in words_of(prompt)[-most:]]


def features_of(prompt: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the buckets of a prompt's words and pairs of words, ascending, and their values.

    A word's value is the root of its count, and all words together have the norm 1. The first
    buckets hold a constant and the sizes of the prompt.
    """
    words = words_of(prompt)
    terms = words + [f"{first} {second}" for first, second in pairwise(words)]
    begin = [f"^{word}" for word in words[:3]]
    hashes = [NUMBERS + _hash(term) % (BUCKETS - NUMBERS) for term in terms + begin]
    buckets, counts = np.unique(np.array(hashes, dtype=np.int64), return_counts=True)
    values = np.sqrt(counts)
    values /= max(1.0, sqrt(float(counts.sum())))
    return (
        np.concatenate([np.arange(NUMBERS), buckets]),
        np.concatenate([_numbers(prompt, words), values]),
    )


def _numbers(prompt: str, words: list[str]) -> NDArray[np.float64]:
    """Return `NUMBERS` measures of a prompt, each of about 0 to 1."""
    return np.array(
        [
            1.0,
            log1p(len(prompt)) / 10,
            log1p(len(words)) / 10,
            log1p(prompt.count("\n")) / 5,
            log1p(sum(word.isdigit() for word in words)) / 5,
            log1p(prompt.count("?")) / 3,
            log1p(prompt.count("`")) / 5,
            float(prompt.rstrip().endswith("?")),
        ]
    )


def _hash(term: str) -> int:
    return crc32(term.encode(errors="replace"))  # a cut text may hold half a character
