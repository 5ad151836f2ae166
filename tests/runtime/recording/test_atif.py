"""Sessions as trajectories in ATIF."""

import json
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from caesura.runtime.recording import catalog
from caesura.runtime.recording.atif import trajectory
from caesura.runtime.recording.entries import Entry, Recording
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.recording.runs import Run, Runs
from caesura.runtime.recording.storage import Store
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.testing import ScriptedEngine, call, calls, say, think
from caesura.tools import tool
from tests.runtime.cli.traces import stored, trace

RECORDING = Recording("r", "a server", "serve", 99.0, content=True, about={"version": "1.2.3"})


@tool
async def double(number: int) -> str:
    """Double a number."""
    if number < 0:
        raise ValueError("no negative numbers")
    return str(2 * number)


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    """A recording of a session that asked twice, and of another one."""
    path = tmp_path / "traces.sqlite"
    script: Any = [
        think("Twice.", calls(call("double", number=21), call("double", number=-1))),
        say("42."),
        say("You are welcome."),
        say("Other."),
    ]
    with Recorder(Store(path), title="two", content=True) as recorder:
        engine = ScriptedEngine(script, model="m")
        async with Agent(engine, [double], recorder=recorder, instructions="Be brief.") as agent:
            async with agent.session() as session:
                await session.run("Double 21.")
                await session.run("Thanks.")
            await agent.run("Another.")
    return path


def session_in(file: Path) -> str:
    """The id of the first session."""
    first = Runs(catalog.entries(file, 1)).runs()[0]
    return str(first.span.attributes["gen_ai.conversation.id"])


def exported(file: Path, *more: object) -> Any:
    output = file.parent / "session.atif.json"
    trace("export", "--store", file, "-o", output, *more)
    return json.loads(output.read_text())


async def test_a_session_is_a_trajectory(file: Path) -> None:
    mine = session_in(file)
    told = exported(file, "--session", mine)
    assert told["schema_version"] == "ATIF-v1.8"
    assert told["session_id"] == mine
    assert told["agent"]["model_name"] == "m"
    said = [(each["step_id"], each["source"], each["message"]) for each in told["steps"]]
    assert said == [
        (1, "system", "Be brief."),
        (2, "user", "Double 21."),
        (3, "agent", ""),
        (4, "agent", "42."),
        (5, "user", "Thanks."),
        (6, "agent", "You are welcome."),
    ]
    step = told["steps"][2]
    assert step["reasoning_content"] == "Twice."
    assert [each["arguments"] for each in step["tool_calls"]] == [{"number": 21}, {"number": -1}]
    right, wrong = step["observation"]["results"]
    ids = [each["tool_call_id"] for each in step["tool_calls"]]
    assert [right["source_call_id"], wrong["source_call_id"]] == ids
    assert right["content"] == "42"
    assert "no negative numbers" in wrong["content"]
    assert wrong["extra"]["error"] == "failed"
    metrics = [each["metrics"] for each in told["steps"] if "metrics" in each]
    assert len(metrics) == 3
    for name in ("prompt_tokens", "completion_tokens", "cached_tokens"):
        total = told["final_metrics"][f"total_{name}"]
        assert total == sum(each[name] for each in metrics)
    assert told["final_metrics"]["total_steps"] == 6
    assert stat.S_IMODE((file.parent / "session.atif.json").stat().st_mode) == 0o600


async def test_it_can_come_from_an_export(file: Path) -> None:
    lines = file.parent / "all.jsonl"
    trace("export", "--store", file, "-o", lines)
    again = exported(file, "--records", lines, "--session", session_in(file))
    assert again == exported(file, "--session", session_in(file))


async def test_the_models_of_the_package_take_it(file: Path) -> None:
    atif = pytest.importorskip("atif")
    told = exported(file, "--session", session_in(file))
    assert atif.Trajectory.model_validate(told).to_json_dict() == told


def turn(number: int, asked: Sequence[Entry], *answer: Entry) -> list[Entry]:
    """A run of one turn, which was asked with a whole history."""
    same = {"kind": "span", "trace": "a", "status": "unset", "message": "", "events": []}
    run = {
        **same,
        "span": f"r{number}",
        "parent": None,
        "name": "invoke_agent",
        "start": 100.0 + number,
        "end": 101.0 + number,
        "attributes": {"gen_ai.operation.name": "invoke_agent", "session.id": "mine"},
    }
    chat = {
        **same,
        "span": f"c{number}",
        "parent": f"r{number}",
        "name": "chat m",
        "start": 100.0 + number,
        "end": 101.0 + number,
        "attributes": {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": json.dumps(list(asked)),
            "gen_ai.output.messages": json.dumps(list(answer)),
        },
    }
    return [run, chat]


def text(role: str, content: str) -> Entry:
    return {"role": role, "parts": [{"type": "text", "content": content}]}


def runs_of(entries: Sequence[Entry]) -> list[Run]:
    return Runs(entries).runs()


def test_a_history_that_is_sent_again_is_told_once() -> None:
    made = {"type": "tool_call", "id": "c1", "name": "look", "arguments": '{"at": 1}'}
    asks, looks = text("user", "Look."), {"role": "assistant", "parts": [made]}
    sees = {
        "role": "tool",
        "parts": [{"type": "tool_call_response", "id": "c1", "response": "a cat"}],
    }
    says, thanks = text("assistant", "A cat."), text("user", "Thanks.")
    entries = [
        *turn(1, [asks], looks),
        *turn(2, [asks, looks, sees], says),
        *turn(3, [looks, sees, says, thanks], text("assistant", "Welcome.")),  # its begin was cut
    ]
    told = trajectory(runs_of(entries), "mine", RECORDING)
    said = [(each["source"], each["message"]) for each in told["steps"]]
    assert said == [
        ("user", "Look."),
        ("agent", ""),
        ("agent", "A cat."),
        ("user", "Thanks."),
        ("agent", "Welcome."),
    ]
    observed = told["steps"][1]["observation"]["results"]
    assert observed == [{"source_call_id": "c1", "content": "a cat"}]
    assert told["agent"]["version"] == "1.2.3"
    assert told["steps"][0]["timestamp"] == "1970-01-01T00:01:41+00:00"


def test_what_came_before_the_recording_is_marked() -> None:
    before = [text("user", "Hi."), text("assistant", "Hello."), text("user", "So?")]
    lost = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "x", "response": "y"}]}
    entries = turn(1, [lost, *before], text("assistant", "So."))
    told = trajectory(runs_of(entries), "mine", RECORDING)
    copied = [each.get("is_copied_context", False) for each in told["steps"]]
    assert copied == [False, False, True, False, False]
    assert told["steps"][0]["source"] == "system"
    assert told["steps"][0]["observation"]["results"] == [{"content": "y"}]


@pytest.mark.parametrize("arguments", ['{"at": "xx [cut: 9000 characters in all]', "[1]"])
def test_arguments_that_are_no_object_stay_as_they_are(arguments: str) -> None:
    made = {"type": "tool_call", "id": "c1", "name": "look", "arguments": arguments}
    entries = turn(1, [text("user", "Look.")], {"role": "assistant", "parts": [made]})
    told = trajectory(runs_of(entries), "mine", RECORDING)
    (called,) = told["steps"][1]["tool_calls"]
    assert called["arguments"] == {}
    assert called["extra"] == {"raw_arguments": arguments}
    assert ("notes" in told) == ("[cut:" in arguments)


def test_a_session_without_texts_is_refused(tmp_path: Path) -> None:
    file = stored(tmp_path, turn(1, []), ended=110.0)
    path = tmp_path / "a.atif.json"
    said = trace("export", "--store", file, "-o", path, "--session", "mine", code=1).output
    assert "the texts of 'mine' were not recorded" in said
    assert "--trace-content" in said
    assert not path.exists()


async def test_wrong_options_are_told(file: Path) -> None:
    def refused(name: str, *more: object) -> str:
        path = file.parent / name
        return trace("export", "--store", file, "-o", path, *more, code=1).output

    assert "name it by --session ID" in refused("a.atif.json")
    assert "no run in 'two' is of a session 'nobody'" in refused(
        "a.atif.json", "--session", "nobody"
    )
    assert "--session mine is for ATIF, and the format is html" in refused(
        "a.html", "--session", "mine"
    )
    assert "got 2: name one of them" in refused("a.atif.json", "1", "1", "--session", "mine")
    assert "choose from: html, json, jsonl, perfetto, atif" in refused("a.x", "--format", "y")


def test_a_session_is_found_by_the_name_that_its_client_gave() -> None:
    entries = [*turn(1, [], text("assistant", "a")), *turn(2, [], text("assistant", "b"))]
    assert ["mine" in run.ids for run in runs_of(entries)] == [True, True]
