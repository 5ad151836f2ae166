"""Forecasts with the lengths that prompts tell."""

import pytest

from caesura.scheduler.predict.forecast import About, forecasts_by_name
from caesura.scheduler.predict.history import History
from caesura.scheduler.predict.prompt import MIN_COMPARED, PROMPT, PromptLengths


class Known:
    def __init__(self, **answers: tuple[float, ...]) -> None:
        self.answers = answers

    def find(self, key: str) -> tuple[float, ...] | None:
        return self.answers.get(key)

    def forget(self, key: str) -> None:
        self.answers.pop(key, None)


def about(key: str = "a", calls: int = 0, decoded: int = 0) -> About:
    return About(key, "search", calls, decoded)


def test_an_answer_replaces_the_length_of_the_first_segment() -> None:
    predictor, history = PromptLengths(History(), Known(a=(100.0, 200.0, 600.0))), History()
    forecast = predictor.forecast(about())
    assert forecast.decode_tokens == 300 and forecast.decode_quantiles == (100, 200, 600)
    assert forecast.ends == history.forecast(about()).ends
    later = predictor.forecast(about(decoded=150))
    assert later.decode_quantiles == (50, 450) and later.decode_tokens == 250
    for other in (about("b"), about(calls=1), about(decoded=600)):
        assert predictor.forecast(other) == history.forecast(other)


def test_all_else_is_learned_by_the_other_predictor() -> None:
    answers = Known(a=(10.0,), b=(10.0,), c=(10.0,))
    history = History()
    predictor = PromptLengths(history, answers)
    for _ in range(30):
        predictor.observe_result("search", 900)
        predictor.observe_pause("a", "search", 40.0)
    predictor.observe_segment(about("a"), 70, True)
    predictor.observe_end(about("b"), {"search"})
    predictor.observe_abort("c")
    assert not answers.answers
    forecast = predictor.forecast(about())
    assert forecast.result_tokens > 700 and forecast.pause_seconds > 30
    assert predictor.pause("a", "search").mean > 30
    assert forecast == history.forecast(about())


def test_answers_that_are_worse_than_the_history_are_not_used() -> None:
    answers = Known()
    predictor = PromptLengths(History(), answers)
    for number in range(MIN_COMPARED + 5):
        answers.answers[f"s{number}"] = (5000.0,)
        predictor.observe_segment(about(f"s{number}"), 80, False)
    answers.answers["next"] = (5000.0,)
    assert predictor.forecast(about("next")).decode_tokens < 200
    for number in range(300):
        answers.answers[f"t{number}"] = (float(number),)
        predictor.observe_segment(about(f"t{number}"), number, False)
    assert predictor.forecast(about("next")).decode_tokens == 5000


def test_the_forecasts_of_both_are_shown() -> None:
    predictor = PromptLengths(History(), Known(a=(7.0,)))
    shown = forecasts_by_name(predictor, about())
    assert set(shown) == {"history", PROMPT, "history+prompt"}
    assert shown[PROMPT].decode_tokens == 7 == shown["history+prompt"].decode_tokens
    assert shown["history"].decode_tokens == pytest.approx(100)
    assert set(forecasts_by_name(predictor, about("b"))) == {"history", "history+prompt"}
