"""Conversations of several rounds with a user, whatever the lengths of a round."""

import random
from collections.abc import Callable

from caesura.simulator.session import Segment
from caesura.simulator.workload.draw import Shape, fitting, geometric

USER = "user"
"""The tool of a conversation: the user on the other side."""

Round = Callable[[random.Random], Segment]
"""Draws a round: a prompt, an output, and the user's time before the next round."""


class Conversations:
    """Draws conversations with a mean of `rounds` rounds, at least one; 1: single requests.

    A conversation whose first round does not fit the context is drawn again. Raises `ValueError` if
    none fits.
    """

    def __init__(self, kind: str, draw_round: Round, shape: Shape, rounds: float = 1.0) -> None:
        if not rounds >= 1:
            raise ValueError(f"rounds must be >= 1, got {rounds:g}")
        self._kind = kind
        self._draw_round = draw_round
        self._shape = shape
        self._rounds = rounds

    def __call__(self, rng: random.Random) -> tuple[str, list[Segment]]:
        """Return the next conversation."""
        return self._kind, fitting(lambda: self._segments(rng), self._shape, fewest=1)

    def _segments(self, rng: random.Random) -> list[Segment]:
        segments = [self._draw_round(rng) for _ in range(geometric(rng, self._rounds))]
        return [*segments[:-1], Segment(segments[-1].given_tokens, segments[-1].decode_tokens)]
