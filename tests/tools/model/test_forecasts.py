"""How the time of an answer is forecast by the load of the engine that gives it."""

import pytest

from caesura.tools.model import AnswerTimes, load_in

from .experts import METRICS


def test_the_load_is_what_runs_and_what_waits() -> None:
    assert load_in(METRICS, "expert") == 5


def test_the_load_of_the_named_model_counts_alone() -> None:
    other = METRICS.replace('"expert"', '"other"').replace("3.0", "40.0")
    assert load_in(METRICS + other, "expert") == 5
    assert load_in(METRICS, "its other name") == 5


@pytest.mark.parametrize("metrics", ["", "hello", "<html></html>", "vllm:num_requests_running x"])
def test_other_texts_say_nothing(metrics: str) -> None:
    assert load_in(metrics, "expert") is None


def test_answers_at_a_similar_load_count_most() -> None:
    times = AnswerTimes()
    for _ in range(5):
        times.observe(0, 1.0)
        times.observe(50, 20.0)
    assert times.forecast(0) == pytest.approx(1.0, rel=0.01)
    assert times.forecast(50) == pytest.approx(20.0, rel=0.01)


def test_a_load_that_was_never_seen_gives_only_what_was_expected() -> None:
    times = AnswerTimes()
    times.observe(0, 1.0)
    assert times.forecast(500) is None
    assert times.forecast(500, 9.0) == pytest.approx(9.0, rel=0.01)
    assert times.forecast(None, 9.0) == 9.0
    assert times.forecast(None) is None
