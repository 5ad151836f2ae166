"""Trajectories are written and read back as they were."""

import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesura import Agent, UsageError, tool
from caesura.intercept.calls.events import ResumeReport
from caesura.runtime.testing import call, say
from caesura.runtime.trajectories.files import from_json, to_json
from caesura.trajectories import (
    Branch,
    Segment,
    Trajectory,
    WeightsSpan,
    read_jsonl,
    write_jsonl,
    write_parquet,
)
from tests.runtime.trajectories.computed import ComputedEngine

NUMBERS = st.integers(0, 1 << 40)
SECONDS = st.none() | st.floats(0, 1e12)
RESUMES = st.builds(
    ResumeReport, st.text(), st.floats(0, 1e9), st.floats(0, 1e9), NUMBERS, NUMBERS, NUMBERS
)
SEGMENTS = st.builds(
    Segment,
    source=st.sampled_from(["prompt", "sampled", "tool", "user", "template"]),
    tokens=st.lists(NUMBERS).map(tuple),
    logprobs=st.none() | st.lists(st.floats(-1e4, 0)).map(tuple),
    weights=st.lists(st.builds(WeightsSpan, st.none() | st.text(), NUMBERS)).map(tuple),
    messages=st.none() | st.tuples(NUMBERS, NUMBERS),
    stop_reason=st.sampled_from([None, "call", "stop", "length"]),
    started_at=SECONDS,
    seconds=SECONDS,
    cached_tokens=st.none() | NUMBERS,
    resume=st.none() | RESUMES,
)
BRANCHES = st.builds(
    Branch,
    id=st.text(),
    session=st.text(),
    model=st.none() | st.text(),
    parent=st.none() | st.text(),
    branch_point=NUMBERS,
    segments=st.lists(SEGMENTS, max_size=3).map(tuple),
)
TRAJECTORIES = st.builds(
    Trajectory,
    session=st.text(),
    branches=st.lists(BRANCHES, max_size=3).map(tuple),
    parent=st.none() | st.text(),
    rewards=st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False)),
    metadata=st.dictionaries(st.text(), st.text()),
)


@given(TRAJECTORIES)
def test_every_trajectory_is_read_back_equal(trajectory: Trajectory) -> None:
    text = to_json(trajectory)
    assert len(text.splitlines()) == 1 and from_json(text) == trajectory


@tool
def double(n: int) -> int:
    """Double a number."""
    return 2 * n


@pytest.fixture
async def trajectories() -> list[Trajectory]:
    engine = ComputedEngine(
        lambda messages, tools: (
            say("So.") if messages[-1]["role"] == "tool" else call("double", n=2)
        ),
        random.Random(5),
    )
    async with Agent(engine, [double], trajectories=True).session() as session:
        await session.run("One.")
        async with session.fork() as other:
            await other.run("Two.")
            return [await session.trajectory(), await other.trajectory()]


def test_a_file_of_json_lines(trajectories: list[Trajectory], tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    write_jsonl(path, trajectories)
    assert len(path.read_text().splitlines()) == 2
    assert read_jsonl(path) == trajectories
    write_jsonl(str(path), trajectories[:1])
    assert read_jsonl(str(path)) == trajectories[:1]
    write_jsonl(path, [])
    assert read_jsonl(path) == []


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "Expecting property name"),
        ("[]", "its version is None, and 1 can be read"),
        ('{"version": 2, "session": "s"}', "its version is 2, and 1 can be read"),
        ('{"version": 1}', "session: "),
        ('{"version": 1, "session": "s", "branches": [{"id": 7}]}', r"branches\.0\.id: "),
        ("[" * 5000, "recursion"),
    ],
)
def test_what_is_no_trajectory_is_told_with_its_line(line: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    write_jsonl(path, [Trajectory(session="s")])
    path.write_text(f"{path.read_text()}\n{line}\n")
    with pytest.raises(
        UsageError, match=rf"rollouts\.jsonl: line 3: .* is no trajectory of write_jsonl: .*{why}"
    ):
        read_jsonl(path)


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.jsonl: cannot be read: No such file"):
        read_jsonl(tmp_path / "none.jsonl")
    with pytest.raises(UsageError, match=r"x\.jsonl: cannot be written: No such file"):
        write_jsonl(tmp_path / "none" / "x.jsonl", [])


def test_without_pyarrow_parquet_is_an_error(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"x\.parquet: .* run pip install pyarrow, or use write_"):
        write_parquet(tmp_path / "x.parquet", [])
    assert not (tmp_path / "x.parquet").exists()


def test_a_row_of_parquet_is_a_rollout(trajectories: list[Trajectory], tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")
    rewards: list[dict[str, float]] = [{"exact": 0.5}, {"exact": 0.5, "style": 1.0}]
    pairs = zip(trajectories, rewards, strict=True)
    trajectories = [replace(each, rewards=told) for each, told in pairs]
    write_parquet(tmp_path / "x.parquet", trajectories)
    rows = parquet.read_table(tmp_path / "x.parquet").to_pylist()
    rollouts = [rollout for each in trajectories for rollout in each.rollouts()]
    assert [row["branch"] for row in rows] == [each.branch for each in rollouts]
    for row, rollout in zip(rows, rollouts, strict=True):
        for name in ("session", "model", "stop_reason"):
            assert row[name] == getattr(rollout, name)
        for name in ("prompt_ids", "completion_ids", "loss_mask", "sources"):
            assert tuple(row[name]) == getattr(rollout, name)
    parent, fork = rows
    assert [dict(row["rewards"]) for row in rows] == rewards
    assert [row["reward"] for row in rows] == [0.5, None]
    assert (parent["parent"], parent["branch_point"]) == (None, 0)
    assert fork["parent"] == parent["branch"] and fork["branch_point"] == len(rollouts[0].ids)
    assert parent["started_at"] <= fork["started_at"]
    with pytest.raises(UsageError, match=r"none.x\.parquet: cannot be written"):
        write_parquet(tmp_path / "none" / "x.parquet", trajectories)
