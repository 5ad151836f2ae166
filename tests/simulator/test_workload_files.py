"""Sessions of the simulator that are read from data files: recorded agents, and lengths."""

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from caesura.simulator.session import Segment
from caesura.simulator.workload.draw import Shape
from caesura.simulator.workload.names import make_workload
from caesura.simulator.workload.papers import read_lengths
from caesura.simulator.workload.replay import Replay, read_runs

RUNS = Path(__file__).parents[2] / "benchmarks" / "data" / "agent_runs.jsonl.gz"


def written(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# -- recorded agents -----------------------------------------------------------------------------


def turn(ctx: int, out: int, pause: float | None, kind: str | None, tool: str = "") -> dict:
    tools = [{"name": tool, "dur_s": pause}] if tool else None
    return {"ctx": ctx, "out": out, "pause_s": pause, "pause_kind": kind, "tools": tools}


SESSION = {
    "source": "made up",
    "turns": [
        turn(100, 10, 2.0, "tool", "bash"),
        turn(150, 20, 3.0, "tool"),
        turn(200, 5, 60.0, "human"),
        turn(300, 7, 1.0, "tool"),
        turn(307, 9, 4.0, "tool"),  # nothing was given: the context was compacted and grew anew
        turn(400, 1, 5.0, "mixed"),
        turn(500, 2, None, None),
    ],
}


def test_sessions_are_cut_where_a_person_was_waited_for(tmp_path: Path) -> None:
    assert read_runs(written(tmp_path / "runs.jsonl", [SESSION])) == [
        [Segment(100, 10, "bash", 2.0), Segment(40, 20, "agent", 3.0), Segment(30, 5)],
        [Segment(307, 9, "agent", 4.0), Segment(84, 1)],
    ]


def test_a_person_may_be_a_tool(tmp_path: Path) -> None:
    assert read_runs(written(tmp_path / "runs.jsonl", [SESSION]), people=True) == [
        [
            Segment(100, 10, "bash", 2.0),
            Segment(40, 20, "agent", 3.0),
            Segment(30, 5, "user", 60.0),
            Segment(95, 7),
        ],
        [Segment(307, 9, "agent", 4.0), Segment(84, 1, "user", 5.0), Segment(99, 2)],
    ]


def test_the_sample_is_read_whole() -> None:
    with gzip.open(RUNS, "rt") as lines:
        rows = [json.loads(line)["turns"] for line in lines]
    runs = read_runs(RUNS)
    assert [len(run) for run in runs] == [len(turns) for turns in rows]
    for run, turns in zip(runs, rows, strict=True):
        assert sum(each.given_tokens + each.decode_tokens for each in run) == sum(turns[-1][:2])
        assert [each.tool_seconds for each in run] == [pause for _, _, pause in turns]


def test_runs_are_scaled_capped_and_cut() -> None:
    runs = read_runs(RUNS)
    drawn = Replay(runs, Shape(tokens=0.1, pause=0.5, longest=60, context=4000))
    rng = random.Random(1)
    for _ in range(200):
        kind, segments = drawn(rng)
        assert kind == "agent"
        assert sum(each.given_tokens + each.decode_tokens for each in segments) <= 4000
        assert max(each.tool_seconds for each in segments) <= 30
    with pytest.raises(ValueError, match="no run begins within 1 tokens"):
        Replay(runs, Shape(context=1))


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"turns": []}, ":2: turns must be a list that is not empty"),
        ({"source": "x"}, ":2: turns must be a list that is not empty"),
        (
            {"turns": [[1, 2]]},
            ":2: a turn must be [context, decoded, seconds] or an object, got [1, 2]",
        ),
        ({"turns": [[1.5, 2, 0]]}, ":2: ctx must be a whole number, got 1.5"),
        ({"turns": [turn(1, 2, 0, "cat")]}, ":2: unknown pause_kind 'cat'; choose from: tool"),
        ({"turns": [turn(1, 2, None, "tool")]}, ":2: pause_s must be a number >= 0, got None"),
        ({"turns": [[1, 2, float("nan")]]}, ":2: pause_s must be a number >= 0"),
    ],
)
def test_a_bad_run_is_named_with_its_line(tmp_path: Path, row: Any, says: str) -> None:
    path = written(tmp_path / "runs.jsonl", [SESSION, row])
    with pytest.raises(ValueError, match="workload 'replay': ") as caught:
        make_workload("replay", 1.0, 10.0, 1, path)
    assert f"{path}{says}" in str(caught.value)


def test_a_file_without_runs(tmp_path: Path) -> None:
    path = written(tmp_path / "runs.jsonl", [{"turns": [[10, 2, 0]]}])
    with pytest.raises(ValueError, match=r"runs.jsonl: no run of 2 turns or more"):
        read_runs(path)


# -- lengths -------------------------------------------------------------------------------------


def test_every_recorded_length_comes_before_one_comes_again(tmp_path: Path) -> None:
    entries = [{"prompt_tokens": 10 + i, "completion_tokens": 100 + i} for i in range(20)]
    path = tmp_path / "o1.json"
    path.write_text(json.dumps(entries, indent=4))
    workload = make_workload("sharegpt-o1:requests=40,clients=5", 1.0, 1.0, 1, path)
    requests = [session.segments[0] for session in workload.sessions]
    lengths = [(each.given_tokens, each.decode_tokens) for each in requests]
    assert sorted(lengths[:20]) == sorted(lengths[20:]) == read_lengths(path)
    assert lengths[:20] != lengths[20:]
    assert {each.most_tokens for each in requests} == {12_000}
    assert workload.clients == 5


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[\n{"prompt_tokens": 1,\n]', ":3: not JSON: "),
        ("{}", ":1: not a list of requests"),
        ("[]", ":1: not a list of requests"),
        ("[1]", ": entry 1 must be an object, got 1"),
        ('[{"prompt_tokens": 1}]', ": entry 1: completion_tokens must be a number >= 1, got None"),
    ],
)
def test_bad_lengths_are_named(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "o1.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="workload 'sharegpt-o1': ") as caught:
        make_workload("sharegpt-o1", 1.0, 1.0, 1, path)
    assert f"{path}{says}" in str(caught.value)
