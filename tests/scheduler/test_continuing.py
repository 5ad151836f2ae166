"""The settings for the rest of a turn whose engine died."""

from caesura.scheduler.messages import Sampling
from caesura.scheduler.vllm.client.request import MAX_SEED, behind


def test_limits_count_what_was_sampled() -> None:
    given = Sampling(max_tokens=10, min_tokens=4)
    assert behind(given, []) is given
    assert behind(given, [7] * 3) == Sampling(max_tokens=7, min_tokens=1)
    assert behind(given, [7] * 9) == Sampling(max_tokens=1, min_tokens=0)
    assert behind(Sampling(), [7]) == Sampling()


def test_random_numbers_are_not_used_twice() -> None:
    assert behind(Sampling(seed=5), [1, 2]).seed == 7
    assert behind(Sampling(seed=MAX_SEED - 1), [1]).seed == 0


def test_penalties_go_on_as_biases() -> None:
    given = Sampling(frequency_penalty=0.5, presence_penalty=1.0, logit_bias={1: 3.0, 9: 1.0})
    assert behind(given, [1, 2, 2]).logit_bias == {1: 1.5, 9: 1.0, 2: -2.0}
    assert behind(given, [1, 2, 2]).frequency_penalty == 0.5
    assert behind(Sampling(repetition_penalty=1.3), [1]).logit_bias == {}
