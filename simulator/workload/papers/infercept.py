"""InferCept's mix of six tools, drawn from its Table 1.

Abhyankar et al., "InferCept: Efficient Intercept Support for Augmented Large Language Model
Inference" (ICML 2024), Table 1: mean and standard deviation of a call's seconds, of a session's
number of calls, and of the context at a call. The paper does not tabulate the tokens that are
decoded between calls and returned by them. Those means, and the gamma and lognormal distributions,
are choices made here.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from caesura.simulator.session import Segment
from caesura.simulator.workload.draw import Moments, Shape, fitting, gamma, lognormal


@dataclass(frozen=True)
class Tool:
    """One row of the table: the first three fields are the paper's, the last two choices."""

    call_seconds: Moments
    calls: Moments
    context_tokens: Moments
    decode_tokens: float
    returned_tokens: float


TABLE = {
    "math": Tool((9e-5, 6e-5), (3.75, 1.3), (1422, 738), 30, 6),
    "qa": Tool((0.69, 0.17), (2.52, 1.73), (1846, 428), 60, 100),
    "ve": Tool((0.09, 0.014), (28.18, 15.2), (2185, 115), 12, 12),
    "chatbot": Tool((28.6, 15.6), (4.45, 1.96), (753, 703), 120, 40),
    "image": Tool((20.03, 7.8), (6.91, 3.93), (1247, 792), 50, 24),
    "tts": Tool((17.24, 7.6), (6.91, 3.93), (1251, 792), 50, 24),
}
GROUPS = {
    "all": tuple(TABLE),
    "short": ("math", "qa", "ve"),
    "long": ("chatbot", "image", "tts"),
}
"""Groups of tools: `short` ones answer within a second, `long` ones in about 20 seconds."""

DECODE_SIGMA = 0.6
RETURNED_SIGMA = 0.4


class Mix:
    """Draws sessions that each use one tool; all tools are equally likely.

    `balanced`: each round of sessions has every tool once, in random order, which reduces random
    differences between runs. `single`: every session makes one call, whatever the table says. A
    session whose first call does not fit the context is drawn again. Raises `ValueError` if none
    fits.
    """

    def __init__(
        self, tools: Sequence[str], shape: Shape, balanced: bool = False, single: bool = False
    ) -> None:
        self._tools = list(tools)
        self._shape = shape
        self._balanced = balanced
        self._single = single
        self._kinds: list[str] = []

    def __call__(self, rng: random.Random) -> tuple[str, list[Segment]]:
        """Return the next session."""
        kind = self._kind(rng)
        return kind, fitting(lambda: self._segments(rng, kind), self._shape, fewest=2)

    def _kind(self, rng: random.Random) -> str:
        if not self._balanced:
            return rng.choice(self._tools)
        if not self._kinds:
            self._kinds = rng.sample(self._tools, len(self._tools))
        return self._kinds.pop()

    def _segments(self, rng: random.Random, kind: str) -> list[Segment]:
        """Return a drawn session of any length; one segment follows its last call."""
        tool, shape = TABLE[kind], self._shape
        given = shape.given(rng, gamma(rng, prompt_moments(tool)))
        segments = []
        calls = 1 if self._single else max(1, round(gamma(rng, tool.calls)))
        for call in range(calls + 1):
            decoded = shape.decoded(rng, lognormal(rng, tool.decode_tokens, DECODE_SIGMA))
            seconds = shape.seconds(gamma(rng, tool.call_seconds))
            last = call == calls
            segments.append(Segment(given, decoded, "" if last else kind, 0.0 if last else seconds))
            given = shape.given(rng, lognormal(rng, tool.returned_tokens, RETURNED_SIGMA))
        return segments


def prompt_moments(tool: Tool) -> Moments:
    """Return the prompt's moments that give the context at a call the moments of the table.

    The context at call j of K is the prompt and the tokens added since, about
    j (decoded + returned). Over all calls of all sessions, a session of K calls counts K times. If
    the growth alone varies more than the table says (28 calls of `ve`), the prompt's standard
    deviation is a tenth of its mean.
    """
    mean, deviation = tool.calls
    scale = deviation**2 / mean
    second = mean * (mean + scale)
    third = second * (mean + 2 * scale)
    position = (second / mean + 1) / 2
    position_square = (2 * third + 3 * second + mean) / (6 * mean)
    cycle = tool.decode_tokens + tool.returned_tokens
    grown = position * cycle - tool.returned_tokens
    variance = (position_square - position**2) * cycle**2
    context_mean, context_deviation = tool.context_tokens
    prompt = context_mean - grown
    return prompt, max(math.sqrt(max(0.0, context_deviation**2 - variance)), prompt / 10)
