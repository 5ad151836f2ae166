"""Expects of a session what became of those before it, by kind and by tool.

Nothing of the session itself is looked at but what it did: an agent's traffic is a few kinds of
sessions, and which kind tells more than its prompt. What it costs to ask does not depend on how
much has been seen.
"""

from collections.abc import Mapping
from math import exp
from typing import Any

from caesura.intercept.kv.pause_durations import Durations
from caesura.scheduler.predict.calls import PRIOR_CALLS, CallCounts, Calls
from caesura.scheduler.predict.forecast import About, Forecast
from caesura.scheduler.predict.kinds import MAX_KINDS, Kinds
from caesura.scheduler.predict.lengths import WINDOW, Lengths
from caesura.scheduler.predict.pause import PausePredictor

HORIZON_SECONDS = 60.0
"""H of E[1 - exp(-T / H)]: `Forecast.pause_discount`."""

PRIOR_TOKENS = 100.0
KIND_WEIGHT = 2.0
KIND_WINDOW = 256


def pause_discount(durations: Durations) -> float:
    """Return E[1 - exp(-T / `HORIZON_SECONDS`)] of a pause T, from 0 (none) to 1 (endless).

    Over the sample, and over the prior as the exponential pause of mean m that it is, which gives
    m / (m + H).
    """
    seen = durations.count - sum(exp(-seconds / HORIZON_SECONDS) for seconds in durations.sample)
    tail_mean, weight = durations.tail_mean, durations.prior_weight
    unseen = weight * tail_mean / (tail_mean + HORIZON_SECONDS)
    return (seen + unseen) / (durations.count + weight)


def _lengths() -> Kinds[Lengths]:
    """Return lengths by kind; a new kind is taken for one like all others."""
    together = Lengths(PRIOR_TOKENS, KIND_WEIGHT, WINDOW)
    return Kinds(together, lambda all_: Lengths(max(1.0, all_.mean), KIND_WEIGHT, KIND_WINDOW))


class History:
    """Learns lengths, results and numbers of calls; pauses are `pauses`, which may be shared.

    A session's `kind` is looked up among the tools too, since it is the tool that it called last:
    agents mostly call the same one again. A kind or tool of which nothing is known is taken for
    the mean of what is. The `MAX_KINDS` that were seen last are remembered. `calls` is how many
    calls are expected of a session before any has ended.
    """

    name = "history"

    def __init__(self, pauses: PausePredictor | None = None, calls: float = PRIOR_CALLS) -> None:
        self._pauses = PausePredictor() if pauses is None else pauses
        self._calls = Calls(calls)
        self._segments = _lengths()
        self._results = _lengths()
        self._discounts: dict[str, tuple[Durations, float]] = {}

    def forecast(self, about: About) -> Forecast:
        """Return what sessions of that kind did from there on."""
        segments = self._segments.find(about.kind) or self._segments.together
        results = self._results.find(about.kind) or self._results.together
        durations = self._pauses.durations_for(about.kind)
        return Forecast(
            decode_tokens=segments.remaining(about.decoded_tokens),
            segment_tokens=segments.mean,
            result_tokens=results.mean,
            pause_seconds=durations.mean,
            pause_discount=self._discount(about.kind, durations),
            ends=self._calls.ends(about.kind, about.calls),
        )

    def pause(self, key: str, tool: str | None, calls: int | None = None) -> Durations:
        """Return what is known of the tool's pauses; the session does not matter."""
        return self._pauses.durations_for(tool)

    def observe_segment(self, kind: str, decoded_tokens: int) -> None:
        """A segment has ended; raises `ValueError` if its tokens are below zero."""
        self._segments.together.observe(decoded_tokens)
        self._segments.learn(kind).observe(decoded_tokens)

    def observe_result(self, tool: str | None, tokens: int) -> None:
        """A tool has returned; raises `ValueError` if its tokens are below zero."""
        self._results.together.observe(tokens)
        self._results.learn(tool or "").observe(tokens)

    def observe_pause(self, tool: str | None, seconds: float) -> None:
        """A tool has kept its caller waiting; raises `ValueError` if `seconds` is not finite."""
        self._pauses.observe(tool, seconds)

    def observe_end(self, kind: str, calls: int) -> None:
        """A session has ended; raises `ValueError` if its calls are below zero.

        It is told for every kind that the session has been of.
        """
        self._calls.observe_end(kind, calls)

    def _discount(self, kind: str, durations: Durations) -> float:
        """Return the pause's discount; it is made anew when the predictor knows more."""
        known = self._discounts.get(kind)
        if known is None or known[0] is not durations:
            if len(self._discounts) >= MAX_KINDS:
                self._discounts.clear()
            known = self._discounts[kind] = durations, pause_discount(durations)
        return known[1]

    def to_wire(self) -> dict[str, Any]:
        """Return plain data for a file, without the pauses: they have their own."""
        return {
            "segments": self._segments.to_wire(),
            "results": self._results.to_wire(),
            "calls": self._calls.kinds.to_wire(),
        }

    def restore(self, wire: Mapping[str, Any]) -> None:
        """Take over what `to_wire` wrote, or raise `ValueError` and change nothing."""
        if not isinstance(wire, Mapping):
            raise ValueError("not a record of sessions")
        segments, results, calls = _lengths(), _lengths(), Calls()
        segments.restore(wire.get("segments", {}), Lengths.from_wire)
        results.restore(wire.get("results", {}), Lengths.from_wire)
        calls.kinds.restore(wire.get("calls", {}), CallCounts.from_wire)
        self._segments, self._results, self._calls.kinds = segments, results, calls.kinds
