"""Predictors that have learned from recorded sessions, for schedulers that make them by name."""

from collections.abc import Callable, Sequence
from copy import deepcopy

from benchmarks.remaining_calls.sessions import Recorded
from benchmarks.remaining_calls.stream import play
from caesura.scheduler.predict.forecast import Predictor
from caesura.scheduler.predict.hazard import Hazard
from caesura.scheduler.predict.history import History

_learned: dict[str, Predictor] = {}


def teach(sessions: Sequence[Recorded]) -> None:
    """Let a predictor of each kind learn from the sessions."""
    makers: tuple[Callable[[], Predictor], ...] = (History, Hazard)
    for make in makers:
        predictor = make()
        play(sessions, predictor)
        _learned[predictor.name] = predictor


def history() -> Predictor:
    """Return a copy of the history that was taught."""
    return deepcopy(_learned["history"])


def hazard() -> Predictor:
    """Return a copy of the hazard predictor that was taught."""
    return deepcopy(_learned["hazard"])
