"""What the scheduler writes down of sessions is enough to run them again."""

import json
from pathlib import Path
from typing import Any

from caesura.scheduler.predict.facts import NO_WORDS
from caesura.simulator.session import Session
from caesura.simulator.workload.records import read_sessions

from .steering import CALL, until_paused
from .world import SteppedClock, World, make_scheduler

RESULT = "42 and more]"


def recorded(world: World, path: Path) -> list[Session]:
    while world.scheduler.has_requests():
        world.step()
        world.drain()
    path.write_text("".join(json.dumps(record) + "\n" for record in world.records))
    return read_sessions(path)


def world_of(**options: Any) -> World:
    clock = SteppedClock()
    wall = lambda: 1_700_000_000 + clock.now  # noqa: E731
    return World(make_scheduler(host_blocks=100, clock=clock, wall=wall, **options))


def test_a_session_with_two_calls(tmp_path: Path) -> None:
    world = world_of()
    text = "x" * 7
    session = world.session("a", range(100), CALL, RESULT, text + CALL, RESULT, "done")
    until_paused(world, session)
    for _ in range(9):
        world.step()
    world.answer(session)
    until_paused(world, session)
    world.answer(session)
    world.run()
    (replay,) = recorded(world, tmp_path / "records.jsonl")
    segments = [(s.given_tokens, s.decode_tokens, s.tool) for s in replay.segments]
    assert segments == [
        (100, len(CALL), "calc"),
        (len(RESULT), len(text + CALL), "calc"),
        (len(RESULT), len("done") + 1, ""),
    ]
    assert replay.segments[0].tool_seconds >= 9
    assert replay.kind == "calc"


def test_requests_without_calls_are_sessions_too(tmp_path: Path) -> None:
    world = world_of()
    world.plain("p", range(50), "yes", max_tokens=77)
    world.run()
    (replay,) = recorded(world, tmp_path / "records.jsonl")
    (segment,) = replay.segments
    assert (segment.given_tokens, segment.decode_tokens, segment.most_tokens) == (50, 4, 77)


def test_whoever_leaves_has_not_said_all(tmp_path: Path) -> None:
    world = world_of()
    session = world.session("a", range(100), CALL, RESULT, "done")
    until_paused(world, session)
    world.abort(session)
    world.plain("p", range(50), "yes")
    world.run()
    replays = {replay.kind: replay for replay in recorded(world, tmp_path / "records.jsonl")}
    assert set(replays) == {"plain", "calc"}
    assert sum(segment.decode_tokens for segment in replays["calc"].segments) == len(CALL)


def test_the_words_of_calls_and_errors_are_replayed(tmp_path: Path) -> None:
    world = world_of()
    session = world.session("a", range(100), CALL, "error: 4", "x" + CALL, RESULT, "done")
    until_paused(world, session)
    world.answer(session)
    until_paused(world, session)
    world.answer(session)
    world.run()
    (replay,) = recorded(world, tmp_path / "records.jsonl")
    first, second, last = replay.segments
    assert first.words.words and first.words.heads
    assert second.words == first.words, "the same words, whose heads are counted up"
    assert (first.failed, second.failed) == (True, False)
    assert (last.words, last.failed) == (NO_WORDS, False)
