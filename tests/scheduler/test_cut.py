"""Turns that are cut while they decode: the same request goes on, and no token is lost."""

import random
from typing import Any

import pytest

from tests.scheduler.clients import all_is_told_and_nothing_left
from tests.scheduler.invariants import check_all, check_rest, said_as_planned
from tests.scheduler.steering import CALL, IN_EVERY_MODE

from .world import Session, World, make_scheduler

SEEDS = [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 30))]
WORDS = " [words of the user] "
STORY = "Once upon a time. There was a king\nwho had no name. And so on and on."


def cut(world: World, session: Session, tokens: int = 100) -> bool:
    message = {"command": "cut", "request": session.request_id, "tokens": tokens}
    return bool(world.parts.commands.run(message)["taken"])


def said_in_turn(session: Session) -> list[int]:
    before = sum(len(part) for part in session.parts[: session.position : 2])
    return session.delivered[before:]


def goes_on(world: World, session: Session) -> None:
    """Tell a session that was cut the user's words; what it had left to say comes behind them."""
    part, said = session.parts[session.position], said_in_turn(session)
    assert said == part[: len(said)]
    rest = [said, list(WORDS.encode()), part[len(said) :]]
    session.parts[session.position : session.position + 1] = rest
    world.answer(session)


def verdict(session: Session) -> Any:
    return session.reports[-1]["verdict"] if session.reports else None


def until(world: World, holds: Any) -> None:
    for _ in range(200):
        if holds():
            return
        world.step()
        check_all(world)
    raise AssertionError("it did not happen")


@IN_EVERY_MODE
@pytest.mark.parametrize("drops", [False, True], ids=["kept", "dropped"])
def test_a_cut_turn_goes_on_behind_the_words(asynchronous: bool, depth: int, drops: bool) -> None:
    world = World(make_scheduler(asynchronous=asynchronous), depth)
    session = world.session("a", range(40, 75), STORY)
    until(world, lambda: len(session.delivered) > 3)
    assert cut(world, session)
    until(world, lambda: session.paused)
    assert verdict(session) == "cut" and session.reports[-1]["paused"]
    # It stands behind a sentence or a line.
    assert bytes(said_in_turn(session)).endswith((b".", b"\n"))
    assert not cut(world, session)  # no turn is under way
    if drops:
        world.drop_kv("a")
    goes_on(world, session)
    world.run()
    said_as_planned(world)
    check_rest(world)
    assert session.reports[-1]["verdict"] == "end"
    if not drops:
        assert session.reports[-1]["resume"]["handling"] == "preserve"
        assert depth or world.computed_again.get("a", 0) == 0


@IN_EVERY_MODE
def test_a_bound_holds_where_no_sentence_ends(asynchronous: bool, depth: int) -> None:
    world = World(make_scheduler(asynchronous=asynchronous), depth)
    session = world.session("a", range(40, 75), "on " * 40)
    until(world, lambda: len(session.delivered) > 3)
    assert cut(world, session, 5)
    until(world, lambda: session.paused)
    assert len(session.delivered) <= 4 + depth + 5 + 1
    goes_on(world, session)
    world.run()
    said_as_planned(world)


@IN_EVERY_MODE
def test_a_turn_that_ends_first_waits_for_the_words(asynchronous: bool, depth: int) -> None:
    world = World(make_scheduler(asynchronous=asynchronous), depth)
    session = world.session("a", range(40, 75), "short")
    until(world, lambda: bool(session.delivered))
    assert cut(world, session)
    until(world, lambda: session.paused)
    assert verdict(session) == "call" and len(session.delivered) == len(b"short") + 1
    session.parts += [list(WORDS.encode()), list(b"more"), []]
    session.parts[-2].append(session.parts[0][-1])
    world.answer(session)
    world.run()
    said_as_planned(world)


def test_a_call_comes_before_a_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(make_scheduler())
    session = world.session("a", range(40, 75), CALL, " 3]", "done")
    until(world, lambda: bool(session.delivered))
    assert cut(world, session)
    until(world, lambda: session.paused)
    assert verdict(session) == "call" and session.delivered == list(CALL.encode())
    world.run()
    said_as_planned(world)


def test_what_is_wrong_is_answered() -> None:
    world = World(make_scheduler())
    plain = world.plain("plain", range(40), "z" * 20)
    world.step()
    run = world.parts.commands.run
    assert not cut(world, plain)
    assert run({"command": "cut", "request": "nobody", "tokens": 1}) == {"taken": False}
    assert "must be an id" in run({"command": "cut", "request": 1, "tokens": 1})["error"]
    for tokens in (0, -1, True, "x", None):
        message = {"command": "cut", "request": "plain", "tokens": tokens}
        assert "from 1" in run(message)["error"]


def clients_act(world: World, rng: random.Random) -> int:
    """Let tools return, turns be cut and words be told; return how many were told."""
    told = 0
    for session in world.sessions.values():
        if session.finished:
            continue
        if not session.paused:
            if rng.random() < 0.03:
                cut(world, session, rng.randint(1, 30))
        elif rng.random() < 0.3:
            if verdict(session) == "cut":
                goes_on(world, session)
                told += 1
            elif session.position + 1 < len(session.parts):
                world.answer(session)
            else:  # it had ended when the cut came
                world.abort(session)
    return told


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("asynchronous", "depth"), [(False, 0), (True, 1), (True, 3)])
def test_random_cuts_lose_nothing(seed: int, asynchronous: bool, depth: int) -> None:
    rng = random.Random(seed)
    world = World(
        make_scheduler(
            blocks=rng.choice([34, 60, 200]),
            max_num_seqs=rng.choice([2, 5, 16]),
            max_num_batched_tokens=rng.choice([32, 64, 512]),
            prefix_caching=rng.random() < 0.7,
            asynchronous=asynchronous,
        ),
        depth,
    )
    told = 0
    for step in range(5000):
        if step < 100 and rng.random() < 0.2:
            texts = [STORY[: rng.randint(5, 60)] + CALL, " 3]"] * rng.randint(0, 2)
            shared = rng.choice([0, 1000])
            prompt = range(shared, shared + rng.randint(1, 120))
            world.session(f"s{step}", prompt, *texts, STORY)
        world.step()
        check_all(world)
        told += clients_act(world, rng)
        held = [name for name, one in world.parts.served.paused.items() if one.pause.held]
        if held and rng.random() < 0.1:
            world.drop_kv(rng.choice(held))
        if step > 100 and all(each.finished for each in world.sessions.values()):
            break
    world.run()
    assert told
    all_is_told_and_nothing_left(world)
