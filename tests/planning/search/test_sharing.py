"""Small models on shared devices: how lists are grouped, and when the search shares."""

import pytest

from caesura.planning.plan import Placement
from caesura.planning.search.lists import merged, regrouped, spread
from caesura.planning.search.strategies import plan_application
from caesura.planning.stage_times import Progress
from tests.planning.search.factory import Factory, application, problem


def test_a_list_that_loses_a_member_of_a_group_splits_the_memory_again():
    world = problem({"a": 2, "b": 2, "c": 2}, sharing=3)
    group = world.simulator.share([Placement("a"), Placement("b")])
    assert {one.shares for one in group} == {"a+b"}
    assert regrouped(world, (group[0], Placement("b", 2))) == (Placement("a"), Placement("b", 2))
    three = regrouped(world, (*group, Placement("c", shares="a+b")))
    assert three is not None
    assert {one.shares for one in three} == {"a+b+c"}


def test_groups_that_the_memory_does_not_hold_are_left_out():
    world = problem({"a": 2, "b": 2}, sharing=1)
    assert list(merged(world, (Placement("a"), Placement("b")))) == []
    assert spread(problem({"a": 1, "b": 1, "c": 1}, devices=2, sharing=1), Progress()) is None


def test_a_guest_starts_behind_its_host_with_the_same_numbers():
    world = problem({"a": 2, "b": 2, "c": 2}, sharing=2)
    lists = list(merged(world, (Placement("a", 2), Placement("b"), Placement("c"))))
    first = lists[0]
    assert [(one.model, one.replicas, one.shares) for one in first] == [
        ("a", 2, "a+b"),
        ("b", 2, "a+b"),
        ("c", 1, ""),
    ]


def test_spread_gives_each_device_about_the_same_work():
    jobs = spread(problem({"a": 9, "b": 5, "c": 4, "d": 2}, devices=2, sharing=2), Progress())
    assert jobs is not None
    assert {one.shares for one in jobs} == {"a+d", "b+c"}


def test_the_search_shares_devices_where_loading_in_turn_takes_longer():
    made, requests = application({"a": 2, "b": 2, "c": 2})
    rates = dict.fromkeys("abc", 1.0)
    apart = plan_application(made, requests, 1, [Factory(requests, rates, loading=10.0)])
    shared = plan_application(
        made, requests, 1, [Factory(requests, rates, loading=10.0, sharing=3)]
    )
    assert apart.plan.makespan.mean == 3 * (10 + 2)
    assert shared.plan.makespan.mean < apart.plan.makespan.mean
    first = shared.plan.stages[0]
    assert first.devices == 1
    assert len(first.placements) > 1


def test_devices_are_not_shared_for_a_gain_within_the_margin():
    made, requests = application({"a": 20, "b": 20, "c": 20})
    rates = dict.fromkeys("abc", 1.0)
    found = plan_application(made, requests, 1, [Factory(requests, rates, loading=0.3, sharing=3)])
    assert found.plan.makespan.mean == pytest.approx(3 * (0.3 + 20))
    assert not any(one.shares for stage in found.plan.stages for one in stage.placements)
    assert found.next_best is not None
    assert found.next_best.makespan.mean < found.plan.makespan.mean
    assert "share devices" in found.reason
