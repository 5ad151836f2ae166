"""The predictor of lengths beside a scheduler: its answers order requests that wait."""

import time
from pathlib import Path
from typing import Any

import pytest

from caesura.scheduler.prompt_lengths.learner import Linear
from caesura.scheduler.prompt_lengths.predictor import train_predictor
from caesura.scheduler.prompt_lengths.process import LengthProcess
from caesura.scheduler.prompt_lengths.training import Plan, Row

from .world import Session, World, make_scheduler

PROMPTS = {
    word: f"please write a {word} about the number {index}"
    for index, word in enumerate(("story", "list", "brief"))
}
TOKENS = {"story": 90, "list": 30, "brief": 5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [
        Row(f"please write a {word} about the number {number}", (tokens,))
        for number in range(40)
        for word, tokens in TOKENS.items()
    ]
    out = tmp_path_factory.mktemp("lengths")
    train_predictor(Linear(1), "l1", rows, Plan(epochs=6, rate=0.1)).save(out)
    return out


def world_of(folder: object, **options: Any) -> World:
    settings = {"length_predictor": None if folder is None else str(folder), "ranking": "ssjf"}
    return World(make_scheduler(blocks=40, max_num_seqs=1, **{**settings, **options}))


def arrive(world: World) -> list[Session]:
    return [
        world.plain(word, list(prompt.encode()), "x" * TOKENS[word])
        for word, prompt in PROMPTS.items()
    ]


def lengths_of(world: World) -> LengthProcess:
    lengths = world.parts.sessions.prompts
    assert isinstance(lengths, LengthProcess)
    return lengths


def until_answered(world: World, prompts: int) -> None:
    lengths = lengths_of(world)
    end = time.monotonic() + 60
    while lengths.counts.answered < prompts:
        assert time.monotonic() < end, lengths
        time.sleep(0.01)


def finished(world: World) -> list[str]:
    """Run to the end, and return the names in the order in which they finished."""
    order: list[str] = []
    for _ in range(400):
        world.step()
        order += [name for name, s in world.sessions.items() if s.finished and name not in order]
        if len(order) == len(world.sessions):
            return order
    raise AssertionError(order)


def test_a_short_answer_goes_first_under_ssjf(folder: Path) -> None:
    world = world_of(folder)
    try:
        arrive(world)
        until_answered(world, 3)
        assert finished(world) == ["brief", "list", "story"]
        assert world.parts.sessions.predictor.name == "history+prompt", "it did not fail"
        lengths = lengths_of(world)
        assert all(lengths.find(word) is None for word in PROMPTS)
        counts = world.parts.engine.snapshot()["prompts"]
        assert counts == {"asked": 3, "answered": 3, "dropped": 0, "restarts": 0}
    finally:
        world.scheduler.shutdown()


def test_without_answers_requests_run_as_without_a_predictor(folder: Path) -> None:
    without = world_of(None)
    arrive(without)
    in_order = finished(without)
    world = world_of(folder)
    lengths = lengths_of(world)
    lengths.close()  # the process is gone before the first prompt
    arrive(world)
    assert finished(world) == in_order
    assert "prompts" not in without.parts.engine.snapshot()
    world.scheduler.shutdown()


def test_an_aborted_session_leaves_no_answer(folder: Path) -> None:
    world = world_of(folder)
    try:
        sessions = arrive(world)
        until_answered(world, 3)
        for session in sessions:
            world.abort(session)
        world.step()
        lengths = lengths_of(world)
        assert all(lengths.find(word) is None for word in PROMPTS)
    finally:
        world.scheduler.shutdown()


def test_a_directory_without_a_predictor_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="caesura predict train"):
        world_of(tmp_path)
    with pytest.raises(ValueError, match="length_predictor must be a path, got 7"):
        make_scheduler(length_predictor=7)
