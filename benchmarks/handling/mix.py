"""InferCept's mix of six tools, drawn from its Table 1.

Abhyankar et al., "InferCept: Efficient Intercept Support for Augmented Large Language Model
Inference" (ICML 2024), Table 1: mean and standard deviation of a call's seconds, of a session's
number of calls, and of the context at a call. The paper does not tabulate how much is decoded
between calls and returned by them; those means are ours.
"""

import math
import random
from dataclasses import dataclass

from benchmarks.handling.workload import Segment, fit

Moments = tuple[float, float]
"""Mean and standard deviation."""


@dataclass(frozen=True)
class Tool:
    """One row: the first three as in the paper, the last two chosen here."""

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
DECODE_SIGMA = 0.6
RETURNED_SIGMA = 0.4


class Mix:
    """Draws sessions; every six in a row are one of each tool, in random order."""

    def __init__(self, token_scale: float, pause_scale: float, context_tokens: int) -> None:
        self._token_scale = token_scale
        self._pause_scale = pause_scale
        self._context_tokens = context_tokens
        self._kinds: list[str] = []

    def draw(self, rng: random.Random) -> tuple[str, list[Segment]]:
        """Draw the next session; one that could not even make a call in the context is redrawn."""
        if not self._kinds:
            self._kinds = rng.sample(list(TABLE), len(TABLE))
        kind = self._kinds.pop()
        segments: list[Segment] = []
        while len(segments) < 2:
            segments = fit(self._segments(rng, kind), self._context_tokens)
        return kind, segments

    def _segments(self, rng: random.Random, kind: str) -> list[Segment]:
        tool = TABLE[kind]
        given = self._tokens(rng, _gamma(rng, prompt_moments(tool)))
        segments = []
        for _ in range(max(1, round(_gamma(rng, tool.calls))) + 1):
            decoded = self._tokens(rng, _lognormal(rng, tool.decode_tokens, DECODE_SIGMA))
            seconds = _gamma(rng, tool.call_seconds) * self._pause_scale
            segments.append(Segment(given, decoded, kind, seconds))
            given = self._tokens(rng, _lognormal(rng, tool.returned_tokens, RETURNED_SIGMA))
        return segments

    def _tokens(self, rng: random.Random, unscaled: float) -> int:
        """Scale, and round by chance, so that the mean of small counts survives."""
        return max(1, math.floor(unscaled * self._token_scale + rng.random()))


def prompt_moments(tool: Tool) -> Moments:
    """Return the prompt's moments such that the context at a call has those of the table.

    The context at call j of K is the prompt and what has been added since, about
    j (decoded + returned). Over all calls of all sessions, a session of K calls counts K times.
    Where growth alone varies more than the table says (28 calls of `ve`), the prompt varies by a
    tenth.
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


def _gamma(rng: random.Random, moments: Moments) -> float:
    mean, deviation = moments
    return rng.gammavariate((mean / deviation) ** 2, deviation**2 / mean)


def _lognormal(rng: random.Random, mean: float, sigma: float) -> float:
    return rng.lognormvariate(math.log(mean) - sigma**2 / 2, sigma)
