"""The forecast of a session, and the interface of predictors."""

from dataclasses import dataclass
from typing import Protocol

from caesura.intercept.kv.pause_durations import Durations


@dataclass(frozen=True, slots=True)
class About:
    """The session to forecast.

    `kind` is the class of sessions that it is compared with: the tool that it called last, or the
    tools that it is offered. `calls` counts its calls so far. `decoded_tokens` were decoded in the
    current segment.
    """

    key: str
    kind: str
    calls: int
    decoded_tokens: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """The expected future of a session; tokens and seconds are means.

    `decode_tokens` are left in the current segment. A later segment decodes `segment_tokens`. A
    call returns `result_tokens` and takes `pause_seconds`. `pause_discount` is
    E[1 - exp(-T / 60 s)] of a pause T. `ends[i]` is the probability that the session ends with the
    i-th segment from here (0: the current one) if it reaches that segment. After the last entry
    the session surely ends.
    """

    decode_tokens: float
    segment_tokens: float
    result_tokens: float
    pause_seconds: float
    pause_discount: float
    ends: tuple[float, ...]


class Predictor(Protocol):
    """Forecasts sessions, and learns from their segments, results, pauses and ends. No clock."""

    @property
    def name(self) -> str:
        """Return the name under which the predictor is selected."""
        ...

    def forecast(self, about: About) -> Forecast:
        """Return the forecast of a session that waits or runs."""
        ...

    def pause(self, key: str, tool: str | None, calls: int | None = None) -> Durations:
        """Return the expected durations of a session's pause for a tool.

        The pause is for the last of the session's `calls` calls, if that number is known.
        """
        ...

    def observe_segment(self, kind: str, decoded_tokens: int) -> None:
        """Learn that a segment ended, with a call or with its session."""
        ...

    def observe_result(self, tool: str | None, tokens: int) -> None:
        """Learn that a tool returned `tokens`."""
        ...

    def observe_pause(self, tool: str | None, seconds: float) -> None:
        """Learn that a pause for a tool lasted `seconds`."""
        ...

    def observe_end(self, kind: str, calls: int) -> None:
        """Learn that a session ended after `calls`."""
        ...
