"""The fast simulator of stages: waiting, loading, carrying over, sharing, and what it counts."""

import numpy as np
import pytest

from caesura.planning.application.requests import Request
from caesura.planning.costs.engine import Flops
from caesura.planning.plan import Placement
from caesura.planning.stage_times import Progress, evicted_after
from tests.planning.costs.small import engine, requests, stages

START = Progress()


def test_a_batch_decodes_together_behind_its_loading() -> None:
    times = stages(requests("a", 3), 10, a=engine()).run([Placement("a")], START)
    assert times.seconds == pytest.approx(5 + 10)
    assert times.model_ends == {"a": pytest.approx(15)}
    assert set(times.after.finished) == {"a/0", "a/1", "a/2"}


def test_requests_beyond_the_limit_wait_for_a_place() -> None:
    one = engine(most_running=2, load_seconds=0.0)
    times = stages(requests("a", 3), {"a/0": 10, "a/1": 4, "a/2": 3}, a=one).run(
        [Placement("a")], START
    )
    assert dict(times.after.finished) == {"a/0": 10, "a/1": 4, "a/2": 7}


def test_replicas_take_from_one_queue() -> None:
    one = engine(most_running=1, load_seconds=0.0)
    simulator = stages(requests("a", 4), {"a/0": 9, "a/1": 2, "a/2": 2, "a/3": 2}, a=one)
    assert simulator.run([Placement("a", replicas=2)], START).seconds == pytest.approx(9)
    assert simulator.run([Placement("a")], START).seconds == pytest.approx(15)


def test_a_request_waits_for_those_that_it_needs_in_the_same_stage() -> None:
    both = [*requests("a", 2), *requests("b", 2, needs="a")]
    fast, slow = engine(load_seconds=0.0), engine(load_seconds=4.0)
    simulator = stages(both, {"a/0": 3, "a/1": 9, "b/0": 5, "b/1": 5}, a=fast, b=slow)
    times = simulator.run([Placement("a"), Placement("b")], START, to_the_end=True)
    assert dict(times.after.finished) == {"a/0": 3, "a/1": 9, "b/0": 9, "b/1": 14}


def test_a_chain_of_one_model_runs_one_after_the_other() -> None:
    chain = [
        Request(f"a/{item}", "a", "a", 4, 100, (f"a/{item - 1}",) if item else ())
        for item in range(4)
    ]
    times = stages(chain, 5, a=engine(load_seconds=0.0)).run([Placement("a")], START)
    assert times.seconds == pytest.approx(20)


def test_models_that_need_each_other_are_simulated_together() -> None:
    there_and_back = [
        Request("a/0", "a", "a", 4, 100),
        Request("b/0", "b", "b", 4, 100, ("a/0",)),
        Request("a/1", "a", "a", 4, 100, ("b/0",)),
    ]
    free = engine(load_seconds=0.0)
    simulator = stages(there_and_back, 5, a=free, b=free)
    times = simulator.run([Placement("a"), Placement("b")], START, to_the_end=True)
    assert times.model_ends == {"a": pytest.approx(15), "b": pytest.approx(10)}


def test_the_stage_ends_with_the_first_model_and_a_kept_one_continues() -> None:
    both = [*requests("a", 1), *requests("b", 1)]
    simulator = stages(both, {"a/0": 6, "b/0": 50}, a=engine(), b=engine())
    first = simulator.run([Placement("a"), Placement("b")], START)
    assert first.seconds == pytest.approx(5 + 6)
    assert simulator.unfinished(first.after) == ["b"]
    kept = simulator.run([Placement("b")], first.after)
    assert kept.seconds == pytest.approx(50 - 6)
    moved = simulator.run([Placement("b", tensor_parallel=2)], first.after)
    assert moved.seconds == pytest.approx(2 + 5 + 50)


def test_a_replica_stays_loaded_when_another_joins_or_leaves() -> None:
    both = [*requests("a", 1), *requests("b", 3)]
    lengths = {"a/0": 10, "b/0": 10, "b/1": 10, "b/2": 50}
    small = engine(most_running=1)
    simulator = stages(both, lengths, a=engine(), b=small)
    first = simulator.run([Placement("a"), Placement("b")], START)
    assert first.seconds == pytest.approx(5 + 10)
    # The second replica is there behind the stop of "a" (2 s) and its loading (5 s).
    joined = simulator.run([Placement("b", replicas=2)], first.after)
    assert joined.seconds == pytest.approx(2 + 5 + 50)
    assert not joined.loading, "the model serves while its second replica is loaded"
    alone = simulator.run([Placement("b")], first.after)
    assert alone.seconds == pytest.approx(10 + 50)


def test_a_replica_that_leaves_gives_its_requests_back() -> None:
    both = [*requests("a", 1), *requests("b", 2)]
    one = engine(most_running=1)
    simulator = stages(both, {"a/0": 10, "b/0": 50, "b/1": 50}, a=engine(), b=one)
    first = simulator.run([Placement("a"), Placement("b", replicas=2)], START)
    assert first.seconds == pytest.approx(5 + 10)
    left = simulator.run([Placement("b")], first.after)
    # The engine that leaves takes 2 s to stop, but the other one goes on meanwhile.
    assert left.seconds == pytest.approx(40 + 50)


def test_a_model_that_loads_when_a_stage_ends_loads_on() -> None:
    both = [*requests("a", 1), *requests("b", 1)]
    slow = engine(load_seconds=20.0)
    simulator = stages(both, {"a/0": 6, "b/0": 50}, a=engine(), b=slow)
    first = simulator.run([Placement("a"), Placement("b")], START)
    assert first.loading == {"a": 5.0, "b": pytest.approx(11)}
    assert simulator.run([Placement("b")], first.after).seconds == pytest.approx(20 + 50 - 11)


def test_what_goes_on_unchanged_is_not_simulated_again() -> None:
    three = [*requests("a", 1), *requests("b", 4), *requests("c", 1)]
    simulator = stages(
        three,
        {"a/0": 6} | {f"b/{n}": 20 + n for n in range(4)} | {"c/0": 3},
        a=engine(),
        b=engine(),
        c=engine(),
    )
    first = simulator.run([Placement("a"), Placement("b")], START)
    simulated = simulator.simulated
    second = simulator.run([Placement("b"), Placement("c")], first.after)
    third = simulator.run([Placement("b")], second.after)
    assert simulator.simulated == simulated + 1
    assert third.after.seconds == pytest.approx(5 + 23)
    total = sum(times.flops for times in (first, second, third))
    # Six prompts of four tokens, and all tokens but the first of each request.
    assert total == pytest.approx(10.0 * (6 * 4 + 5 + 19 + 20 + 21 + 22 + 2))


def test_a_reader_is_simulated_again_when_its_source_moves() -> None:
    chain = [*requests("a", 2), *requests("b", 2, needs="a"), *requests("c", 1)]
    lengths = {"a/0": 3, "a/1": 30, "b/0": 5, "b/1": 5, "c/0": 4}
    simulator = stages(chain, lengths, a=engine(), b=engine(), c=engine())
    first = simulator.run([Placement("a"), Placement("b"), Placement("c")], START)
    assert first.after.seconds == pytest.approx(9)
    kept = simulator.run([Placement("a"), Placement("b")], first.after, to_the_end=True)
    assert kept.after.seconds == pytest.approx(5 + 30 + 5)
    placements = [Placement("a", tensor_parallel=2), Placement("b")]
    moved = simulator.run(placements, first.after, to_the_end=True)
    assert moved.after.seconds == pytest.approx(9 + 2 + 5 + 30 + 5)


def test_the_flops_of_stages_add_up_to_those_of_the_requests() -> None:
    both = [*requests("a", 2), *requests("b", 3, prompt=9)]
    flops = Flops(10.0, 0.5)
    simulator = stages(both, 30, a=engine(flops=flops), b=engine(0.3, flops=flops))
    placements = [Placement("a"), Placement("b")]
    whole = simulator.run(placements, START, to_the_end=True)
    first = simulator.run(placements, START)
    second = simulator.run([Placement("a")], first.after)
    expected = 2 * (10 * (4 + 29) + 0.5 * (16 + 29 * 4 + 29 * 15))
    expected += 3 * (10 * (9 + 29) + 0.5 * (81 + 29 * 9 + 29 * 15))
    assert whole.flops == pytest.approx(expected)
    assert first.flops + second.flops == pytest.approx(expected)


def test_a_model_goes_on_alone_behind_one_that_it_needed() -> None:
    work = [Request("a/0", "a", "a", 4, 100), Request("b/0", "b", "b", 4, 100, ("a/0",))]
    work += [Request("a/1", "a", "a", 4, 100, ("b/0",)), Request("b/1", "b", "b", 4, 100)]
    lengths = {"a/0": 3, "b/0": 4, "a/1": 5, "b/1": 40}
    simulator = stages(work, lengths, a=engine(), b=engine())
    placements = [Placement("a"), Placement("b")]
    whole = simulator.run(placements, START, to_the_end=True)
    first = simulator.run(placements, START)
    second = simulator.run([Placement("b")], first.after)
    assert first.seconds + second.seconds == pytest.approx(whole.seconds)
    assert first.flops + second.flops == pytest.approx(whole.flops)


def test_a_stage_in_which_nothing_can_run_takes_no_time() -> None:
    both = [*requests("a", 1), *requests("b", 1, needs="a")]
    simulator = stages(both, 5, a=engine(), b=engine())
    times = simulator.run([Placement("b")], START)
    assert (times.seconds, times.after, times.flops) == (0.0, START, 0.0)


def test_a_stage_ends_when_its_requests_wait_for_a_model_that_is_not_placed() -> None:
    work = [Request("a/0", "a", "a", 4, 100), Request("a/1", "a", "a", 4, 100, ("b/0",))]
    work.append(Request("b/0", "b", "b", 4, 100))
    times = stages(work, 5, a=engine(), b=engine()).run([Placement("a")], START)
    assert times.seconds == pytest.approx(10)
    assert times.model_ends == {}
    assert set(times.after.finished) == {"a/0"}


def test_models_on_the_same_devices_slow_each_other_down() -> None:
    both = [*requests("a", 1), *requests("b", 1)]
    free = engine(load_seconds=0.0)
    simulator = stages(both, {"a/0": 10, "b/0": 30}, a=free, b=free)
    shared = [Placement(name, kv_bytes=300, shares="x") for name in ("a", "b")]
    times = simulator.run(shared, START, to_the_end=True)
    assert times.model_ends["b"] == pytest.approx(40, abs=2)
    assert times.model_ends["a"] == pytest.approx(20, abs=2)


def test_devices_must_hold_the_weights_and_a_longest_request() -> None:
    simulator = stages(requests("a", 1), 5, a=engine(), b=engine())
    assert simulator.valid(Placement("a"))
    assert not simulator.valid(Placement("a", kv_bytes=199))
    assert not simulator.valid(Placement("a", kv_bytes=1601))
    assert not simulator.valid(Placement("c"))
    shared = [Placement(name, kv_bytes=600, shares="x") for name in ("a", "b")]
    assert simulator.fits(shared)
    large = [Placement(name, kv_bytes=601, shares="x") for name in ("a", "b")]
    assert not simulator.fits(large)
    with pytest.raises(ValueError, match="do not hold the weights"):
        simulator.run(large, START)
    with pytest.raises(ValueError, match="placed twice"):
        simulator.run([Placement("a"), Placement("a", 2)], START)


def test_requests_without_room_are_preempted_and_computed_again() -> None:
    small = engine(room=400 + 200, load_seconds=0.0, most_running=4)
    lengths = {f"a/{row}": 90 for row in range(4)}
    tight = stages(requests("a", 4), lengths, a=small).run([Placement("a")], START)
    wide = stages(requests("a", 4), lengths, a=engine(load_seconds=0.0)).run(
        [Placement("a")], START
    )
    assert wide.seconds == pytest.approx(90)
    assert 90 < tight.seconds < 180
    assert len(tight.after.finished) == 4


def test_a_stage_is_simulated_once() -> None:
    both = [*requests("a", 5), *requests("b", 5)]
    simulator = stages(both, 5, a=engine(), b=engine())
    simulator.run([Placement("a"), Placement("b")], START)
    simulator.run([Placement("a", 2), Placement("b")], Progress(3.0))
    assert simulator.simulated == 3


@pytest.mark.parametrize("seed", range(4))
def test_progress_as_plain_data_gives_the_same_end(seed: int) -> None:
    generator = np.random.default_rng(seed)
    work = [*requests("a", 30), *requests("b", 30, needs="a")]
    lengths = {request.key: int(generator.integers(1, 40)) for request in work}
    small = engine(0.5, 0.01, most_running=4)
    simulator = stages(work, lengths, a=small, b=small)
    first = simulator.run([Placement("a"), Placement("b")], START)
    plain = Progress(first.after.seconds, dict(first.after.finished), ())
    moved = Progress(first.after.seconds, first.after.finished, ())
    placed = [Placement("b", 2)]
    assert simulator.run(placed, plain).seconds == simulator.run(placed, moved).seconds


def test_models_that_share_devices_split_the_memory_and_load_one_after_the_other() -> None:
    both = [*requests("a", 1), *requests("b", 1)]
    simulator = stages(both, {"a/0": 6, "b/0": 6}, a=engine(), b=engine(weight_bytes=600.0))
    pair = simulator.share([Placement("a"), Placement("b")])
    assert [one.kv_bytes for one in pair] == [500, 500]
    assert simulator.fits(pair)
    assert simulator.run(pair, START).loading == {"a": 10.0, "b": 10.0}
    large = stages(both, 6, a=engine(), b=engine(weight_bytes=1500.0))
    assert large.share([Placement("a"), Placement("b")]) == ()


def test_an_engine_that_sleeps_is_woken_up_instead_of_loaded_again() -> None:
    three = [*requests("a", 1), *requests("b", 1), *requests("c", 1, needs="b")]
    lengths = {"a/0": 60, "b/0": 10, "c/0": 10}
    ends = engine(load_seconds=20.0, stop_seconds=2.0)
    sleeps = engine(load_seconds=20.0, stop_seconds=2.0, sleep_seconds=1.0, wake_seconds=3.0)
    for one, leaves, returns in ((ends, 2.0, 20.0), (sleeps, 1.0, 3.0)):
        simulator = stages(three, lengths, a=one, b=one, c=one)
        both = simulator.run([Placement("a"), Placement("b")], START)
        assert both.seconds == pytest.approx(20 + 10)
        alone = simulator.run([Placement("c")], both.after)
        assert alone.seconds == pytest.approx(leaves + 20 + 10), "c is new, so it is loaded"
        again = simulator.run([Placement("a")], alone.after)
        assert again.seconds == pytest.approx(leaves + returns + 60)
        other = simulator.run([Placement("a", 1, 2)], alone.after)
        assert other.seconds == pytest.approx(leaves + 20 + 60), "another engine is started"


def test_only_as_many_replicas_wake_up_as_sleep() -> None:
    one = engine(
        load_seconds=20.0, stop_seconds=0.0, sleep_seconds=0.0, wake_seconds=3.0, most_running=1
    )
    asked = [*requests("a", 4), *requests("b", 1)]
    simulator = stages(asked, {**{f"a/{n}": 30 for n in range(4)}, "b/0": 5}, a=one, b=one)
    first = simulator.run([Placement("a"), Placement("b")], START)
    gone = simulator.run([], Progress(30.0, first.after.finished, (), (Placement("a"),)))
    assert gone.seconds == 0.0
    after = Progress(30.0, first.after.finished, (), (Placement("a"),))
    times = simulator.run([Placement("a", 2)], after)
    assert sorted(times.after.finished[f"a/{n}"] - 30.0 for n in range(4)) == [33, 50, 63, 80]


def test_what_was_evicted_is_known_until_it_comes_back() -> None:
    loaded = Progress(loaded=(Placement("a", 2), Placement("b")))
    once = evicted_after(loaded, [Placement("a")])
    assert once == (Placement("a"), Placement("b"))
    twice = evicted_after(Progress(loaded=(Placement("a"),), evicted=once), [Placement("b")])
    assert twice == (Placement("a", 2),)
