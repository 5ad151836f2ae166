"""A recorder of forecasts only, which compares them with the workload when the run has ended."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from vllm.v1.request import Request

from caesura.scheduler.accuracy.outcomes import (
    FEW_CALLS,
    LONG_SECONDS,
    QUANTITIES,
    Outcome,
    pairs_of,
)
from caesura.scheduler.accuracy.summary import accuracies
from caesura.scheduler.predict.forecast import About, Forecast
from caesura.scheduler.records import ForecastRecord
from caesura.scheduler.vllm.engine.export.entries import forecast_record
from caesura.scheduler.vllm.engine.sessions.recorder import Recorder
from caesura.scheduler.vllm.engine.sessions.session import SessionState
from caesura.simulator.session import Session, Workload


class ForecastRecorder(Recorder):
    """Keeps what was predicted of each segment when it was queued."""

    takes_forecasts = True

    def __init__(self, clock: Callable[[], float], workload: Workload) -> None:
        """Create it; `clock` returns the simulated second."""
        self._clock = clock
        self._sessions = {session.key: session for session in workload.sessions}
        self._made: list[ForecastRecord] = []

    def forecast(
        self,
        request: Request,
        session: SessionState,
        about: About,
        forecasts: Mapping[str, Forecast],
    ) -> None:
        """Keep what predictors, by their names, expect of a session that was just queued."""
        ids = request.request_id, session.session_id
        self._made.append(forecast_record(*ids, about, forecasts, self._clock()))

    def accuracies(self) -> list[dict[str, Any]]:
        """Return the accuracy of each predictor by quantity, as plain data.

        Sessions that the run cut off count too, since the workload says how they would go on.
        """
        return [each.public() for each in accuracies(self._outcomes())]

    def _outcomes(self) -> Iterator[Outcome]:
        for made in self._made:
            session = self._sessions.get(made.session)
            if session is None or made.calls >= len(session.segments):
                continue
            truth = _truth(session, made.calls)
            for quantity in QUANTITIES:
                if quantity in truth:
                    yield from pairs_of(made, quantity, truth[quantity])


def _truth(session: Session, calls: int) -> dict[str, float]:
    """Return what comes after `calls` calls, by quantity; the last segment has no pause."""
    segment, left = session.segments[calls], len(session.segments) - 1 - calls
    truth = {
        "decode_tokens": float(segment.decode_tokens),
        "calls_left": float(left),
        "ends_now": float(left == 0),
        "ends_within_3": float(left <= FEW_CALLS),
    }
    if left:
        truth["pause_seconds"] = segment.tool_seconds
        truth["long_pause"] = float(segment.tool_seconds > LONG_SECONDS)
    return truth
