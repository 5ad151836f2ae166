"""ToolBench as LAMPS uses it.

Shahout et al., "Fast Inference for Augmented Large Language Models" (LAMPS), Table 2: mean and
standard deviation of a call's seconds and of a session's number of calls. Everything else is a
choice made here. The other two data sets of the paper are InferCept's. `multi` is its whole mix.
`single` has sessions with one call, which `infercept.Mix` draws with `single`. Section 6 names
four of the six tools and Table 2 all; all are used here.
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

# Measured on the 13 example answers of OpenBMB/ToolBench (data_example/answer), including system
# prompt and functions, with four characters per token.
PROMPT: Moments = (1710, 690)
CALL_TOKENS: Moments = (93, 96)
RETURNED_TOKENS: Moments = (97, 107)
ANSWER_TOKENS: Moments = (144, 108)

MAX_DECODED_TOKENS = 500
"""The longest segment: LAMPS' predictor of lengths has 50 classes of 10 tokens."""


class ToolBench:
    """Draws sessions with gamma calls and prompts, and lognormal durations and lengths.

    The standard deviation of durations is twice their mean. They are lognormal, as for a web
    service, since most draws of a gamma distribution would be close to 0. A session whose first
    call does not fit the context is drawn again. Raises `ValueError` if none fits.
    """

    def __init__(self, shape: Shape) -> None:
        self._shape = shape

    def __call__(self, rng: random.Random) -> tuple[str, list[Segment]]:
        """Return the next session."""
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
