"""Predictors of output lengths, result lengths, pauses and the number of calls of sessions."""

from collections.abc import Callable
from functools import partial

from caesura.scheduler.named import make_named
from caesura.scheduler.predict.forecast import Predictor
from caesura.scheduler.predict.history import History
from caesura.scheduler.predict.pause import PausePredictor

DEFAULT_PREDICTOR = "history"


def make_predictor(spec: str, pauses: PausePredictor | None = None) -> Predictor:
    """Return the predictor of that name, `history` or a class that is imported.

    `pauses` is what is known of tools' pauses already, and learns on. Raises `ValueError` that
    says what is wrong; `oracle` is a predictor that only the simulator can make.
    """

    known: dict[str, Callable[..., Predictor]] = {
        "history": partial(History, pauses),
        "oracle": _oracle,
    }
    return make_named(spec, known, "prediction")


def _oracle(**_: object) -> Predictor:
    raise ValueError("only a simulation knows what will happen; use history")
