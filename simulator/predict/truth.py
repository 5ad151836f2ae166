"""Future sessions as a simulation knows them, and predictions of them with an error."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from caesura.intercept.kv.pause_durations import Durations

MIN_SHARE = 0.01
"""A prediction is at least this share of the truth."""

MIN_SECONDS = 1e-9

CERTAIN_OBSERVATIONS = 4
"""The number of equal observations that represent a known pause."""


class PlannedSegment(Protocol):
    """A future segment; `tool` is empty in the last one."""

    @property
    def given_tokens(self) -> int:
        """Return the tokens that it is given: its prompt, or a tool's result."""
        ...

    @property
    def decode_tokens(self) -> int:
        """Return the tokens that it decodes."""
        ...

    @property
    def tool(self) -> str:
        """Return the tool that it calls at its end."""
        ...

    @property
    def tool_seconds(self) -> float:
        """Return the seconds that this call takes."""
        ...


class Plan(Protocol):
    """A future session."""

    @property
    def segments(self) -> Sequence[PlannedSegment]:
        """Return its segments in their order."""
        ...


@dataclass(frozen=True, slots=True)
class Expected:
    """The prediction of one segment; `left` is the number of calls from its start on."""

    decode_tokens: float
    given_tokens: float
    tool: str
    seconds: float
    left: int


def certain(seconds: float) -> Durations:
    """Return durations for a pause of exactly `seconds`: a sample of it, and hardly any prior.

    The remaining time of such a pause is exact. Once the pause is overdue, it is expected to last
    as long again, and at least `OVERDUE` times the elapsed time.
    """
    seconds = max(seconds, MIN_SECONDS)
    return Durations(seconds, 1e-9, (seconds,) * CERTAIN_OBSERVATIONS)


def expect(plan: Plan, key: str, error: float, seed: int) -> tuple[Expected, ...]:
    """Return the prediction of each segment: N(truth, `error` * truth) (LAMPS, Figure 11).

    It is drawn from `seed`, the session's key and the segment's number, so that it is always the
    same. Without an error it is the truth.
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
