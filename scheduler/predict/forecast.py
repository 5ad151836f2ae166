"""The forecast of a session, and the interfaces of predictors."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from caesura.intercept.kv.pause_durations import Durations
from caesura.scheduler.predict.facts import NO_FACTS, Facts

LONG_PAUSE_SECONDS = 30.0
"""A pause of more seconds is long: `Forecast.long_pause`."""


@dataclass(frozen=True, slots=True)
class About:
    """The session to forecast.

    `key` is the same in all its requests. `kind` is the class of sessions that it is compared
    with: the tool that it called last, or the tools that it is offered. `calls` counts its calls
    so far. `decoded_tokens` were decoded in the current segment. `facts` were known at its begin.
    """

    key: str
    kind: str
    calls: int
    decoded_tokens: int
    facts: Facts = NO_FACTS


@dataclass(frozen=True, slots=True)
class Forecast:
    """The expected future of a session; tokens and seconds are means.

    `decode_tokens` are left in the current segment. A later segment decodes `segment_tokens`. A
    call returns `result_tokens` and takes `pause_seconds`. `pause_discount` is
    E[1 - exp(-T / 60 s)] of a pause T. `ends[i]` is the probability that the session ends with the
    i-th segment from here (0: the current one) if it reaches that segment. After the last entry
    the session surely ends. `decode_quantiles` are equally likely values of the tokens left in the
    current segment, ascending; () if only their mean is known. `long_pause` is the probability
    that the next pause exceeds `LONG_PAUSE_SECONDS`.
    """

    decode_tokens: float
    segment_tokens: float
    result_tokens: float
    pause_seconds: float
    pause_discount: float
    ends: tuple[float, ...]
    decode_quantiles: tuple[float, ...] = ()
    long_pause: float = 0.0

    def calls_left(self) -> float:
        """Return the expected number of further calls."""
        expected, alive = 0.0, 1.0
        for ends in self.ends[:-1]:
            alive *= 1 - ends
            expected += alive
        return expected

    def ends_within(self, calls: int) -> float:
        """Return the probability that the session makes at most `calls` further calls."""
        if calls < 0:
            return 0.0
        if calls >= len(self.ends) - 1:
            return 1.0
        alive = 1.0
        for ends in self.ends[: calls + 1]:
            alive *= 1 - ends
        return 1 - alive


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

    def observe_segment(self, about: About, decoded_tokens: int, called: bool) -> None:
        """Learn that the session's current segment ended: with a call, or with the session.

        `about` is the session before the end of the segment, which decoded `decoded_tokens`.
        """
        ...

    def observe_result(self, tool: str | None, tokens: int) -> None:
        """Learn that a tool returned `tokens`."""
        ...

    def observe_pause(self, key: str, tool: str | None, seconds: float) -> None:
        """Learn that a pause of a session for a tool lasted `seconds`."""
        ...

    def observe_end(self, about: About, kinds: Collection[str]) -> None:
        """Learn that a session ended after `about.calls`; it had all of the `kinds`."""
        ...

    def observe_abort(self, key: str) -> None:
        """Learn that a session was aborted, so that its number of calls stays unknown."""
        ...


@runtime_checkable
class Mixed(Protocol):
    """A predictor that is made of others, whose forecasts can be compared with its own."""

    def parts(self, about: About) -> Mapping[str, Forecast]:
        """Return the forecasts of the predictors that it mixes, by their names."""
        ...


def forecasts_by_name(predictor: Predictor, about: About) -> dict[str, Forecast]:
    """Return the forecast of a predictor, and those of its parts if it is mixed."""
    forecasts = {predictor.name: predictor.forecast(about)}
    if isinstance(predictor, Mixed):
        forecasts = {**predictor.parts(about), **forecasts}
    return forecasts
