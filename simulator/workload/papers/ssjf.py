"""Chats as SSJF serves them: requests of one round, or conversations.

Qiu et al., "Efficient Interactive LLM Serving with Proxy Model-based Sequence Length Prediction"
(SSJF, 2024), uses LMSYS-Chat-1M (Zheng et al., ICLR 2024) with responses of 1 to 512 tokens. That
data set's means are known: 69.5 tokens per prompt, 214.5 per response, 2.0 rounds per
conversation. Lognormal lengths, their sigmas and geometric rounds are choices made here. In SSJF
the 95th percentile of responses is 1.7 to 20.5 times the median, depending on the model; here it is
about 3 times.
"""

import random

from caesura.simulator.session import Segment
from caesura.simulator.workload.draw import (
    Moments,
    Shape,
    drawn_within,
    fitting,
    gamma,
    geometric,
    lognormal,
)

KIND = "chat"
USER = "user"
"""The tool of a conversation: the user on the other side."""

PROMPT_TOKENS = 69.5
PROMPT_SIGMA = 1.2
RESPONSE_TOKENS = 214.5
"""The mean before the distribution is cut at `MAX_TOKENS`; the mean after it is lower."""
RESPONSE_SIGMA = 0.9
MAX_TOKENS = 512

THINK_SECONDS: Moments = (28.6, 15.6)
"""The user's time between two rounds, that of InferCept's chatbot (its Table 1)."""


class Chats:
    """Draws conversations with a mean of `rounds` rounds, at least one; 1: single requests.

    A conversation whose first round does not fit the context is drawn again. Raises `ValueError` if
    none fits.
    """

    def __init__(self, shape: Shape, rounds: float = 1.0) -> None:
        if not rounds >= 1:
            raise ValueError(f"rounds must be >= 1, got {rounds:g}")
        self._shape = shape
        self._rounds = rounds

    def __call__(self, rng: random.Random) -> tuple[str, list[Segment]]:
        """Return the next conversation."""
        return KIND, fitting(lambda: self._segments(rng), self._shape, fewest=1)

    def _segments(self, rng: random.Random) -> list[Segment]:
        segments = [self._round(rng) for _ in range(geometric(rng, self._rounds))]
        return [*segments[:-1], Segment(segments[-1].given_tokens, segments[-1].decode_tokens)]

    def _round(self, rng: random.Random) -> Segment:
        shape = self._shape
        response = drawn_within(lambda: lognormal(rng, RESPONSE_TOKENS, RESPONSE_SIGMA), MAX_TOKENS)
        return Segment(
            shape.given(rng, lognormal(rng, PROMPT_TOKENS, PROMPT_SIGMA)),
            shape.decoded(rng, response),
            USER,
            shape.seconds(gamma(rng, THINK_SECONDS)),
        )
