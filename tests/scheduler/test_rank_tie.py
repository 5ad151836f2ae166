"""The tail-inflated ranking: a long tail counts, where a predictor knows the distribution."""

from dataclasses import replace

import pytest

from caesura.scheduler.policy.names import make_ranking
from caesura.scheduler.policy.ranking import Queued, inflated_tokens

from .queues import queued, score


def spread(*lengths: float) -> Queued:
    """A request whose tokens left have these equally likely values."""
    one = queued(decode_tokens=sum(lengths) / len(lengths))
    return replace(one, forecast=replace(one.forecast, decode_quantiles=lengths))


def test_of_equal_means_the_shorter_tail_goes_first() -> None:
    even, heavy = spread(90, 100, 100, 110), spread(10, 10, 10, 370)
    assert score("tie", even) < score("tie", heavy)
    assert score("tie:inflation=0", even)[0] == score("tie:inflation=0", heavy)[0] == 100


def test_the_tail_is_the_mean_of_the_longest_share() -> None:
    forecast = spread(10, 20, 30, 140).forecast
    assert inflated_tokens(forecast, 1.0, 0.25) == 140
    assert inflated_tokens(forecast, 1.0, 0.5) == 85
    assert inflated_tokens(forecast, 0.5, 0.25) == 50 + 0.5 * 90


def test_without_a_distribution_it_is_the_mean() -> None:
    assert score("tie", queued(decode_tokens=70.0))[0] == 70.0


@pytest.mark.parametrize("spec", ["tie:inflation=-1", "tie:tail=0", "tie:tail=1.5"])
def test_parameters_that_make_no_sense(spec: str) -> None:
    with pytest.raises(ValueError, match=f"ranking '{spec}'"):
        make_ranking(spec)
