"""The history predictor: it forecasts a session from earlier sessions, by kind and by tool.

It uses only the calls of a session and not its prompt: agents' traffic has few kinds of sessions,
and the kind says more than the prompt. The cost of a forecast does not grow with the history.
"""

from collections.abc import Collection, Mapping, Sequence
from math import exp
from typing import Any

from caesura.intercept.kv.pause_durations import Durations
from caesura.scheduler.predict.forecast import LONG_PAUSE_SECONDS, About, Forecast
from caesura.scheduler.predict.tables import (
    MAX_KINDS,
    PRIOR_CALLS,
    WINDOW,
    CallCounts,
    Calls,
    Kinds,
    Lengths,
    PausePredictor,
)

HORIZON_SECONDS = 60.0
"""H of E[1 - exp(-T / H)]: `Forecast.pause_discount`."""

PRIOR_TOKENS = 100.0
KIND_WEIGHT = 2.0
KIND_WINDOW = 256


def pause_discount(durations: Durations) -> float:
    """Return E[1 - exp(-T / `HORIZON_SECONDS`)] of a pause T, from 0 (none) to 1 (endless).

    The expectation is over the sample and the prior. The prior is an exponential pause of mean m,
    which gives m / (m + H).
    """
    seen = durations.count - sum(exp(-seconds / HORIZON_SECONDS) for seconds in durations.sample)
    tail_mean, weight = durations.tail_mean, durations.prior_weight
    unseen = weight * tail_mean / (tail_mean + HORIZON_SECONDS)
    return (seen + unseen) / (durations.count + weight)


def _lengths() -> Kinds[Lengths]:
    """Return empty lengths by kind; a new kind begins with the mean of all kinds as its prior."""
    together = Lengths(PRIOR_TOKENS, KIND_WEIGHT, WINDOW)
    return Kinds(together, lambda all_: Lengths(max(1.0, all_.mean), KIND_WEIGHT, KIND_WINDOW))


class History:
    """Learns lengths, results and numbers of calls; `pauses`, which may be shared, learns pauses.

    The forecast of results and pauses uses a session's `kind` as its tool. The kind is the tool
    that the session called last, and agents mostly call the same tool again. An unknown kind or
    tool gets the mean of all known ones. The last `MAX_KINDS` kinds are kept. `calls` is the
    assumed number of calls before any session has ended.
    """

    name = "history"

    def __init__(self, pauses: PausePredictor | None = None, calls: float = PRIOR_CALLS) -> None:
        self._pauses = PausePredictor() if pauses is None else pauses
        self._calls = Calls(calls)
        self._segments = _lengths()
        self._results = _lengths()
        self._discounts: dict[str, tuple[Durations, float]] = {}

    def forecast(self, about: About) -> Forecast:
        """Return the forecast from earlier sessions of the same kind."""
        segments = self._segments.find(about.kind) or self._segments.together
        results = self._results.find(about.kind) or self._results.together
        durations = self._pauses.durations_for(about.kind)
        return Forecast(
            decode_tokens=segments.remaining(about.decoded_tokens),
            segment_tokens=segments.mean,
            result_tokens=results.mean,
            pause_seconds=durations.mean,
            pause_discount=self._discount(about.kind, durations),
            ends=self.ends(about.kind, about.calls),
            long_pause=durations.survival(LONG_PAUSE_SECONDS),
        )

    def ends(self, kind: str, calls: int) -> tuple[float, ...]:
        """Return the hazards that a session of this kind ends; see `Forecast.ends`."""
        return self._calls.ends(kind, calls)

    def segment_survival(self, kind: str, tokens: Sequence[float]) -> list[float]:
        """Return the chance that a segment of this kind has at least so many tokens, for each."""
        lengths = self._segments.find(kind) or self._segments.together
        return [lengths.reaches(count) for count in tokens]

    def pause(self, key: str, tool: str | None, calls: int | None = None) -> Durations:
        """Return the durations of the tool's pauses, the same for all sessions."""
        return self._pauses.durations_for(tool)

    def observe_segment(self, about: About, decoded_tokens: int, called: bool) -> None:
        """Learn a segment's length; raises `ValueError` if it is negative."""
        self._segments.together.observe(decoded_tokens)
        self._segments.learn(about.kind).observe(decoded_tokens)

    def observe_result(self, tool: str | None, tokens: int) -> None:
        """Learn a result's length; raises `ValueError` if it is negative."""
        self._results.together.observe(tokens)
        self._results.learn(tool or "").observe(tokens)

    def observe_pause(self, key: str, tool: str | None, seconds: float) -> None:
        """Learn a pause's duration; raises `ValueError` if it is not finite."""
        self._pauses.observe(tool, seconds)

    def observe_end(self, about: About, kinds: Collection[str]) -> None:
        """Learn a session's number of calls for all its kinds; raises `ValueError` below 0."""
        for kind in sorted(kinds):
            self._calls.observe_end(kind, about.calls)

    def observe_abort(self, key: str) -> None:
        """Ignore the session, whose number of calls is unknown."""

    def _discount(self, kind: str, durations: Durations) -> float:
        """Return the discount of pauses of a kind; a new observation recomputes it."""
        known = self._discounts.get(kind)
        if known is None or known[0] is not durations:
            if len(self._discounts) >= MAX_KINDS:
                self._discounts.clear()
            known = self._discounts[kind] = durations, pause_discount(durations)
        return known[1]

    def to_wire(self) -> dict[str, Any]:
        """Return plain data for a file; the pauses are kept separately."""
        return {
            "segments": self._segments.to_wire(),
            "results": self._results.to_wire(),
            "calls": self._calls.kinds.to_wire(),
        }

    def restore(self, wire: Mapping[str, Any]) -> None:
        """Load the data that `to_wire` wrote, or raise `ValueError` and change nothing."""
        if not isinstance(wire, Mapping):
            raise ValueError(f"a record of sessions must be an object, got {wire!r:.200}")
        segments, results, calls = _lengths(), _lengths(), Calls()
        segments.restore(wire.get("segments", {}), Lengths.from_wire)
        results.restore(wire.get("results", {}), Lengths.from_wire)
        calls.kinds.restore(wire.get("calls", {}), CallCounts.from_wire)
        self._segments, self._results, self._calls.kinds = segments, results, calls.kinds
