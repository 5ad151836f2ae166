"""ToolBench as LAMPS uses it.

Shahout et al., "Fast Inference for Augmented Large Language Models" (LAMPS), Table 2: mean and
standard deviation of a call's seconds and of a session's number of calls. Everything else is a
choice. The other two data sets of the paper are InferCept's: `multi` is its whole mix, `single`
the sessions with one call, for which `infercept.Mix` is asked for one call of each session
(section 6 names four of the six tools, Table 2 all; all are used here).
"""

import random

from caesura.simulator.session import Segment
from caesura.simulator.workload.draw import (
    Moments,
    Shape,
    drawn_within,
    fitting,
    gamma,
    lognormal_of,
)

TOOL = "toolbench"

CALL_SECONDS: Moments = (1.72, 3.33)
CALLS: Moments = (2.45, 1.81)

# Measured on the 13 example answers of OpenBMB/ToolBench (data_example/answer), system prompt and
# functions included, at four characters to a token.
PROMPT: Moments = (1710, 690)
CALL_TOKENS: Moments = (93, 96)
RETURNED_TOKENS: Moments = (97, 107)
ANSWER_TOKENS: Moments = (144, 108)

MAX_DECODED_TOKENS = 500
"""LAMPS' predictor of lengths has 50 classes of 10 tokens: no segment is longer."""


class ToolBench:
    """Draws sessions: gamma calls and prompts, lognormal durations and lengths.

    The durations' deviation is twice their mean: lognormal as of a web service, since a gamma
    distribution would make most of them next to nothing. A session that could not even make a
    call in the context is drawn again; raises `ValueError` if none can.
    """

    def __init__(self, shape: Shape) -> None:
        self._shape = shape

    def __call__(self, rng: random.Random) -> tuple[str, list[Segment]]:
        """Draw the next session."""
        return TOOL, fitting(lambda: self._segments(rng), self._shape, fewest=2)

    def _segments(self, rng: random.Random) -> list[Segment]:
        shape = self._shape
        given = shape.given(rng, gamma(rng, PROMPT))
        segments = []
        for _ in range(max(1, round(gamma(rng, CALLS)))):
            seconds = shape.seconds(lognormal_of(rng, CALL_SECONDS))
            segments.append(Segment(given, self._decoded(rng, CALL_TOKENS), TOOL, seconds))
            given = shape.given(rng, lognormal_of(rng, RETURNED_TOKENS))
        return [*segments, Segment(given, self._decoded(rng, ANSWER_TOKENS))]

    def _decoded(self, rng: random.Random, moments: Moments) -> int:
        tokens = drawn_within(lambda: lognormal_of(rng, moments), MAX_DECODED_TOKENS)
        return self._shape.decoded(rng, tokens)
