"""The waiting line: ranks, back-filling, admission, patience, and what a session takes with it."""

import random
from typing import Any

import pytest
from vllm.v1.core.sched.request_queue import SchedulingPolicy, create_request_queue

from caesura.scheduler.policy.admission import Batched
from caesura.scheduler.policy.names import make_ranking
from caesura.scheduler.policy.ranking import Queued, QueueView, Score
from caesura.scheduler.settings import Settings
from tests.scheduler.clients import clients_come_and_go

from .steering import CALL, IN_EVERY_MODE, until_paused
from .world import World, make_scheduler

RANKINGS = ["fcfs", "ssjf", "ssjf:ageing=2", "lamps", "caesura", "caesura:beta=0"]
ADMISSIONS = ["vllm", "conservative", "aggressive", "past-future"]


class ByName:
    """A ranking by the order of names that a test gives."""

    name, refresh_steps, starvation_steps = "by-name", 0, 0

    def __init__(self, *names: str) -> None:
        self._names = names

    def score(self, queued: Queued, view: QueueView) -> Score:
        return (float(self._names.index(queued.key)),)


class Whim:
    """A ranking that changes its mind at every step."""

    name, refresh_steps, starvation_steps = "whim", 1, 3

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def score(self, queued: Queued, view: QueueView) -> Score:
        return (self._rng.random(),)


class Fickle:
    """An admission policy that refuses at random."""

    name = "fickle"

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def begin(self, running: Any, capacity_tokens: int) -> "Fickle":
        return self

    def admits(self, candidate: Batched) -> bool:
        return self._rng.random() < 0.4

    def observe(self, kind: str, generated_tokens: int) -> None:
        pass


def world_of(ranking: Any = None, **options: Any) -> World:
    world = World(make_scheduler(**{"blocks": 20, "max_model_len": 320, **options}))
    if ranking is not None:
        world.scheduler.parts.queue.ranking = ranking
    return world


def running(world: World) -> list[str]:
    return [request.request_id for request in world.scheduler.running]


def test_the_best_rank_is_admitted_first() -> None:
    world = world_of(ByName("c", "a", "b"), max_num_seqs=2)
    for index, name in enumerate("abc"):
        world.plain(name, range(index * 1000, index * 1000 + 50), "x" * 20)
    world.step()
    assert running(world) == ["c", "a"]


def test_a_users_priority_goes_before_any_rank() -> None:
    world = world_of(ByName("c", "a", "b"), max_num_seqs=1)
    scheduler = world.scheduler
    scheduler.policy = SchedulingPolicy.PRIORITY
    scheduler.waiting = create_request_queue(scheduler.policy)
    scheduler.kv_holding_waiting = create_request_queue(scheduler.policy)
    for index, name in enumerate("abc"):
        world.plain(name, range(index * 1000, index * 1000 + 50), "x" * 20)
    scheduler.requests["b"].priority = -1
    world.step()
    assert running(world) == ["b"]


@pytest.mark.parametrize("backfill", [True, False])
def test_who_fits_goes_before_who_does_not(backfill: bool) -> None:
    world = world_of(ByName("first", "large", "small"), backfill=backfill)
    world.plain("first", range(200), "x" * 40)
    world.step()
    world.plain("large", range(1000, 1200), "x")
    world.plain("small", range(2000, 2040), "x")
    world.step()
    assert running(world) == (["first", "small"] if backfill else ["first"])


@pytest.mark.parametrize(
    ("steps", "seconds", "served"), [(5, 1e9, True), (10**9, 5.0, True), (10**9, 1e9, False)]
)
def test_a_request_is_not_overtaken_for_ever(steps: int, seconds: float, served: bool) -> None:
    """Small requests arrive without end, and two of them fill the memory."""
    bounds = {"max_overtaken_steps": steps, "max_overtaken_seconds": seconds}
    world = world_of(LargeFirst(), **bounds)
    for step in range(200):
        if step == 20:
            world.plain("large", range(1000, 1270), "x")
        if step % 12 == 0:
            world.plain(f"s{step}", range(5000 + step * 200, 5100 + step * 200), "x" * 30)
        world.step()
    assert world.sessions["large"].finished is served


@pytest.mark.parametrize(
    ("ranking", "handling"),
    [
        *((ranking, "caesura") for ranking in (*RANKINGS, "newest-first")),
        ("newest-first", "preserve"),
    ],
)
def test_no_ranking_lets_short_requests_starve_a_long_one(ranking: str, handling: str) -> None:
    """Short sessions in a closed loop, some of them paused, beside one that needs most blocks."""
    own = ranking == "newest-first"
    options: dict[str, Any] = {"blocks": 20, "max_model_len": 320, "max_num_seqs": 4}
    world = World(make_scheduler(**options, handling=handling, max_overtaken_steps=10))
    world.scheduler.parts.queue.ranking = NewestFirst() if own else make_ranking(ranking)
    for step in range(300):
        if step == 30:
            long = world.session("long", range(100_000, 100_270), "x")
        if step >= 30 and long.finished:
            break
        if step % 2 == 0:
            begin = 1000 + step * 100
            world.session(f"s{step}", range(begin, begin + 40), CALL, "r" * 20 + "]", "x" * 5)
        world.step()
        for session in world.sessions.values():
            slow = session.request_id.endswith("0")  # its tool never returns
            if session.paused and not session.finished and not slow:
                world.answer(session)
    assert long.finished


class NewestFirst:
    """A ranking that puts every newcomer before all others."""

    name, refresh_steps, starvation_steps = "newest-first", 0, 0

    def score(self, queued: Queued, view: QueueView) -> Score:
        return (-queued.queued_at,)


class LargeFirst:
    """`large` is the first in the line, whoever comes."""

    name, refresh_steps, starvation_steps = "large-first", 0, 0

    def score(self, queued: Queued, view: QueueView) -> Score:
        return (0.0 if queued.key == "large" else 1.0,)


def test_conservative_admission_keeps_out_what_might_not_fit() -> None:
    """Two prompts fit, but not with all that they may decode."""
    for admission, expected in (("vllm", ["a", "b"]), ("conservative", ["a"])):
        world = world_of(admission=admission)
        for index, name in enumerate("ab"):
            tokens = range(index * 1000, index * 1000 + 100)
            world.plain(name, tokens, "x" * 5, max_tokens=150)
        world.step()
        assert running(world) == expected
        world.run()


def test_the_first_is_admitted_although_admission_refuses_when_nobody_runs() -> None:
    world = world_of(admission="conservative:overcommit=0.01")
    world.plain("a", range(100), "x" * 5)
    world.plain("b", range(1000, 1100), "x" * 5)
    world.run()
    assert all(session.finished for session in world.sessions.values())


def test_a_session_keeps_its_arrival_over_its_pauses() -> None:
    world = world_of(ranking=None)
    session = world.session("a", range(40), CALL, "rr]", "x" * 3 + CALL, "rr]", "done")
    state = world.scheduler.parts.sessions["a"]
    arrival = state.arrival
    until_paused(world, session)
    assert (state.calls, state.started) == (1, True)
    assert state.decoded_tokens == len(CALL)
    world.answer(session)
    assert state.queued_at == world.now
    until_paused(world, session)
    assert (state.calls, state.arrival) == (2, arrival)
    assert state.given_tokens == len("rr]")
    assert state.decoded_tokens == len("xxx" + CALL)


def test_predictions_are_learned_from_sessions() -> None:
    world = world_of()
    for index in range(30):
        tokens = range(index * 100, index * 100 + 40)
        world.session(f"s{index}", tokens, "y" * 20 + CALL, "r" * 9 + "]", "z" * 9)
        world.run()
    predictor = world.scheduler.parts.sessions.predictor
    world.session("new", range(9000, 9040), "y" * 20 + CALL, "r" * 9 + "]", "z" * 9)
    about = world.scheduler.parts.sessions.about(world.scheduler.requests["new"])
    forecast = predictor.forecast(about)
    # Segments of 37 and 10 tokens, one call of each session.
    assert 15 < forecast.segment_tokens < 40
    assert 8 < forecast.result_tokens < 13
    assert forecast.ends[0] < 0.3 < 0.7 < forecast.ends[1]


def test_facts_are_gathered_from_tokens() -> None:
    world = world_of()
    session = world.session("new", range(9000, 9040), "yyy" + CALL, "error: no]", "zzz")
    until_paused(world, session)
    world.answer(session)
    about = world.scheduler.parts.sessions.about(world.scheduler.requests["new"])
    facts = about.facts
    assert (facts.calls, facts.tool, facts.errors, facts.last_error) == (1, "calc", 1, True)
    assert facts.segment_tokens == len("yyy" + CALL)
    assert facts.result_tokens == len("error: no]")
    assert facts.context_tokens == 40 + facts.segment_tokens + facts.result_tokens
    assert facts.seconds > 0
    assert facts.words and facts.heads


def test_who_is_passed_over_too_often_is_starved_to_its_end() -> None:
    world = world_of(max_num_seqs=1)
    ranking = SmallFirst()
    world.scheduler.parts.queue.ranking = ranking
    session = world.session("big", range(100), CALL, "r" * 30 + "]", "done")
    until_paused(world, session)
    world.answer(session)
    for index in range(12):
        world.plain(f"p{index}", range(2000 + index * 50, 2020 + index * 50), "x")
    seen = []
    for _ in range(60):
        world.step()
        seen.append(running(world))
        if "big" in running(world):
            break
    session = world.scheduler.parts.sessions["big"]
    assert session.starved
    assert not all(world.sessions[f"p{index}"].finished for index in range(12))


class SmallFirst:
    name, refresh_steps, starvation_steps = "small-first", 0, 4

    def score(self, queued: Queued, view: QueueView) -> Score:
        return (0.0 if queued.starved else 1.0, float(queued.context_tokens))


@pytest.mark.parametrize("admission", ADMISSIONS)
@pytest.mark.parametrize("ranking", RANKINGS)
def test_every_policy_serves_everybody(ranking: str, admission: str) -> None:
    rng = random.Random(f"{ranking} {admission}")
    world = World(
        make_scheduler(
            blocks=rng.choice([34, 60]),
            max_num_seqs=rng.choice([2, 5, 16]),
            max_num_batched_tokens=rng.choice([32, 64, 512]),
            host_blocks=rng.choice([None, 100]),
            ranking=ranking,
            admission=admission,
            backfill=rng.random() < 0.7,
            chunk=rng.choice(["auto", "vllm", 24]),
        )
    )
    clients_come_and_go(world, rng, 80)


SEEDS = [
    *range(3),
    *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 50)),
]


@pytest.mark.parametrize("seed", SEEDS)
@IN_EVERY_MODE
def test_no_whim_of_a_ranking_loses_anything(seed: int, asynchronous: bool, depth: int) -> None:
    rng = random.Random(seed)
    world = World(
        make_scheduler(
            blocks=rng.choice([34, 60]),
            max_num_seqs=rng.choice([2, 5, 16]),
            max_num_batched_tokens=rng.choice([32, 512]),
            host_blocks=rng.choice([None, 30, 100]),
            asynchronous=asynchronous,
            handling=rng.choice(["caesura", "swap", "discard", "infercept"]),
        ),
        depth,
    )
    world.scheduler.parts.queue.ranking = Whim(rng)
    world.scheduler.parts.sessions.admission = Fickle(rng)
    clients_come_and_go(world, rng, 150)


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        ({"ranking": "fastest"}, "fastest"),
        ({"ranking": "caesura:gamma=1"}, "gamma"),
        ({"admission": "everybody"}, "everybody"),
        ({"prediction": "dice"}, "dice"),
        ({"chunk": 0}, "chunk"),
        ({"chunk": "much"}, "chunk"),
    ],
)
def test_bad_settings_are_named(bad: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        Settings(**bad)


def test_an_oracle_is_for_simulations_only() -> None:
    with pytest.raises(ValueError, match="simulation"):
        make_scheduler(prediction="oracle")
