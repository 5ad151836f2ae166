"""A predictor that may fail: after its first exception another predictor takes its place.

Predictions change only the order and the handling of requests, so an error in one must not end
the engine. What the predictor had learned is lost to its successor, unless both share it.
"""

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from caesura.intercept.kv.pause_durations import Durations
from caesura.scheduler.predict.forecast import About, Forecast, Mixed, Predictor

T = TypeVar("T")


class Guarded:
    """Uses `predictor` until it raises an exception, and from then on `make_successor()`.

    `report` is called once, with the exception.
    """

    def __init__(
        self,
        predictor: Predictor,
        make_successor: Callable[[], Predictor],
        report: Callable[[Exception], None],
    ) -> None:
        self._predictor = predictor
        self._make_successor = make_successor
        self._report = report
        self._failed = False

    @property
    def name(self) -> str:
        """Return the name of the predictor in use."""
        return self._predictor.name

    def forecast(self, about: About) -> Forecast:
        """Return the forecast of the predictor in use."""
        return self._try(lambda predictor: predictor.forecast(about))

    def parts(self, about: About) -> Mapping[str, Forecast]:
        """Return the forecasts of the parts of the predictor in use, if it is mixed."""
        return self._try(lambda one: one.parts(about) if isinstance(one, Mixed) else {})

    def pause(self, key: str, tool: str | None, calls: int | None = None) -> Durations:
        """Return the durations that the predictor in use expects."""
        return self._try(lambda predictor: predictor.pause(key, tool, calls))

    def observe_segment(self, about: About, decoded_tokens: int, called: bool) -> None:
        """Forward the observation."""
        self._try(lambda predictor: predictor.observe_segment(about, decoded_tokens, called))

    def observe_result(self, tool: str | None, tokens: int) -> None:
        """Forward the observation."""
        self._try(lambda predictor: predictor.observe_result(tool, tokens))

    def observe_pause(self, key: str, tool: str | None, seconds: float) -> None:
        """Forward the observation."""
        self._try(lambda predictor: predictor.observe_pause(key, tool, seconds))

    def observe_end(self, about: About, kinds: Collection[str]) -> None:
        """Forward the observation."""
        self._try(lambda predictor: predictor.observe_end(about, kinds))

    def observe_abort(self, key: str) -> None:
        """Forward the observation."""
        self._try(lambda predictor: predictor.observe_abort(key))

    def _try(self, ask: Callable[[Predictor], T]) -> T:
        """Return the answer; a first exception makes the successor answer, a second is raised."""
        if self._failed:
            return ask(self._predictor)
        try:
            return ask(self._predictor)
        except Exception as error:  # a predictor of a user's own can raise any exception
            self._failed = True
            self._report(error)
            self._predictor = self._make_successor()
            return ask(self._predictor)
