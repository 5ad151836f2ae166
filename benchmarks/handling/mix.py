"""InferCept's mix of six tools, as `caesura.simulator.workload` draws it, scaled to a model."""

import random

from benchmarks.handling.workload import Segment
from caesura.simulator.workload.draw import Shape
from caesura.simulator.workload.papers import INFERCEPT_TOOLS as TABLE
from caesura.simulator.workload.papers import Mix as Sessions

__all__ = ["TABLE", "Mix"]


class Mix:
    """Draws sessions; every six in a row are one of each tool, in random order."""

    def __init__(self, token_scale: float, pause_scale: float, context_tokens: int) -> None:
        shape = Shape(tokens=token_scale, pause=pause_scale, context=context_tokens)
        self._draw = Sessions(list(TABLE), shape, balanced=True)

    def draw(self, rng: random.Random) -> tuple[str, list[Segment]]:
        """Draw the next session; one that could not even make a call in the context is redrawn."""
        return self._draw(rng)
