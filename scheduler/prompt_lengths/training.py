"""Training a model of lengths: epochs over the training part, the best one by the choose part."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caesura.scheduler.prompt_lengths.learner import Learner
from caesura.scheduler.prompt_lengths.objectives import Array, Objective
from caesura.scheduler.prompt_lengths.rows import Row

BATCH_FORWARD = 64

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Plan:
    """How to train.

    `epochs` are those of the whole model, and `head_epochs` those of its head alone after them
    (SSJF's two phases). Without a better choose part for `patience` epochs a phase ends. All
    randomness comes from `seed`. Raises `ValueError` for a number that makes no sense.
    """

    epochs: int = 12
    head_epochs: int = 0
    batch: int = 32
    rate: float = 0.05
    patience: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "patience"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)!r}")
        if self.head_epochs < 0 or not self.rate > 0:
            raise ValueError(
                "head_epochs must be >= 0 and the rate positive, got"
                f" {self.head_epochs!r} and {self.rate!r}"
            )


Progress = Callable[[int, int, float, float], None]
"""Is told the step, the number of steps, the training loss and the best choose loss."""


class Examples:
    """Prepared prompts of a part, one entry for every output."""

    def __init__(self, learner: Learner, rows: Sequence[Row]) -> None:
        self.inputs: list[Any] = []
        tokens: list[int] = []
        for row in rows:
            prepared = learner.prepare(row.prompt)
            self.inputs.extend([prepared] * len(row.samples))
            tokens.extend(row.samples)
        self.tokens: Array = np.array(tokens, dtype=np.float64)

    def __len__(self) -> int:
        return len(self.inputs)

    def outputs(self, learner: Learner) -> Array:
        """Return the model's outputs (n, width)."""
        return outputs_of(learner, self.inputs)


def outputs_of(learner: Learner, inputs: Sequence[Any]) -> Array:
    """Return the outputs of prepared prompts, in batches."""
    batches = range(0, len(inputs), BATCH_FORWARD)
    return np.concatenate([learner.outputs(inputs[at : at + BATCH_FORWARD]) for at in batches])


def train(
    learner: Learner,
    objective: Objective,
    trained: Examples,
    chosen: Examples,
    plan: Plan,
    progress: Progress | None = None,
) -> int:
    """Train a model, leave it with the weights of the best epoch, and return that epoch's number.

    The best epoch has the least loss on the choose part.
    """
    random = np.random.default_rng(plan.seed)
    best, best_loss, kept = 0, _loss(learner, objective, chosen), learner.state()
    steps = -(-len(trained) // plan.batch)
    total = steps * (plan.epochs + plan.head_epochs)
    epoch = 0
    for phase, epochs in enumerate((plan.epochs, plan.head_epochs)):
        if phase == 1 and epochs:
            learner.restore(kept)
            learner.freeze()
        first = epoch
        for epoch in range(first + 1, first + epochs + 1):
            shuffled = random.permutation(len(trained))
            for step in range(steps):
                at = shuffled[step * plan.batch : (step + 1) * plan.batch]
                rate = plan.rate * (1 - ((epoch - 1) * steps + step) / total)
                lost = _step(learner, objective, trained, at, rate)
                if progress is not None:
                    progress((epoch - 1) * steps + step + 1, total, lost, best_loss)
            if (loss := _loss(learner, objective, chosen)) < best_loss:
                best, best_loss, kept = epoch, loss, learner.state()
            elif epoch - max(best, first) >= plan.patience:
                break
    learner.restore(kept)
    return best


def _step(
    learner: Learner, objective: Objective, trained: Examples, at: Indices, rate: float
) -> float:
    tokens = trained.tokens[at]
    inputs = [trained.inputs[index] for index in at]
    return learner.learn(inputs, lambda outputs: objective.loss(outputs, tokens), rate)


def _loss(learner: Learner, objective: Objective, examples: Examples) -> float:
    """Return the loss over a part, in lists of `BATCH_FORWARD` for the objectives of ranks."""
    outputs = examples.outputs(learner)
    starts = range(0, len(examples), BATCH_FORWARD)
    losses = [
        objective.loss(outputs[at : at + BATCH_FORWARD], examples.tokens[at : at + BATCH_FORWARD])
        for at in starts
    ]
    weights = [min(BATCH_FORWARD, len(examples) - at) for at in starts]
    return float(np.average([loss for loss, _ in losses], weights=weights))
