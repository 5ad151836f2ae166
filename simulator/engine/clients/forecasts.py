"""Forecasts of calls on their way to the scheduler, as the API process sends them."""

from collections.abc import Sequence

from vllm.v1.core.sched.scheduler import Scheduler

from caesura.scheduler.vllm.engine.scheduler import PausingScheduler
from caesura.simulator.engine.clients.live import Live
from caesura.simulator.forecasts import Call, Forecaster
from caesura.simulator.session import Session

__all__ = ["Forecaster", "Foretold"]


class Foretold:
    """Asks a forecaster about each call, and tells the scheduler while the session is paused."""

    def __init__(self, forecaster: Forecaster, scheduler: Scheduler) -> None:
        """Create it; a stock scheduler is told nothing."""
        self._forecaster = forecaster
        self._pauses = scheduler.parts.pauses if isinstance(scheduler, PausingScheduler) else None
        self._open: dict[str, Call] = {}

    def paused(
        self, live: Live, request_id: str, asked: Sequence[Session], load: int, now: float
    ) -> None:
        """Forecast the call with which a session has paused."""
        call = Call(live.session, live.index, tuple(asked), load, now)
        self._open[live.session.key] = call
        seconds = self._forecaster.forecast(call)
        if seconds is not None and self._pauses is not None:
            self._pauses.expect(request_id, seconds)

    def returned(self, live: Live, at: float) -> None:
        """Learn that a session's call returns at the second `at`."""
        call = self._open.pop(live.session.key)
        self._forecaster.returned(call, at - call.at)
