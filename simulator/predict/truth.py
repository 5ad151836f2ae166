"""Sessions to come, as a simulation knows them, and what is predicted of them with an error."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from caesura.intercept.kv.pause_durations import Durations

MIN_SHARE = 0.01
"""A wrong prediction is no less than this share of the truth."""

MIN_SECONDS = 1e-9

CERTAIN_OBSERVATIONS = 4
"""So many equal observations stand for a pause that is known."""


class PlannedSegment(Protocol):
    """A segment to come; `tool` is empty in the last one."""

    @property
    def given_tokens(self) -> int:
        """Tokens that it is given: its prompt, or what a tool returned."""
        ...

    @property
    def decode_tokens(self) -> int:
        """Tokens that it decodes."""
        ...

    @property
    def tool(self) -> str:
        """The tool that it calls at its end."""
        ...

    @property
    def tool_seconds(self) -> float:
        """How long that takes."""
        ...


class Plan(Protocol):
    """A session to come."""

    @property
    def segments(self) -> Sequence[PlannedSegment]:
        """Its segments in their order."""
        ...


@dataclass(frozen=True, slots=True)
class Expected:
    """What is predicted of one segment: `left` is how many calls follow from its start on."""

    decode_tokens: float
    given_tokens: float
    tool: str
    seconds: float
    left: int


def certain(seconds: float) -> Durations:
    """Return the belief that a pause takes so long: a sample of this alone, hardly any prior.

    The rest of such a pause is exactly what is left of it. Once it is overdue it is expected to
    last as long again, and never less than `OVERDUE` times what has passed.
    """
    seconds = max(seconds, MIN_SECONDS)
    return Durations(seconds, 1e-9, (seconds,) * CERTAIN_OBSERVATIONS)


def expect(plan: Plan, key: str, error: float, seed: int) -> tuple[Expected, ...]:
    """Return what is predicted of each segment: N(truth, `error` * truth) (LAMPS, Figure 11).

    Drawn from `seed`, the session's key and the segment's number, so that it is the same whenever
    it is made; with no error it is the truth.
    """
    last = len(plan.segments) - 1
    expected = []
    for index, segment in enumerate(plan.segments):
        random = Random(f"{seed} {key} {index}")
        truth = (segment.decode_tokens, segment.given_tokens, segment.tool_seconds, last - index)
        decode, given, seconds, left = (
            max(MIN_SHARE * value, random.gauss(value, error * value)) for value in truth
        )
        expected.append(Expected(decode, given, segment.tool, seconds, round(left)))
    return tuple(expected)
