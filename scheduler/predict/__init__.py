"""What is expected of what has not happened yet, learned from what has."""

from collections.abc import Callable
from functools import partial

from caesura.scheduler.named import make_named
from caesura.scheduler.predict.forecast import Predictor
from caesura.scheduler.predict.history import History
from caesura.scheduler.predict.oracle import QUANTITIES, Oracle
from caesura.scheduler.predict.pause import PausePredictor
from caesura.scheduler.predict.truth import Plan

DEFAULT_PREDICTOR = "history"

Truth = Callable[[str], Plan | None]
"""Returns the plan of the session of that key, if there is one."""


def make_predictor(
    spec: str, pauses: PausePredictor | None = None, truth: Truth | None = None
) -> Predictor:
    """Return the predictor of that name: `history`, or `oracle:error=0.3,knows=pauses+calls`.

    `pauses` is what is known of tools' pauses already, and learns on. An oracle needs the `truth`.
    Raises `ValueError` that says what is wrong.
    """

    def oracle(error: float = 0.0, seed: int = 0, knows: str = "+".join(QUANTITIES)) -> Predictor:
        if truth is None:
            raise ValueError("only a simulation knows what will happen")
        return Oracle(truth, History(pauses), error, seed, knows.split("+"))

    known: dict[str, Callable[..., Predictor]] = {
        "history": partial(History, pauses),
        "oracle": oracle,
    }
    return make_named(spec, known, "prediction")
