"""Predictors of output lengths, result lengths, pauses and the number of calls of sessions."""

from collections.abc import Callable
from functools import partial

from caesura.scheduler.named import make_named
from caesura.scheduler.predict.forecast import Predictor
from caesura.scheduler.predict.hazard import Hazard
from caesura.scheduler.predict.history import History
from caesura.scheduler.predict.pause import PausePredictor

DEFAULT_PREDICTOR = "history"


def make_predictor(spec: str, pauses: PausePredictor | None = None) -> Predictor:
    """Return the predictor of a spec: `history`, `hazard`, or a class to import.

    `pauses` holds the observed pauses and continues to learn. Raises `ValueError` that says what
    is wrong. Only the simulator can make the `oracle`.
    """

    known: dict[str, Callable[..., Predictor]] = {
        "history": partial(History, pauses),
        "hazard": partial(Hazard, pauses),
        "oracle": _oracle,
    }
    return make_named(spec, known, "prediction")


def _oracle(**_: object) -> Predictor:
    raise ValueError("oracle works only in a simulation, which knows the future; use history")
