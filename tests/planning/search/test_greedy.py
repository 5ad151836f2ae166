"""The searches of SamuLLM's paper: Algorithm 1, its two heuristics, and no preemption."""

import pytest

from caesura.planning.plan import Placement
from caesura.planning.search.problem import Draft, PlanError, complete
from caesura.planning.search.samullm import even_splits, greedy, max_heuristic, min_heuristic
from caesura.planning.stage_times import Progress
from tests.planning.search.factory import problem

START = Progress()


def test_greedy_gives_each_added_device_to_the_largest_gain():
    # Four equal models scale sublinearly: one device each beats several devices for one.
    equal = problem({"a": 8, "b": 8, "c": 8, "d": 8})
    assert {(one.model, one.devices) for one in greedy(equal, START)} == {
        ("a", 1),
        ("b", 1),
        ("c", 1),
        ("d", 1),
    }


def test_greedy_stops_where_each_step_would_lower_the_throughput():
    # Beside a model that finishes after a second, a second model only loads in this stage.
    short = problem({"a": 100, "b": 2}, devices=2, loading=2.0, rates={"a": 1.0, "b": 0.9})
    stage = greedy(short, START)
    grown = {one.model: one.devices for one in stage}
    assert grown == {"a": 2}


def test_greedy_places_a_model_whose_inputs_run_in_the_same_stage():
    chain = problem({"write": 20, "judge": 20}, needs={"judge": "write"})
    stage = greedy(chain, START)
    assert {one.model for one in stage} == {"write", "judge"}
    assert stage[0].model == "write"


def test_a_completed_draft_finishes_every_request_once_and_adds_up():
    four = problem({"a": 9, "b": 5, "c": 3, "d": 7, "e": 4}, loading=1.0)
    for chooser in (greedy, max_heuristic, min_heuristic):
        draft = complete(four, chooser, Draft(START))
        assert len(draft.progress.finished) == 28
        assert sum(one.seconds for one in draft.stages) == pytest.approx(draft.progress.seconds)
        assert all(one.devices <= 4 for one in draft.stages)
        assert sorted(model for one in draft.stages for model in one.finishes) == list("abcde")


def test_max_heuristic_gives_all_devices_to_one_model_in_topological_order():
    chain = problem({"write": 6, "judge": 6, "other": 6}, needs={"judge": "write"})
    draft = complete(chain, max_heuristic, Draft(START))
    placed = [[(one.model, one.devices) for one in stage.placements] for stage in draft.stages]
    assert placed == [[("write", 4)], [("judge", 4)], [("other", 4)]]


def test_max_heuristic_takes_the_parallelism_that_finishes_soonest():
    world = problem({"a": 8}, degrees={"a": (1, 2, 4)}, memory={"a": 2})
    (chosen,) = max_heuristic(world, START)
    assert chosen.devices == 4
    assert chosen.tensor_parallel in (2, 4)


def test_min_heuristic_places_all_that_fit_with_shares_that_differ_by_one():
    three = problem({"a": 30, "b": 10, "c": 10}, devices=8)
    sizes = {one.model: one.devices for one in min_heuristic(three, START)}
    assert sorted(sizes.values()) == [2, 3, 3]
    assert sizes["a"] == 3


def test_even_splits_give_a_large_model_what_it_needs():
    world = problem({"large": 4, "a": 4, "b": 4}, 8, degrees={"large": (4,)}, memory={"large": 4})
    splits = list(even_splits(world, ["large", "a", "b"], 8))
    assert {tuple(one.devices for one in split) for split in splits} == {(4, 2, 2)}


def test_min_heuristic_splits_devices_between_a_model_and_its_reader():
    chain = problem({"write": 6, "judge": 6}, needs={"judge": "write"})
    sizes = {one.model: one.devices for one in min_heuristic(chain, START)}
    assert sizes == {"write": 2, "judge": 2}


@pytest.mark.parametrize("chooser", [greedy, min_heuristic])
def test_without_preemption_a_model_keeps_its_first_placement(chooser):
    world = problem({"a": 40, "b": 3, "c": 9, "d": 5, "e": 2}, loading=0.5)
    draft = complete(world, chooser, Draft(START), preempt=False)
    seen: dict[str, set[Placement]] = {}
    for stage in draft.stages:
        for one in stage.placements:
            seen.setdefault(one.model, set()).add(one)
    assert all(len(placements) == 1 for placements in seen.values())
    for before, after in zip(draft.stages, draft.stages[1:], strict=False):
        running = {one.model for one in before.placements} - set(before.finishes)
        assert running <= {one.model for one in after.placements}


def test_a_model_that_fits_nothing_is_named():
    with pytest.raises(PlanError, match="'a' fits none of its placements on 2 devices"):
        problem({"a": 1}, devices=2, memory={"a": 4})


def test_tasks_that_wait_for_each_other_are_named():
    with pytest.raises(PlanError, match="a stage of no models finishes no request"):
        world = problem({"a": 2, "b": 2}, needs={"a": "b", "b": "a"})
        complete(world, greedy, Draft(START))


def test_a_stage_that_was_simulated_is_not_simulated_again():
    world = problem({"a": 3, "b": 4})
    first = complete(world, greedy, Draft(START))
    factory = world.simulator._simulator
    simulated = factory.simulated
    assert complete(world, greedy, Draft(START)) == first
    assert factory.simulated == simulated
