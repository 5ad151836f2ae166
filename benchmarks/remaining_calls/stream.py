"""Drive a predictor over recorded sessions in order of time, and keep what it expected."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.remaining_calls.sessions import Recorded
from caesura.scheduler.predict.forecast import About, Forecast, Predictor, forecasts_by_name

FEW_CALLS = 3


@dataclass(frozen=True, slots=True)
class Expected:
    """What was expected at the begin of a turn: calls, few calls, tokens, a long pause."""

    calls: float
    few: float
    tokens: float
    long_pause: float


Rows = dict[tuple[int, int], Expected]
"""By session and turn."""


@dataclass(slots=True)
class Costs:
    """The microseconds of CPU that a predictor took: of every forecast and every observation."""

    forecasts: list[float]
    observations: list[float]


def play(sessions: Sequence[Recorded], predictor: Predictor) -> tuple[dict[str, Rows], Costs]:
    """Return what the predictor and its parts expected of every turn, by name, and its costs.

    Each turn is predicted before anything later is learned.
    """
    rows: dict[str, Rows] = {}
    costs = Costs([], [])
    for _, index, place in _events(sessions):
        session = sessions[index]
        about = _about(session, max(0, place - 1))
        if place:
            _timed(costs.observations, _learner(predictor, session, place - 1, about))
        if place < len(session.turns):
            about = _about(session, place)
            _timed(costs.forecasts, lambda about=about: predictor.forecast(about))
            for name, forecast in forecasts_by_name(predictor, about).items():
                rows.setdefault(name, {})[index, place] = _expected(forecast)
    return rows, costs


def _events(sessions: Sequence[Recorded]) -> list[tuple[float, int, int]]:
    """Return (second, session, turn) of the begins of turns, and of ends as one turn more."""
    events = []
    for index, session in enumerate(sessions):
        begins = [turn.begin for turn in session.turns]
        events += [(begin, index, place) for place, begin in enumerate(begins)]
        events.append((session.end, index, len(begins)))
    return sorted(events)


def _about(session: Recorded, place: int) -> About:
    facts = session.turns[place].facts
    return About(session.key, facts.tool or session.kind, facts.calls, 0, facts)


def _learner(
    predictor: Predictor, session: Recorded, place: int, about: About
) -> Callable[[], None]:
    """Return a function that tells the predictor of a turn, its result, and its pause or end."""
    turn, last = session.turns[place], place == len(session.turns) - 1

    def learn() -> None:
        predictor.observe_segment(about, turn.tokens, not last)
        if last:
            predictor.observe_end(about, {session.kind, about.kind})
            return
        if turn.pause is not None:
            predictor.observe_pause(session.key, turn.tool, turn.pause)
        predictor.observe_result(turn.tool, turn.result_tokens)

    return learn


def _expected(forecast: Forecast) -> Expected:
    quantiles = forecast.decode_quantiles
    middle = quantiles[len(quantiles) // 2] if quantiles else forecast.decode_tokens
    few = forecast.ends_within(FEW_CALLS)
    return Expected(forecast.calls_left(), few, middle, forecast.long_pause)


def _timed(into: list[float], call: Callable[[], object]) -> None:
    began = time.thread_time()
    call()
    into.append(1e6 * (time.thread_time() - began))
