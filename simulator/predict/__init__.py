"""Predictors in a simulation: an oracle that knows future sessions, and the scheduler's own."""

from collections.abc import Callable

from caesura.scheduler import predict
from caesura.scheduler.named import make_named
from caesura.scheduler.predict.forecast import Predictor
from caesura.scheduler.predict.history import History
from caesura.scheduler.predict.pause import PausePredictor
from caesura.simulator.predict.oracle import QUANTITIES, Oracle
from caesura.simulator.predict.truth import Plan

Truth = Callable[[str], Plan | None]
"""Returns the plan of the session with a key, or None if the session is unknown."""


def make_predictor(spec: str, truth: Truth, pauses: PausePredictor | None = None) -> Predictor:
    """Return the predictor of a spec: `oracle:error=0.3,knows=pauses+calls`, `history`, ...

    An oracle looks sessions up in `truth`. `pauses` holds observed pauses and continues to learn.
    Raises `ValueError` that says what is wrong.
    """

    def oracle(error: float = 0.0, seed: int = 0, knows: str = "+".join(QUANTITIES)) -> Predictor:
        return Oracle(truth, History(pauses), error, seed, knows.split("+"))

    if spec.partition(":")[0] != "oracle":
        return predict.make_predictor(spec, pauses)
    return make_named(spec, {"oracle": oracle}, "prediction")
