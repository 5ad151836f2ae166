"""The measures, against the same thing counted out."""

from itertools import combinations

import numpy as np
import pytest

from caesura.scheduler.prompt_lengths.objectives import QUANTILES, Lengths
from caesura.scheduler.prompt_lengths.scores import explainable, measure, order
from caesura.scheduler.prompt_lengths.training import Row


def test_order_counted_out() -> None:
    random = np.random.default_rng(0)
    said, truth = random.integers(0, 6, 40).astype(float), random.integers(0, 6, 40).astype(float)
    pairs = list(combinations(range(40), 2))
    agree = sum(np.sign(said[a] - said[b]) * np.sign(truth[a] - truth[b]) for a, b in pairs)
    told = sum(said[a] != said[b] for a, b in pairs)
    differ = sum(truth[a] != truth[b] for a, b in pairs)
    tau, right = order(said, truth)
    assert tau == pytest.approx(agree / (told * differ) ** 0.5)
    assert right == pytest.approx((agree / differ + 1) / 2)
    assert order(truth, truth) == (1.0, 1.0)
    assert order(-truth, truth) == (-1.0, 0.0)
    assert order(np.zeros(40), truth) == (0.0, 0.5)


def test_what_prompts_explain_is_found_again() -> None:
    random = np.random.default_rng(2)
    prompts = random.normal(1000, 60, 4000)
    rows = [
        Row(str(i), tuple(int(m + e) for e in random.normal(0, 30, 3)))
        for i, m in enumerate(prompts)
    ]
    assert explainable(rows) == pytest.approx(3600 / 4500, abs=0.02)
    assert explainable([Row("a", (5, 5)), Row("b", (9, 9))]) == 1.0
    assert explainable([Row("a", (5, 9)), Row("b", (9, 5))]) == 0.0
    assert explainable([Row("a", (5,)), Row("b", (9,))]) is None


def test_measures_of_known_predictions() -> None:
    rows = [Row("a", (10, 20)), Row("b", (110,)), Row("c", (300,))]
    point = np.array([12.0, 100.0, 300.0])
    lengths = Lengths(point, np.outer(point, np.linspace(0.5, 1.5, QUANTILES)))
    scores = measure(rows, lengths, (15.0, 100.0, 200.0, 1000.0))
    assert scores.outputs == 4
    assert scores.l1 == pytest.approx((2 + 8 + 10 + 0) / 4)
    assert scores.within_5 == 0.5 and scores.within_15 == 1.0
    assert scores.accuracy == 0.75  # the output of 20 tokens is a class above the 12 predicted
    assert scores.tau == pytest.approx(5 / (6 * 5) ** 0.5)
    assert scores.covered_80 == 0.75  # 20 lies above 1.4 x 12
    assert scores.r2 == pytest.approx(
        1 - (4 + 64 + 100) / ((np.array([10, 20, 110, 300]) - 110) ** 2).sum()
    )
