"""What runs next when models finish in another order than planned, and on which devices."""

import pytest

from caesura.planning.plan import Makespan, Placement, Plan, Stage
from caesura.planning.search.devices import assign
from caesura.planning.search.follow import Turn, first_turn, next_turn
from caesura.planning.search.problem import PlanError


def plan(*stages, devices=4):
    return Plan("test", devices, tuple(Stage(stage) for stage in stages), Makespan(0, 0, 0))


def one(model, replicas=1, degree=1, **more):
    return Placement(model, replicas, degree, **more)


A, B, C, D = (one(name, 2) for name in "abcd")


def test_a_plan_in_its_own_order_is_carried_out_as_it_is():
    three = plan((A, B), (B, C), (one("c", 4),))
    turn = first_turn(three, "abc")
    assert turn == Turn(0, (A, B))
    turn = next_turn(three, turn, "bc", "a")
    assert turn == Turn(1, (B, C))
    assert next_turn(three, turn, "c", "b") == Turn(2, (one("c", 4),))


def test_a_model_that_was_to_finish_first_runs_on_beside_the_next_stage():
    # `a` was to end the first stage, but `b` did; `c` gets the devices of `b`.
    early = plan((A, B), (B, C), (one("c", 4),))
    turn = next_turn(early, Turn(0, (A, B)), "ac", "b")
    assert turn == Turn(1, (A, C))
    # When `a` ends at last, no model of the second stage has finished: `c` is not stopped.
    assert next_turn(early, turn, "c", "a") == Turn(1, (C,))


def test_pairs_of_the_next_stage_wait_until_their_devices_are_free():
    wide = plan((A, one("b"), one("d")), (one("b"), one("d"), one("c", 3)))
    turn = next_turn(wide, Turn(0, (A, one("b"), one("d"))), "abc", "d")
    # `c` needs three devices, and `a` runs on two: `c` waits, and the next stage is not left.
    assert turn == Turn(1, (A, one("b")))
    turn = next_turn(wide, turn, "ac", "b")
    assert turn == Turn(1, (A,))
    assert next_turn(wide, turn, "c", "a") == Turn(1, (one("c", 3),))


def test_a_running_pair_that_the_next_stage_lacks_keeps_devices_that_are_left():
    later = plan((A, one("b")), (one("c", 2),), (one("b", 4),))
    turn = next_turn(later, Turn(0, (A, one("b"))), "bc", "a")
    assert turn == Turn(1, (one("c", 2), one("b")))


def test_devices_of_a_model_that_finished_early_go_to_a_later_stage():
    # `b` finished in the first stage already, so that the second would leave its devices idle.
    early = plan((A, B), (B, C), (one("c", 2), D))
    assert next_turn(early, Turn(0, (A, B)), "cd", "ab") == Turn(1, (C, D))


def test_stages_that_were_to_end_with_finished_models_are_passed_over():
    # `b` finished before `a`, so that the second stage, which was to end with `b`, has passed.
    stages = (Stage((A, B), 1.0, ("a",)), Stage((B, C), 1.0, ("b",)), Stage((C, D), 1.0, ("c",)))
    passing = Plan("test", 4, stages, Makespan(0, 0, 0))
    turn = next_turn(passing, Turn(0, (A, B)), "acd", "b")
    assert turn == Turn(2, (A, C))
    assert next_turn(passing, turn, "cd", "a") == Turn(2, (C, D))


def test_a_stage_that_could_not_run_on_is_left():
    cycle = plan((one("a", 4),), (one("b", 4),), (one("a", 4),))
    assert next_turn(cycle, Turn(0, (one("a", 4),)), "ab", ()) == Turn(1, (one("b", 4),))


def test_models_that_a_plan_forgot_run_at_its_end():
    short = plan((A,), (B,))
    assert next_turn(short, Turn(1, (B,)), "a", "b") == Turn(1, (A,))


def test_replicas_that_stay_are_not_moved():
    now = {one("a", 2): ((1,), (3,)), one("b"): ((0,),)}
    placed = assign([one("a", 3), one("c")], now, 4)
    assert placed[one("a", 3)][:2] == ((1,), (3,))
    assert sorted(device for slots in placed.values() for slot in slots for device in slot) == [
        0,
        1,
        2,
        3,
    ]


def test_a_tensor_parallel_replica_gets_a_pair_at_the_least_reloading():
    # Devices 1 and 3 are free, so a pair must be made: `b` is cheaper to move than `a`.
    now = {one("a"): ((0,),), one("b"): ((2,),)}
    seconds = {"a": 40.0, "b": 11.0, "c": 20.0}
    wanted = [one("a"), one("b"), one("c", 1, 2)]
    placed = assign(wanted, now, 4, lambda placement: seconds[placement.model])
    assert placed == {one("a"): ((0,),), one("b"): ((1,),), one("c", 1, 2): ((2, 3),)}


def test_models_that_share_devices_get_the_same_ones():
    both = [one("a", kv_bytes=10, shares="x"), one("b", kv_bytes=20, shares="x"), one("c")]
    placed = assign(both, {one("c"): ((0,),)}, 2)
    assert placed == {both[0]: ((1,),), both[1]: ((1,),), one("c"): ((0,),)}


def test_too_few_devices_are_an_error():
    with pytest.raises(PlanError, match="need 2 devices more, but 1 of 3 are free"):
        assign([one("a", 1, 2), one("b", 1, 2)], {}, 3)
