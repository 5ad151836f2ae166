"""The search for the best plan, its checks over several draws, and why the next best lost."""

import pytest

from caesura.planning.search.problem import PlanError
from caesura.planning.search.strategies import (
    RULES,
    STRATEGIES,
    Effort,
    SearchOptions,
    plan_application,
)
from caesura.planning.stage_times import Progress
from tests.planning.search.factory import Factory, application

WORKS = [
    ({"a": 40, "b": 3, "c": 9, "d": 5, "e": 20}, {}),
    ({"a": 5, "b": 5, "c": 30}, {}),
    ({"write": 20, "judge": 20, "other": 15}, {"judge": "write"}),
    ({"a": 12}, {}),
]


def planned(models, needs=None, strategy="best", devices=4, draws=1, **how):
    made, requests = application(models, needs)
    simulators = [
        # Other output lengths make a model slower or faster.
        Factory(
            requests,
            {name: 1.0 + 0.1 * ((number + draw) % 3) for number, name in enumerate(models)},
            loading=2.0,
        )
        for draw in range(draws)
    ]
    options = SearchOptions(strategy, **how)
    return plan_application(made, requests, devices, simulators, options=options)


@pytest.mark.parametrize(("models", "needs"), WORKS)
def test_the_best_plan_is_at_least_as_short_as_that_of_every_rule(models, needs):
    best = planned(models, needs, draws=3)
    for name in RULES:
        assert best.plan.makespan.mean <= planned(models, needs, name, draws=3).plan.makespan.mean


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_plans_every_model_within_the_devices(strategy):
    found = planned(*WORKS[2], strategy=strategy).plan
    assert {one.model for stage in found.stages for one in stage.placements} == set(WORKS[2][0])
    assert all(stage.devices <= 4 for stage in found.stages)


def test_the_search_is_shorter_where_the_rules_choose_badly():
    # Even shares in the order of the application start the longest model last.
    late = {"a": 10, "b": 10, "c": 10, "d": 10, "long": 40}
    best = planned(late, draws=2).plan.makespan.mean
    assert best < 0.9 * planned(late, strategy="min", draws=2).plan.makespan.mean


def test_two_searches_find_the_same_plan():
    assert planned(*WORKS[0], draws=2) == planned(*WORKS[0], draws=2)


def test_a_makespan_is_the_mean_of_the_draws_between_its_ends():
    spread = planned(*WORKS[0], draws=3).plan.makespan
    assert spread.low < spread.mean < spread.high


def test_the_next_best_plan_lost_by_a_reason_with_numbers():
    found = planned(*WORKS[0])
    assert found.next_best is not None
    lost = found.next_best.makespan.mean - found.plan.makespan.mean
    assert lost > 0
    assert found.next_best.strategy in found.reason
    assert f"{lost:.1f} s" in found.reason


def test_plans_that_are_as_good_are_no_next_best():
    alone = planned(*WORKS[3], devices=1)
    assert len(alone.checked) > 1
    assert alone.next_best is None
    assert alone.reason == ""


def test_a_search_ends_when_its_effort_is_spent():
    small = planned(*WORKS[0], effort=Effort(stages=200))
    large = planned(*WORKS[0])
    assert small.simulated < large.simulated
    assert small.plan.makespan.mean >= large.plan.makespan.mean


def test_a_search_tells_how_far_it_is():
    told = []
    best = planned(*WORKS[0], watch=lambda part, seconds: told.append((part, seconds)))
    parts = [part for part, _ in told]
    assert parts == sorted(parts)
    assert told[-1][1] == pytest.approx(best.plan.makespan.mean)


def test_planning_goes_on_from_what_has_finished():
    made, requests = application(WORKS[0][0])
    world = Factory(requests, dict.fromkeys(WORKS[0][0], 1.0), loading=2.0)
    whole = plan_application(made, requests, 4, [world])
    progress = world.run(whole.plan.stages[0].placements, Progress()).after
    rest = plan_application(made, requests, 4, [world], progress=progress)
    assert rest.plan.makespan.mean <= whole.plan.makespan.mean - progress.seconds + 1e-9


def test_an_unknown_strategy_is_named():
    with pytest.raises(PlanError, match="unknown strategy 'fast'; choose from: best, greedy"):
        planned(*WORKS[3], strategy="fast")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_model_that_asks_another_runs_beside_it_until_its_end(strategy):
    made, requests = application({"agent": 12, "other": 6, "expert": 0}, asks={"agent": "expert"})
    world = Factory(requests, dict.fromkeys(("agent", "other", "expert"), 1.0), loading=1.0)
    options = SearchOptions(strategy)
    found = plan_application(made, requests, 3, [world], options=options)
    for stage in found.plan.stages:
        placed = {one.model for one in stage.placements}
        assert ("expert" in placed) == ("agent" in placed)
    assert sum("agent" in stage.finishes for stage in found.plan.stages) == 1
    alone = "needs at least|finishes no request"
    with pytest.raises(PlanError, match=alone):
        plan_application(made, requests, 1, [world], options=options)
