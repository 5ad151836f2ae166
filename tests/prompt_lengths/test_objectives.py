"""Losses and their gradients, and the way from outputs to lengths."""

import numpy as np
import pytest

from caesura.scheduler.prompt_lengths.objectives import (
    BINS,
    OBJECTIVES,
    QUANTILES,
    Bands,
    Classes,
    ClassSpread,
    classes_of,
    fit_spread,
    make_objective,
    spread_from,
)

TOKENS = np.array([3.0, 40.0, 12.0, 700.0, 41.0, 90.0])


@pytest.mark.parametrize("name", OBJECTIVES)
def test_gradients_are_those_of_the_loss(name: str) -> None:
    objective = make_objective(name, TOKENS)
    outputs = np.random.default_rng(0).normal(size=(len(TOKENS), objective.width))
    _, gradient = objective.loss(outputs, TOKENS)
    assert gradient.shape == outputs.shape
    small = 1e-6
    for place in list(np.ndindex(*outputs.shape))[:60]:
        moved = outputs.copy()
        moved[place] += small
        above, _ = objective.loss(moved, TOKENS)
        moved[place] -= 2 * small
        below, _ = objective.loss(moved, TOKENS)
        assert gradient[place] == pytest.approx((above - below) / (2 * small), abs=1e-5)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_start_is_the_best_constant(name: str) -> None:
    objective = make_objective(name, TOKENS)
    start = objective.start(TOKENS)
    best, _ = objective.loss(np.tile(start, (len(TOKENS), 1)), TOKENS)
    for change in (-0.1, 0.1):
        moved = start.copy()
        moved[0] += change
        assert objective.loss(np.tile(moved, (len(TOKENS), 1)), TOKENS)[0] >= best - 0.02


@pytest.mark.parametrize("name", ["listmle", "margin"])
def test_the_right_order_costs_least(name: str) -> None:
    objective = make_objective(name, TOKENS)
    ranks = np.argsort(np.argsort(TOKENS)).astype(float)[:, None]
    right, _ = objective.loss(ranks, TOKENS)
    assert right < objective.loss(-ranks, TOKENS)[0]
    assert right < objective.loss(np.zeros_like(ranks), TOKENS)[0]


def test_classes_are_those_of_the_papers() -> None:
    bins = make_objective("bins", TOKENS)
    assert bins.width == BINS
    assert isinstance(bins, Classes)
    assert classes_of(np.array([0, 9, 10, 499, 9999]), bins.edges).tolist() == [0, 0, 1, 49, 49]
    assert make_objective("classes", TOKENS).width == 5
    with pytest.raises(ValueError, match=r"must be one of l1, .*got 'best'"):
        make_objective("best", TOKENS)


def test_bands_follow_the_choose_part() -> None:
    random = np.random.default_rng(1)
    score = random.normal(size=4000)
    tokens = np.exp(4 + score + 0.5 * random.normal(size=4000))
    spread = fit_spread(make_objective("listmle", tokens), tokens, score[:, None], tokens)
    lengths = spread.lengths(np.array([[-1.0], [0.0], [1.0]]))
    assert lengths.quantiles.shape == (3, QUANTILES)
    assert (np.diff(lengths.quantiles, axis=1) >= 0).all()
    assert lengths.tokens == pytest.approx(np.exp([3.0, 4.0, 5.0]), rel=0.15)
    assert lengths.means == pytest.approx(np.exp([3.125, 4.125, 5.125]), rel=0.2)


def test_a_regression_gives_its_output_as_the_length() -> None:
    objective = make_objective("l1", TOKENS)
    spread = fit_spread(objective, TOKENS, np.ones((6, 1)), TOKENS)
    assert spread.lengths(np.array([[0.5], [-1.0]])).tokens == pytest.approx([TOKENS.mean() / 2, 0])


def test_classes_bring_their_distribution() -> None:
    trained = np.array([1.0, 4.0, 15.0, 600.0, 620.0])
    objective = make_objective("bins", trained)
    spread = fit_spread(objective, trained, np.zeros((1, BINS)), trained)
    outputs = np.full((1, BINS), -50.0)
    outputs[0, [0, 49]] = 0
    lengths = spread.lengths(outputs)
    assert lengths.quantiles[0, :8].max() <= 10 and lengths.quantiles[0, 8:].min() >= 490
    outputs[0, 49] = 1
    assert lengths.means[0] < spread.lengths(outputs).means[0]
    assert spread.lengths(outputs).tokens[0] == 610


@pytest.mark.parametrize("name", ["mse", "classes", "margin"])
def test_a_map_survives_a_file(name: str) -> None:
    objective = make_objective(name, TOKENS)
    outputs = np.random.default_rng(0).normal(size=(6, objective.width))
    spread = fit_spread(objective, TOKENS, outputs, TOKENS)
    again = spread_from(spread.to_wire(), objective.width)
    assert isinstance(again, Bands | ClassSpread)
    assert (again.lengths(outputs).quantiles == spread.lengths(outputs).quantiles).all()


@pytest.mark.parametrize(
    "wire",
    [
        {},
        {"bounds": [0, 1], "typical": [1, 2]},
        {"centres": [0], "table": [[1.0]], "scale": 0},
        {"centres": [], "table": [], "scale": 0},
        {"bounds": [0, float("inf")], "typical": [1]},
        {"bounds": "many", "typical": [1]},
    ],
)
def test_a_broken_map_is_refused(wire: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"map|convert"):
        spread_from(wire, 1)
