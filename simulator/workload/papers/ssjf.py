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
from caesura.simulator.workload.conversations import USER, Conversations
from caesura.simulator.workload.draw import Moments, Shape, drawn_within, gamma, lognormal

KIND = "chat"

PROMPT_TOKENS = 69.5
PROMPT_SIGMA = 1.2
RESPONSE_TOKENS = 214.5
"""The mean before the distribution is cut at `MAX_TOKENS`; the mean after it is lower."""
RESPONSE_SIGMA = 0.9
MAX_TOKENS = 512

THINK_SECONDS: Moments = (28.6, 15.6)
"""The user's time between two rounds, that of InferCept's chatbot (its Table 1)."""


def chats(shape: Shape, rounds: float = 1.0) -> Conversations:
    """Return a source of chats with a mean of `rounds` rounds."""

    def draw_round(rng: random.Random) -> Segment:
        response = drawn_within(lambda: lognormal(rng, RESPONSE_TOKENS, RESPONSE_SIGMA), MAX_TOKENS)
        return Segment(
            shape.given(rng, lognormal(rng, PROMPT_TOKENS, PROMPT_SIGMA)),
            shape.decoded(rng, response),
            USER,
            shape.seconds(gamma(rng, THINK_SECONDS)),
        )

    return Conversations(KIND, draw_round, shape, rounds)
