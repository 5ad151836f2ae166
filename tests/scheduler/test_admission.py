"""Who joins the batch: Past-Future's equations against the future played out, and the baselines."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesura.scheduler.policy.admission import Admission, Aggressive, Batched, Conservative, Stock
from caesura.scheduler.policy.names import ADMISSIONS, DEFAULT_ADMISSION, make_admission
from caesura.scheduler.policy.past_future import (
    DRAWN_REQUESTS,
    MAX_DRAWS,
    MIN_LENGTHS,
    PastFuture,
    Peak,
)

REQUESTS = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 300)), max_size=12)


def request(held: int, generated: int = 0, most: int = 10_000, kind: str = "a") -> Batched:
    return Batched("r", kind, held, generated, most)


def peak(requests: Sequence[tuple[int, int]]) -> Peak:
    held, remaining = zip(*requests, strict=True) if requests else ((), ())
    return Peak(np.array(held, dtype=np.int64), np.array(remaining, dtype=np.int64))


def played_out(requests: Sequence[tuple[int, int]]) -> int:
    """The most memory, counted token by token until the last one has ended."""
    steps = max((remaining for _, remaining in requests), default=0)
    return max(
        sum(held + step for held, remaining in requests if remaining >= step)
        for step in range(steps + 1)
    )


def seen(lengths: Sequence[int], seed: int = 0, **parameters: float) -> PastFuture:
    """A scheduler whose window holds these lengths of kind `a` alone."""
    parameters = {"reserve": 0.0, "window": max(len(lengths), MIN_LENGTHS), **parameters}
    policy = PastFuture(Random(seed), **parameters)  # type: ignore[arg-type]
    for _ in range(-(-MIN_LENGTHS // len(lengths))):
        for length in lengths:
            policy.observe("a", length)
    return policy


@given(REQUESTS)
def test_the_peak_is_that_of_the_future_played_out(requests: list[tuple[int, int]]) -> None:
    assert peak(requests).tokens == played_out(requests)


@given(REQUESTS, REQUESTS)
def test_one_more_is_the_peak_of_all(
    requests: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    batch = peak(requests)
    for other in others:
        expected = played_out([*requests, other])
        assert batch.with_one(*other) == expected
        requests = [*requests, other]
        batch.add(*other)
        assert (batch.tokens, batch.size) == (expected, len(requests))


def test_a_peak_by_hand() -> None:
    # Remaining 5, 3, 1: 10 + 5, (10 + 20) + 3 * 2, (10 + 20 + 30) + 1 * 3.
    assert peak([(30, 1), (10, 5), (20, 3)]).tokens == 63
    assert peak([(30, 1), (10, 50), (20, 30)]).tokens == 90


@given(
    st.lists(st.tuples(st.integers(1, 400), st.integers(0, 39)), min_size=1, max_size=9),
    st.integers(1, 400),
    st.integers(-1, 1),
)
def test_a_known_length_admits_up_to_the_last_token(
    running: list[tuple[int, int]], prompt: int, spare: int
) -> None:
    policy = seen([40])
    batch = [request(prompt_ + generated, generated) for prompt_, generated in running]
    future = [(prompt_ + generated, 40 - generated) for prompt_, generated in running]
    needed = played_out([*future, (prompt, 40)])
    assert policy.begin(batch, needed + spare).admits(request(prompt)) is (spare >= 0)


def test_a_batch_that_must_not_grow() -> None:
    """What the baseline lets in since it fits now, and what would be evicted later."""
    policy, running, candidate = seen([500]), [request(400, 10)], request(300)
    assert Aggressive().begin(running, 1000).admits(candidate)
    assert not policy.begin(running, 1000).admits(candidate)
    almost_done = [request(400, 490)]
    assert policy.begin(almost_done, 1000).admits(candidate)


def test_whoever_is_admitted_belongs_to_the_batch() -> None:
    policy = seen([100])
    gate = policy.begin([request(50)], 500)
    answers = [gate.admits(request(50)) for _ in range(4)]
    assert answers == [True, True, False, False]
    assert gate.admits(request(20, 98))  # who was refused holds nothing


def test_the_reserve_stays_free() -> None:
    for reserve, admitted in ((0.0, True), (0.03, True), (0.05, False), (0.1, False)):
        gate = seen([100], reserve=reserve).begin([request(400)], 1000)
        assert gate.admits(request(370)) is admitted, reserve


def test_a_running_request_is_drawn_from_what_is_longer_than_it_is() -> None:
    lengths = [10, 10, 10, 1000]
    for generated, left in ((10, 990), (11, 989), (999, 1)):
        running = [request(2000, generated)]
        for seed in range(20):
            policy = seen(lengths, seed)
            room = played_out([(2000, left), (100, 1)])
            done = request(100, 0, most=1)
            assert policy.begin(running, room).admits(done)
            assert not policy.begin(running, room - 1).admits(done)


def test_a_candidate_that_was_preempted_is_drawn_from_what_is_longer_than_it_is() -> None:
    policy, running = seen([10, 10, 10, 1000]), [request(100, 0, most=1)]
    candidate = request(400, 20)
    assert not any(policy.begin(running, 1379).admits(candidate) for _ in range(20))
    assert all(policy.begin(running, 1380).admits(candidate) for _ in range(20))


def test_beyond_all_that_was_seen_it_doubles() -> None:
    policy, running = seen([10]), [request(200, 80)]
    last = request(100, 0, most=1)
    assert policy.begin(running, 300 + 80).admits(last)
    assert not policy.begin(running, 200 + 80 - 1).admits(last)


def test_nobody_decodes_more_than_it_may() -> None:
    policy = seen([1000])
    assert policy.begin([request(100, 0, most=7)], 214).admits(request(100, 0, most=7))
    assert not policy.begin([request(100, 0, most=7)], 213).admits(request(100, 0, most=7))


def test_draws_follow_the_window() -> None:
    """Three of four lengths are short: so many candidates are let in if drawn but once."""
    policy = seen([10, 10, 10, 1000])
    crowd = [request(1, 0, most=1)] * (DRAWN_REQUESTS + 1)
    admitted = sum(policy.begin(crowd, 900).admits(request(400)) for _ in range(2000))
    assert admitted / 2000 == pytest.approx(0.75, abs=0.04)


def test_a_small_batch_is_drawn_several_times_and_the_highest_peak_counts() -> None:
    policy = seen([10, 10, 10, 1000])
    admitted = sum(
        policy.begin([request(1, 0, most=1)], 700).admits(request(400)) for _ in range(2000)
    )
    assert admitted / 2000 == pytest.approx(0.75**MAX_DRAWS, abs=0.04)


def test_all_requests_of_a_batch_are_drawn_for_themselves() -> None:
    policy = seen([100, 300])
    crowd = [request(0)] * 1000
    drawn = policy.remaining(crowd, 1)
    assert set(drawn[0].tolist()) == {100, 300}
    assert drawn.mean() == pytest.approx(200, abs=12)
    assert policy.remaining(crowd[:2], 7).shape == (7, 2)


def test_kinds_are_drawn_for_themselves_too() -> None:
    policy = seen([100, 300])
    for _ in range(MIN_LENGTHS):
        policy.observe("b", 100)
        policy.observe("b", 300)
    one, other = policy.remaining([request(0), request(0, kind="b")], 4000).T
    assert (one == other).mean() == pytest.approx(0.5, abs=0.04)


def test_before_anything_is_seen_lengths_are_the_longest() -> None:
    policy = PastFuture(Random(0), reserve=0.0, window=100, longest=700)
    assert set(policy.remaining([request(0)] * 50, 2).flat) == {700}
    for _ in range(100):
        policy.observe("b", 30)
    assert set(policy.remaining([request(0)] * 50, 2).flat) == {30}


@pytest.mark.parametrize(("observed", "longest"), [(25, 2 / 3), (50, 1 / 2), (75, 1 / 4), (100, 0)])
def test_half_of_a_window_is_seeded(observed: int, longest: float) -> None:
    policy = PastFuture(Random(0), window=100, longest=700)
    for kind in range(observed):
        policy.observe(f"k{kind}", 30)
    drawn = policy.remaining([request(0, kind="new")] * 4000, 1)
    assert (drawn == 700).mean() == pytest.approx(longest, abs=0.04)


def test_a_kind_is_asked_itself_once_it_has_been_seen() -> None:
    policy = PastFuture(Random(0), window=1000, longest=700)
    for _ in range(MIN_LENGTHS - 1):
        policy.observe("brief", 5)
    assert 700 in policy.remaining([request(0, kind="brief")] * 99, 1)
    policy.observe("brief", 5)
    assert set(policy.remaining([request(0, kind="brief")] * 99, 1).flat) == {5}
    mixed = [request(0, kind="brief"), request(0, kind="new")] * 200
    drawn = policy.remaining(mixed, 1)[0]
    assert set(drawn[::2].tolist()) == {5}
    assert 700 in drawn[1::2]


def test_same_seed_same_admissions() -> None:
    def answers(seed: int) -> list[bool]:
        policy = seen([10, 1000], seed)
        crowd = [request(1, 0, most=1)] * (DRAWN_REQUESTS + 1)
        return [policy.begin(crowd, 900).admits(request(400)) for _ in range(100)]

    assert answers(1) == answers(1)
    assert answers(1) != answers(2)


def test_conservative_counts_all_that_may_come() -> None:
    running = [request(300, 100, most=400)]  # 600 at the end
    assert Conservative().begin(running, 1000).admits(request(100, 0, most=300))
    assert not Conservative().begin(running, 1000).admits(request(100, 0, most=301))
    assert Conservative(1.5).begin(running, 1000).admits(request(500, 0, most=400))
    assert not Conservative(1.5).begin(running, 1000).admits(request(501, 0, most=400))


def test_aggressive_counts_what_is_there() -> None:
    running = [request(300, 100, most=4000)]
    assert Aggressive().begin(running, 1000).admits(request(650, 0, most=4000))
    gate = Aggressive(0.9).begin(running, 1000)
    assert not gate.admits(request(601))
    assert gate.admits(request(500))
    assert not gate.admits(request(101))
    assert gate.admits(request(100))


@pytest.mark.parametrize("name", ADMISSIONS)
def test_who_would_be_alone_is_admitted_whatever_it_needs(name: str) -> None:
    gate = make_admission(name, Random(0)).begin([], 100)
    assert gate.admits(request(5000))
    assert gate.admits(request(1)) is (name == "vllm")


@pytest.mark.parametrize("name", ADMISSIONS)
def test_by_name(name: str) -> None:
    policy = make_admission(name, Random(0))
    assert policy.name == name
    policy.observe("a", 3)


def test_vllm_leaves_it_to_the_blocks() -> None:
    assert isinstance(make_admission(DEFAULT_ADMISSION, Random(0)), Stock)
    gate = Stock().begin([request(999)], 1000)
    assert all(gate.admits(request(999)) for _ in range(3))


def test_parameters_by_name() -> None:
    policy = make_admission("past-future:reserve=0.5,window=20,longest=60", Random(0))
    assert policy.begin([request(100)], 600).admits(request(80))  # 2 * 60 + 180 = 300
    assert not policy.begin([request(100)], 600).admits(request(81))
    assert make_admission("conservative:overcommit=1.25", Random(0)) == Conservative(1.25)


@pytest.mark.parametrize(
    "spec",
    [
        "nobody",
        "past-future:reserve=1",
        "past-future:window=0",
        "past-future:longest=0",
        "past-future:random=3",
        "conservative:overcommit=0",
        "aggressive:watermark=1.01",
        "vllm:watermark=0.9",
    ],
)
def test_what_makes_no_sense_is_refused(spec: str) -> None:
    with pytest.raises(ValueError, match="admission"):
        make_admission(spec, Random(0))


@dataclass
class Outcome:
    steps: int = 0
    evictions: int = 0
    used: int = 0


@dataclass
class Life:
    prompt: int
    length: int
    generated: int = 0


def serve(policy: Admission, lives: list[Life], capacity: int) -> Outcome:
    """Continuous batching of a backlog: the last to join is evicted when the memory is full."""
    outcome, queue, batch = Outcome(), lives[::-1], list[Life]()

    def as_seen(one: Life) -> Batched:
        return Batched("r", "a", one.prompt + one.generated, one.generated, 256)

    while queue or batch:
        gate = policy.begin([as_seen(one) for one in batch], capacity)
        while queue and gate.admits(as_seen(queue[-1])):
            batch.append(queue.pop())
        for one in batch:
            one.generated += 1
        for one in [one for one in batch if one.generated == one.length]:
            policy.observe("a", one.length)
            batch.remove(one)
        while sum(one.prompt + one.generated for one in batch) > capacity:
            queue.append(batch.pop())
            outcome.evictions += 1
        outcome.steps += 1
        outcome.used += sum(one.prompt + one.generated for one in batch)
    return outcome


def decode_heavy(random: Random) -> list[Life]:
    """Distribution-1 of the paper's section 5.3 at a sixteenth of its size."""
    return [Life(random.randint(2, 256), random.randint(128, 256)) for _ in range(400)]


def test_it_needs_fewer_steps_than_the_cautious_and_evicts_less_than_the_bold() -> None:
    """The order of the paper's Table 1, and that the memory is used."""
    made: dict[str, Callable[[], Admission]] = {
        "conservative": Conservative,
        "aggressive": lambda: Aggressive(0.95),
        "past-future": lambda: PastFuture(Random(0), reserve=0.05, longest=256, window=200),
    }
    served = {name: serve(make(), decode_heavy(Random(7)), 7500) for name, make in made.items()}
    assert served["conservative"].evictions == 0
    assert served["past-future"].steps < 0.9 * served["conservative"].steps
    assert served["past-future"].evictions < 0.25 * served["aggressive"].evictions
    assert served["past-future"].used / served["past-future"].steps > 0.75 * 7500
