"""Chats with a reasoning model, whose outputs vary a hundredfold.

The lengths are those of DeepSeek-R1 in ServeGen (Xiang et al., 2025), `data/reason/deepseek-r1` at
`f891d1189eb32b3868dfc443800c4150548c282a` (Apache-2.0), all clients weighted by their requests.
Quantiles of prompts and of outputs stand here; between two of them the logarithm is linear. Prompts
and outputs are drawn independently. The rounds of a conversation and the user's time between them
are choices made here, as in `simulator/workload/papers/ssjf.py`. A round's reasoning stays in the
context of the next.
"""

import math
import random
from bisect import bisect_right

from caesura.simulator.session import Segment
from caesura.simulator.workload.conversations import USER, Conversations
from caesura.simulator.workload.draw import Shape, gamma
from caesura.simulator.workload.papers.ssjf import THINK_SECONDS

KIND = "reasoning"

Quantiles = tuple[tuple[float, float], ...]
"""Shares of all requests, ascending from 0 to 1, with the tokens that these do not exceed."""

PROMPT: Quantiles = (
    (0.0, 4), (0.01, 9), (0.05, 13), (0.1, 18), (0.25, 41), (0.5, 208), (0.75, 482), (0.9, 2095),
    (0.95, 6728), (0.99, 23444), (1.0, 33790),
)  # fmt: skip

OUTPUT: Quantiles = (
    (0.0, 60), (0.01, 141), (0.05, 225), (0.1, 287), (0.25, 427), (0.5, 792), (0.75, 1499),
    (0.9, 3433), (0.95, 5702), (0.99, 12607), (1.0, 20833),
)  # fmt: skip


def reasoning(shape: Shape, rounds: float = 1.0) -> Conversations:
    """Return a source of conversations with a mean of `rounds` rounds."""

    def draw_round(rng: random.Random) -> Segment:
        return Segment(
            shape.given(rng, tokens_at(PROMPT, rng.random())),
            shape.decoded(rng, tokens_at(OUTPUT, rng.random())),
            USER,
            shape.seconds(gamma(rng, THINK_SECONDS)),
        )

    return Conversations(KIND, draw_round, shape, rounds)


def tokens_at(quantiles: Quantiles, share: float) -> float:
    """Return the tokens that a `share` of all requests does not exceed; `share` is in [0, 1)."""
    after = bisect_right(quantiles, share, key=lambda entry: entry[0])
    (below, low), (above, high) = quantiles[after - 1], quantiles[after]
    part = (share - below) / (above - below)
    return math.exp((1 - part) * math.log(low) + part * math.log(high))
