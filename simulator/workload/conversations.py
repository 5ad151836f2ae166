"""Conversations of several rounds with a user: chats, and questions to a reasoning model.

Chats are those of SSJF (Qiu et al., "Efficient Interactive LLM Serving with Proxy Model-based
Sequence Length Prediction", 2024), requests of one round or conversations. It uses LMSYS-Chat-1M
(Zheng et al., ICLR 2024) with responses of 1 to 512 tokens. That data set's means are known: 69.5
tokens per prompt, 214.5 per response, 2.0 rounds per conversation. Lognormal lengths, their sigmas
and geometric rounds are choices made here. In SSJF the 95th percentile of responses is 1.7 to 20.5
times the median, depending on the model; here it is about 3 times.

The outputs of a reasoning model vary a hundredfold. Their lengths are those of DeepSeek-R1 in
ServeGen (Xiang et al., 2025), `data/reason/deepseek-r1` at
`f891d1189eb32b3868dfc443800c4150548c282a` (Apache-2.0), all clients weighted by their requests.
Quantiles of prompts and of outputs stand here; between two of them the logarithm is linear. Prompts
and outputs are drawn independently. The rounds of a conversation and the user's time between them
are choices made here, as with chats. A round's reasoning stays in the context of the next.
"""

import math
import random
from bisect import bisect_right
from collections.abc import Callable

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


CHAT_PROMPT = 69.5
CHAT_PROMPT_SIGMA = 1.2
CHAT_RESPONSE = 214.5
"""The mean before the distribution is cut at `CHAT_MOST`; the mean after it is lower."""
CHAT_RESPONSE_SIGMA = 0.9
CHAT_MOST = 512

THINK_SECONDS: Moments = (28.6, 15.6)
"""The user's time between two rounds, that of InferCept's chatbot (its Table 1)."""


def chats(shape: Shape, rounds: float = 1.0) -> Conversations:
    """Return a source of chats with a mean of `rounds` rounds."""

    def draw_round(rng: random.Random) -> Segment:
        response = drawn_within(
            lambda: lognormal(rng, CHAT_RESPONSE, CHAT_RESPONSE_SIGMA), CHAT_MOST
        )
        return Segment(
            shape.given(rng, lognormal(rng, CHAT_PROMPT, CHAT_PROMPT_SIGMA)),
            shape.decoded(rng, response),
            USER,
            shape.seconds(gamma(rng, THINK_SECONDS)),
        )

    return Conversations("chat", draw_round, shape, rounds)


Quantiles = tuple[tuple[float, float], ...]
"""Shares of all requests, ascending from 0 to 1, with the tokens that these do not exceed."""

REASONING_PROMPT: Quantiles = (
    (0.0, 4), (0.01, 9), (0.05, 13), (0.1, 18), (0.25, 41), (0.5, 208), (0.75, 482), (0.9, 2095),
    (0.95, 6728), (0.99, 23444), (1.0, 33790),
)  # fmt: skip

REASONING_OUTPUT: Quantiles = (
    (0.0, 60), (0.01, 141), (0.05, 225), (0.1, 287), (0.25, 427), (0.5, 792), (0.75, 1499),
    (0.9, 3433), (0.95, 5702), (0.99, 12607), (1.0, 20833),
)  # fmt: skip


def reasoning(shape: Shape, rounds: float = 1.0) -> Conversations:
    """Return a source of conversations with a mean of `rounds` rounds."""

    def draw_round(rng: random.Random) -> Segment:
        return Segment(
            shape.given(rng, tokens_at(REASONING_PROMPT, rng.random())),
            shape.decoded(rng, tokens_at(REASONING_OUTPUT, rng.random())),
            USER,
            shape.seconds(gamma(rng, THINK_SECONDS)),
        )

    return Conversations("reasoning", draw_round, shape, rounds)


def tokens_at(quantiles: Quantiles, share: float) -> float:
    """Return the tokens that a `share` of all requests does not exceed; `share` is in [0, 1)."""
    after = bisect_right(quantiles, share, key=lambda entry: entry[0])
    (below, low), (above, high) = quantiles[after - 1], quantiles[after]
    part = (share - below) / (above - below)
    return math.exp((1 - part) * math.log(low) + part * math.log(high))
