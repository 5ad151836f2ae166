"""The interface of models that learn lengths from prompts."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

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
