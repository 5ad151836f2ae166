"""Groups of samples: a trainer's step asks each prompt several times, and all samples call tools.

The samples of a group share their prompt and nothing else. How often a sample calls, and how long
its slow calls last, has a long tail, so that the last sample of a step ends long after most.
"""

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.handling.model import WORDS
from benchmarks.handling.workload import Segment, Session

FAST, SLOW = "math", "qa"
"""A calculator and a search, by names that the benchmarks' models can call."""


@dataclass(frozen=True)
class Sample(Session):
    """One sample; `group` names its prompt, whose words it shares."""

    group: str = ""

    def words(self) -> list[list[int]]:
        """Return the tokens that it is given: the group's prompt, then its own tools' results."""
        rng = random.Random(self.key)
        lengths = [segment.given_tokens for segment in self.segments]
        prompt = random.Random(self.group).choices(WORDS, k=lengths[0])
        return [prompt, *(rng.choices(WORDS, k=length) for length in lengths[1:])]


@dataclass(frozen=True)
class Lengths:
    """Tokens of a kind: log-normal, by the median and the deviation of the logarithm, bounded."""

    median: float
    deviation: float
    least: int
    most: int

    def draw(self, rng: random.Random) -> int:
        """Draw one."""
        drawn = round(self.median * math.exp(rng.gauss(0, self.deviation)))
        return min(self.most, max(self.least, drawn))


@dataclass(frozen=True)
class Shape:
    """What samples are like.

    After each call there is another one with the probability `again`, up to `most_calls` in all.
    A call is slow with the probability `slow`, and lasts `fast_seconds` in the mean otherwise.
    """

    prompt: Lengths
    turn: Lengths
    result: Lengths
    again: float
    most_calls: int
    slow: float
    fast_seconds: float
    slow_seconds: float
    """The median of a slow call, whose logarithm deviates by 1."""
    longest_seconds: float

    def draw(self, prompts: int, samples: int, seed: int) -> list[Sample]:
        """Draw so many groups of so many samples; they are all there from the first moment."""
        drawn = []
        for group in range(prompts):
            rng = random.Random(f"rollouts {seed} {group}")
            prompt = self.prompt.draw(rng)
            for index in range(samples):
                key = f"{seed}-{group}-{index}"
                segments = tuple(self._segments(prompt, rng))
                drawn.append(Sample(key, "rollout", 0.0, segments, f"{seed}-{group}"))
        return drawn

    def _segments(self, prompt: int, rng: random.Random) -> Iterable[Segment]:
        given, calls = prompt, 1
        while calls < self.most_calls and rng.random() < self.again:
            calls += 1
        for _ in range(calls):
            slow = rng.random() < self.slow
            yield Segment(
                given, self.turn.draw(rng), SLOW if slow else FAST, self._seconds(slow, rng)
            )
            given = self.result.draw(rng)
        yield Segment(given, self.turn.draw(rng))

    def _seconds(self, slow: bool, rng: random.Random) -> float:
        if not slow:
            return rng.expovariate(1 / self.fast_seconds)
        return min(self.longest_seconds, self.slow_seconds * math.exp(rng.gauss(0, 1)))


SMALL = Shape(
    prompt=Lengths(160, 0.6, 32, 400),
    turn=Lengths(24, 0.8, 6, 160),
    result=Lengths(40, 0.8, 8, 200),
    again=0.6,
    most_calls=8,
    slow=0.4,
    fast_seconds=0.02,
    slow_seconds=0.6,
    longest_seconds=10.0,
)
"""For the model with 25 M parameters and a context of 2,048 tokens."""

LARGE = Shape(
    prompt=Lengths(2000, 0.6, 200, 8000),
    turn=Lengths(250, 0.9, 20, 2000),
    result=Lengths(500, 1.0, 30, 4000),
    again=0.75,
    most_calls=20,
    slow=0.4,
    fast_seconds=0.02,
    slow_seconds=4.0,
    longest_seconds=120.0,
)
"""For a simulated GPU: searches, and tests that run for a minute or two."""


def needed_tokens(samples: Sequence[Sample]) -> int:
    """Return what must be computed once: each group's prompt, and what each sample has beside it.

    The very last token of a sample is not computed.
    """
    prompts = {sample.group: sample.segments[0].given_tokens for sample in samples}
    own = (sample.context_tokens - sample.segments[0].given_tokens - 1 for sample in samples)
    return sum(prompts.values()) + sum(own)
