"""Trajectories are read by `caesura replay`, which simulates them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from caesura import Agent, ScriptedEngine, UsageError, tool
from caesura.runtime.testing import call, say
from caesura.runtime.whatif.trajectories import (
    UNSAMPLED,
    UNTIMED,
    read_trajectories,
    write_records,
)
from caesura.simulator.session import Segment as Part
from caesura.simulator.workload.records import read_recorded
from caesura.trajectories import Branch, Segment, Trajectory, write_atif, write_jsonl


def sampled(count: int, at: float | None, seconds: float = 1.0) -> Segment:
    return Segment(source="sampled", tokens=(9,) * count, started_at=at, seconds=seconds)


def given(source: Any, count: int, seconds: float | None = None) -> Segment:
    return Segment(source=source, tokens=(1,) * count, seconds=seconds)


def branch(name: str, *segments: Segment, **more: Any) -> Branch:
    return Branch(id=name, session=name[0], model="m", segments=segments, **more)


CALLED = branch(
    "s/0",
    given("prompt", 10),
    sampled(4, 100.0),
    given("tool", 3, 8.0),
    sampled(5, 110.0),
    given("user", 2),
    sampled(6, 150.0),
)
AGAIN = branch("s/1", given("template", 7), sampled(8, 200.0), parent="s/0", branch_point=12)
SESSION = Trajectory(session="s", branches=(CALLED, AGAIN))


def test_a_branch_is_cut_where_a_person_wrote(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    assert write_records([SESSION], path) == {}
    first, second, third = read_recorded(path).sessions
    assert [each.arrival for each in (first, second, third)] == [100.0, 150.0, 200.0]
    assert first.segments == (Part(10, 4, "tool", 8.0), Part(3, 5))
    assert second.segments == (Part(24, 6),)  # behind 22 tokens of context
    assert third.segments == (Part(19, 8),)


def test_what_cannot_be_replayed_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    never = branch("u/0", given("prompt", 1), sampled(1, None))
    untimed = Trajectory(session="u", branches=(never,))
    waits = (given("prompt", 1), sampled(1, 5.0), given("tool", 1), sampled(1, 9.0))
    unknown = Trajectory(session="w", branches=(branch("w/0", *waits),))
    empty = Trajectory(session="e", branches=(branch("e/0", given("prompt", 1)),))
    forked = replace(SESSION, session="f")  # what it has from its parent is not its own
    left_out = write_records([SESSION, untimed, unknown, empty, forked], path)
    assert left_out == {UNTIMED: 2, UNSAMPLED: 1}
    assert len(read_recorded(path).sessions) == 3
    with pytest.raises(UsageError, match=f"no session that can be replayed: 1 {UNTIMED}"):
        write_records([untimed], path)
    with pytest.raises(UsageError, match="no session that can be replayed: it has none"):
        write_records([], path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        write_records([SESSION], tmp_path / "file" / "x")


def test_files_are_told_apart(tmp_path: Path) -> None:
    lines, document, records = (tmp_path / name for name in ("a.jsonl", "a.json", "b.json"))
    write_jsonl(lines, [SESSION])
    write_atif(document, [SESSION])
    assert read_trajectories(lines) == read_trajectories(document) == [SESSION]
    document.write_text(json.dumps(json.loads(document.read_text()), indent=1))
    assert read_trajectories(document) == [SESSION]
    write_records([SESSION], records)
    assert read_trajectories(records) is None
    records.write_bytes(b"\x1f\x8b\xff")
    assert read_trajectories(records.rename(tmp_path / "b.gz")) is None
    assert read_trajectories(tmp_path / "none") is None
    lines.write_text(lines.read_text() + "{}\n")
    with pytest.raises(UsageError, match=r"a\.jsonl: line 2"):
        read_trajectories(lines)


@tool
def double(n: int) -> int:
    """Double a number."""
    return 2 * n


async def test_the_runs_of_an_agent(tmp_path: Path) -> None:
    def script(messages: Any, tools: Any) -> Any:
        return say("Done.") if messages[-1]["role"] == "tool" else call("double", n=2)

    async with Agent(ScriptedEngine(script), [double], trajectories=True).session() as session:
        await session.run("One.")
        await session.run("Two.")
        trajectory = await session.trajectory()
    write_records([trajectory], tmp_path / "records.jsonl")
    runs = read_recorded(tmp_path / "records.jsonl").sessions
    assert [[each.tool for each in run.segments] for run in runs] == [["tool", ""]] * 2
    parts = trajectory.branches[0].segments
    decoded = [len(each.tokens) for each in parts if each.source == "sampled"]
    assert [part.decode_tokens for run in runs for part in run.segments] == decoded
    assert sum(part.given_tokens for part in runs[1].segments) == sum(
        len(each.tokens) for each in parts
    ) - sum(decoded[2:])
