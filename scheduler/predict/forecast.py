"""What is expected of a request, and who says so."""

from dataclasses import dataclass
from typing import Protocol

from caesura.intercept.kv.pause_durations import Durations


@dataclass(frozen=True, slots=True)
class About:
    """What is known of a session when somebody asks.

    `kind` is the class of sessions that it is compared with: the tool that it called last, or the
    tools that it is offered. `calls` counts its calls so far, `decoded_tokens` what this segment
    has decoded.
    """

    key: str
    kind: str
    calls: int
    decoded_tokens: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is expected of a session from here on; tokens and seconds are means.

    `decode_tokens` are left in this segment. `segment_tokens` is what a later segment decodes,
    `result_tokens` what a call returns, `pause_seconds` how long one takes; `pause_discount` is
    E[1 - exp(-T / 60 s)] of a pause T. `ends[i]` is the chance that the session ends with the
    segment i from here (0: this one), given that it has come so far; behind the last entry it
    ends surely.
    """

    decode_tokens: float
    segment_tokens: float
    result_tokens: float
    pause_seconds: float
    pause_discount: float
    ends: tuple[float, ...]


class Predictor(Protocol):
    """Forecasts sessions, and learns from what became of them. It has no clock."""

    @property
    def name(self) -> str:
        """The name under which it is selected."""
        ...

    def forecast(self, about: About) -> Forecast:
        """Return what is expected of a session that queues or runs."""
        ...

    def pause(self, key: str, tool: str | None, calls: int | None = None) -> Durations:
        """Return how long this session's pause for that tool is expected to be.

        It is for the last of `calls` calls of the session, if that is known.
        """
        ...

    def observe_segment(self, kind: str, decoded_tokens: int) -> None:
        """A segment has ended, with a call or with its session."""
        ...

    def observe_result(self, tool: str | None, tokens: int) -> None:
        """A tool has returned so many tokens."""
        ...

    def observe_pause(self, tool: str | None, seconds: float) -> None:
        """A tool has kept its caller waiting for so long."""
        ...

    def observe_end(self, kind: str, calls: int) -> None:
        """A session has ended after so many calls."""
        ...
