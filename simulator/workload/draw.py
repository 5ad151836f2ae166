"""Drawing lengths and durations by their moments, and the shape that a run gives to sessions."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from caesura.simulator.session import Segment

Moments = tuple[float, float]
"""Mean and standard deviation."""

Draw = Callable[[random.Random], tuple[str, list[Segment]]]
"""Draws the kind and the segments of the next session."""

MAX_TRIES = 1000


@dataclass(frozen=True, slots=True)
class Shape:
    """How a run changes what is drawn; the defaults change nothing.

    `tokens` is a factor on all token counts, `decode` a further one on what is decoded, `pause`
    one on the seconds of tools, after `longest` has capped them. `context` is the most tokens that
    a session may grow to; 0 is no limit.
    """

    tokens: float = 1.0
    decode: float = 1.0
    pause: float = 1.0
    longest: float = math.inf
    context: int = 0

    def given(self, rng: random.Random, tokens: float) -> int:
        """Scale what a session is given, in tokens."""
        return whole(rng, tokens * self.tokens)

    def decoded(self, rng: random.Random, tokens: float) -> int:
        """Scale what it decodes, in tokens."""
        return whole(rng, tokens * self.tokens * self.decode)

    def seconds(self, seconds: float) -> float:
        """Cap and scale what a tool takes."""
        return min(seconds, self.longest) * self.pause


def gamma(rng: random.Random, moments: Moments) -> float:
    """Draw from the gamma distribution with these moments; the mean itself if it has no spread."""
    mean, deviation = moments
    if not deviation:
        return mean
    return rng.gammavariate((mean / deviation) ** 2, deviation**2 / mean)


def lognormal(rng: random.Random, mean: float, sigma: float) -> float:
    """Draw from the lognormal distribution with this mean and this sigma of the logarithm."""
    return rng.lognormvariate(math.log(mean) - sigma**2 / 2, sigma)


def lognormal_of(rng: random.Random, moments: Moments) -> float:
    """Draw from the lognormal distribution with these moments."""
    mean, deviation = moments
    return lognormal(rng, mean, math.sqrt(math.log1p((deviation / mean) ** 2)))


def whole(rng: random.Random, unrounded: float) -> int:
    """Round by chance, so that the mean of small counts survives; at least 1."""
    return max(1, math.floor(unrounded + rng.random()))


def drawn_within(draw: Callable[[], float], most: float) -> float:
    """Draw until a number is at most `most`; raise `ValueError` if none is."""
    for _ in range(MAX_TRIES):
        number = draw()
        if number <= most:
            return number
    raise ValueError(f"{MAX_TRIES} draws and none of them below {most:g}")


def fit(segments: Sequence[Segment], context_tokens: int) -> list[Segment]:
    """Leave out the last segments of a session that would outgrow the model's context.

    What is left ends without a call; it may be nothing.
    """
    kept: list[Segment] = []
    for segment in segments:
        context_tokens -= segment.given_tokens + segment.decode_tokens
        if context_tokens < 0:
            break
        kept.append(segment)
    if kept:
        kept[-1] = replace(kept[-1], tool="", tool_seconds=0.0)
    return kept


def fitting(draw: Callable[[], list[Segment]], shape: Shape, fewest: int) -> list[Segment]:
    """Draw segments until `fewest` of them fit the context, and leave out those that do not.

    Raises `ValueError` if no draw fits.
    """
    for _ in range(MAX_TRIES):
        drawn = draw()
        segments = fit(drawn, shape.context or sum(map(_grown, drawn)))
        if len(segments) >= fewest:
            return segments
    raise ValueError(f"no session fits a context of {shape.context} tokens")


def reshaped(segments: Sequence[Segment], shape: Shape) -> list[Segment]:
    """Scale, cap and cut a recorded session; counts are rounded to the nearest, at least 1.

    Nothing is left of one whose first segment does not fit.
    """
    scaled = [
        replace(
            segment,
            given_tokens=max(1, round(segment.given_tokens * shape.tokens)),
            decode_tokens=max(1, round(segment.decode_tokens * shape.tokens * shape.decode)),
            tool_seconds=shape.seconds(segment.tool_seconds),
        )
        for segment in segments
    ]
    return fit(scaled, shape.context or sum(map(_grown, scaled)))


def _grown(segment: Segment) -> int:
    return segment.given_tokens + segment.decode_tokens
