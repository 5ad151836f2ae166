"""Draw lengths and durations by their moments, and scale sessions to the shape of a run."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from caesura.simulator.session import Segment

Moments = tuple[float, float]
"""Mean and standard deviation."""


@dataclass(frozen=True, slots=True)
class SubAgent:
    """A session that a parent starts with its call number `call`, from 0 on.

    All sub-agents of a call share the first `shared_tokens` of their prompts.
    """

    kind: str
    segments: list[Segment]
    call: int
    shared_tokens: int


@dataclass(frozen=True, slots=True)
class Team:
    """A session with the sub-agents that it starts."""

    kind: str
    segments: list[Segment]
    agents: tuple[SubAgent, ...]


Draw = Callable[[random.Random], tuple[str, list[Segment]] | Team]
"""Returns the kind and the segments of the next session, or a session with its sub-agents."""

MAX_TRIES = 1000


@dataclass(frozen=True, slots=True)
class Shape:
    """The changes that a run makes to drawn sessions; the defaults change nothing.

    `tokens` is a factor on all token counts, and `decode` a further factor on decoded tokens.
    Seconds of tools are capped at `longest` and then multiplied by `pause`. `context` is the limit
    of a session's tokens; 0 is no limit.
    """

    tokens: float = 1.0
    decode: float = 1.0
    pause: float = 1.0
    longest: float = math.inf
    context: int = 0

    def given(self, rng: random.Random, tokens: float) -> int:
        """Return the scaled number of tokens that a session is given."""
        return whole(rng, tokens * self.tokens)

    def decoded(self, rng: random.Random, tokens: float) -> int:
        """Return the scaled number of tokens that a session decodes."""
        return whole(rng, tokens * self.tokens * self.decode)

    def seconds(self, seconds: float) -> float:
        """Return the capped and scaled seconds of a tool."""
        return min(seconds, self.longest) * self.pause


def gamma(rng: random.Random, moments: Moments) -> float:
    """Return a draw from the gamma distribution with these moments; the mean without a spread."""
    mean, deviation = moments
    if not deviation:
        return mean
    return rng.gammavariate((mean / deviation) ** 2, deviation**2 / mean)


def lognormal(rng: random.Random, mean: float, sigma: float) -> float:
    """Return a draw from the lognormal distribution with this mean and sigma of the logarithm."""
    return rng.lognormvariate(math.log(mean) - sigma**2 / 2, sigma)


def lognormal_of(rng: random.Random, moments: Moments) -> float:
    """Return a draw from the lognormal distribution with these moments."""
    mean, deviation = moments
    return lognormal(rng, mean, math.sqrt(math.log1p((deviation / mean) ** 2)))


def geometric(rng: random.Random, mean: float) -> int:
    """Return a draw of a geometric number >= 1 with this mean."""
    if mean == 1:
        return 1
    return 1 + math.floor(math.log1p(-rng.random()) / math.log1p(-1 / mean))


def whole(rng: random.Random, unrounded: float) -> int:
    """Return a whole number >= 1, rounded at random so that the mean of small counts is kept."""
    return max(1, math.floor(unrounded + rng.random()))


def drawn_within(draw: Callable[[], float], most: float) -> float:
    """Return the first drawn number of at most `most`; raises `ValueError` after many draws."""
    for _ in range(MAX_TRIES):
        number = draw()
        if number <= most:
            return number
    raise ValueError(f"none of {MAX_TRIES} draws was at most {most:g}")


def fit(segments: Sequence[Segment], context_tokens: int) -> list[Segment]:
    """Return the first segments of a session that fit the model's context.

    The last of them ends without a call. The result may be empty.
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
    """Return drawn segments that fit the context, at least `fewest` of them.

    Raises `ValueError` if no draw fits.
    """
    for _ in range(MAX_TRIES):
        drawn = draw()
        segments = fit(drawn, shape.context or sum(map(_grown, drawn)))
        if len(segments) >= fewest:
            return segments
    raise ValueError(f"no session fits a context of {shape.context} tokens")


def reshaped(segments: Sequence[Segment], shape: Shape) -> list[Segment]:
    """Return a recorded session scaled, capped and cut; counts are rounded and at least 1.

    The result is empty if the first segment does not fit.
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
