"""OpenAI's code interpreter and shell in Responses, run by the server's own tools."""

import json
from pathlib import Path
from typing import Any

import pytest
from openai import types
from pydantic import TypeAdapter

from caesura.runtime.audit import AuditLog
from caesura.runtime.server.responses.output import events_again
from caesura.runtime.testing import call, calls, say
from caesura.tools.tool import Tool
from tests.kit.sandbox import code_tools, has_sandbox
from tests.kit.server import counted
from tests.runtime.server.responses.asking import TOOL, events, post

__all__ = ["code_tools", "has_sandbox"]

CODE: dict[str, Any] = {"type": "code_interpreter", "container": {"type": "auto"}}
SHELL: dict[str, Any] = {"type": "shell", "environment": {"type": "container_auto"}}
OUTPUTS = "code_interpreter_call.outputs"
EVENT: TypeAdapter[Any] = TypeAdapter(types.responses.ResponseStreamEvent)


def are_openais(found: list[dict[str, Any]]) -> None:
    """Check that OpenAI's client reads each event as its own type."""
    for event in found:
        assert EVENT.validate_python(event).type == event["type"]


@pytest.fixture
async def coding(serve_script: Any, code_tools: list[Tool]) -> Any:
    first = calls(call("python", code="x = 6\nprint('six')\nx * 7"), text="I compute. ")
    return await serve_script([first, call("python", code="x + 1"), say("42 it is.")], code_tools)


async def test_code_runs_and_is_shown(coding: Any, checked: Any) -> None:
    found = await events(coding, tools=[TOOL, CODE], include=[OUTPUTS])
    checked(found)
    are_openais(found)
    told = [event["type"] for event in found if "code_interpreter" in event["type"]]
    once = [
        "response.code_interpreter_call.in_progress",
        "response.code_interpreter_call_code.delta",
        "response.code_interpreter_call_code.done",
        "response.code_interpreter_call.interpreting",
        "response.code_interpreter_call.completed",
    ]
    assert told == once * 2
    final = found[-1]["response"]
    kinds = ["message", "code_interpreter_call", "code_interpreter_call", "message"]
    assert [item["type"] for item in final["output"]] == kinds
    first, second = final["output"][1:3]
    assert first["id"].startswith("ci_")
    assert first["container_id"].startswith("cntr_")
    assert second["container_id"] == first["container_id"]
    assert (first["status"], first["code"]) == ("completed", "x = 6\nprint('six')\nx * 7")
    assert first["outputs"] == [{"type": "logs", "logs": "six\n42"}]
    assert second["outputs"] == [{"type": "logs", "logs": "7"}]
    assert final["tools"][1] == CODE
    assert "left_out" not in final["caesura"]
    names = [spec["function"]["name"] for spec in coding.engine.sessions[0].spec.tools]
    assert names == ["weather", "python"]
    again = events_again(final)
    checked(again)
    are_openais(again)
    assert [event["type"] for event in again if "code_interpreter" in event["type"]] == told


async def test_outputs_are_told_to_those_who_ask(coding: Any) -> None:
    _, body = await post(coding, tools=[CODE | {"container": "cntr_mine"}])
    item = body["output"][1]
    assert (item["outputs"], item["container_id"]) == (None, "cntr_mine")
    assert body["caesura"]["calls"][0]["content"] == "six\n42"


async def test_a_history_with_code_and_its_outputs_is_spliced(
    serve_script: Any, code_tools: list[Tool]
) -> None:
    first = calls(call("python", code="6 * 7"), text="I compute. ")
    served = await serve_script([first, say("42."), say("As I said.")], code_tools)
    asked = {"role": "user", "content": "Hello"}
    fields: Any = {"tools": [CODE], "store": False}
    _, before = await post(served, include=[OUTPUTS], **fields)
    items = [asked, *before["output"], asked]
    status, body = await post(served, input=items, **fields)
    assert status == 200, body
    assert "left_out" not in body.get("caesura", {})
    shown = served.engine.sessions[1].turns[0]
    assert [message["role"] for message in shown[1:4]] == ["assistant", "tool", "assistant"]
    assert (shown[2]["content"], shown[3]["content"]) == ("42", "42.")
    assert await counted(served) == {("spliced", "unchanged"): 1}


async def test_openais_client_reads_code(coding: Any) -> None:
    client = coding.openai.responses
    answer = await client.create(model=coding.engine.model, input="?", tools=[CODE])
    assert answer.output[1].code.endswith("x * 7")
    assert answer.output_text == "I compute. 42 it is."


async def test_code_that_fails_is_told_to_the_model(serve_script: Any, code_tools: Any) -> None:
    script = [call("python", code="1 / 0"), call("python", wrong="x"), say("Sorry.")]
    served = await serve_script(script, code_tools)
    found = await events(served, tools=[CODE], include=[OUTPUTS])
    are_openais(found)
    failing, wrong = found[-1]["response"]["output"][:2]
    assert failing["status"] == "completed"
    assert failing["outputs"][0]["logs"].endswith("ZeroDivisionError: division by zero")
    assert (wrong["status"], wrong["code"]) == ("failed", "")


@pytest.fixture
async def commanding(serve_script: Any, code_tools: list[Tool]) -> Any:
    first = calls(call("shell", command="echo out; echo err >&2; exit 3"), text="I look. ")
    return await serve_script([first, say("Seen."), say("As I said.")], code_tools)


async def test_a_command_runs_and_is_shown(commanding: Any, checked: Any) -> None:
    found = await events(commanding, tools=[SHELL])
    checked(found)
    are_openais(found)
    told = [event["type"] for event in found if "shell_call" in event["type"]]
    assert told == [
        *(f"response.shell_call_command.{state}" for state in ("added", "delta", "done")),
        "response.shell_call_output_content.done",
    ]
    final = found[-1]["response"]
    _, made, output, _ = final["output"]
    assert (made["type"], made["status"]) == ("shell_call", "completed")
    assert made["action"]["commands"] == ["echo out; echo err >&2; exit 3"]
    assert (output["type"], output["call_id"]) == ("shell_call_output", made["call_id"])
    outcome = {"type": "exit", "exit_code": 3}
    assert output["output"] == [{"stdout": "out\n", "stderr": "err", "outcome": outcome}]
    again = events_again(final)
    checked(again)
    are_openais(again)
    assert [event["type"] for event in again if "shell_call" in event["type"]] == told


async def test_a_history_with_a_command_is_spliced(commanding: Any) -> None:
    asked = {"role": "user", "content": "Hello"}
    _, first = await post(commanding, tools=[SHELL], store=False)
    items = [asked, *first["output"], asked]
    status, body = await post(commanding, input=items, tools=[SHELL], store=False)
    assert status == 200, body
    assert await counted(commanding) == {("spliced", "unchanged"): 1}
    assert "left_out" not in body.get("caesura", {})


@pytest.mark.parametrize(("kind", "name"), [("code_interpreter", "python"), ("shell", "shell")])
async def test_the_tool_can_be_chosen(
    serve_script: Any, code_tools: list[Tool], kind: str, name: str
) -> None:
    served = await serve_script([call(name, code="1", command="ls"), say("Hi.")], code_tools)
    status, body = await post(served, tools=[TOOL, CODE, SHELL], tool_choice={"type": kind})
    assert status == 200, body
    session = served.engine.sessions[0]
    assert [spec["function"]["name"] for spec in session.spec.tools] == [name]
    assert body["tool_choice"] == {"type": kind}


@pytest.mark.parametrize("kind", ["code_interpreter", "shell"])
async def test_without_such_a_tool_it_is_left_out(serve_script: Any, kind: str) -> None:
    served = await serve_script([say("Hi.")])
    _, body = await post(served, tools=[TOOL, {"type": kind}])
    assert body["caesura"]["left_out"] == [f"tool {kind}"]
    status, body = await post(served, tools=[TOOL, {"type": kind}], tool_choice={"type": kind})
    assert status == 400
    assert "is not here" in body["error"]["message"]


async def test_a_shell_of_the_clients_own_is_left_to_it(
    serve_script: Any, code_tools: list[Tool]
) -> None:
    served = await serve_script([say("Hi."), say("Hi.")], code_tools)
    local = {"type": "shell", "environment": {"type": "local"}}
    _, body = await post(served, tools=[local, {"type": "local_shell"}])
    assert body["caesura"]["left_out"] == ["tool shell", "tool local_shell"]
    _, body = await post(served, tools=[TOOL | {"name": "shell"}, SHELL])
    assert body["caesura"]["left_out"] == ["tool shell"]
    assert [each["type"] for each in body["tools"]] == ["function"]


async def test_what_has_no_meaning_here_is_left_out(
    serve_script: Any, code_tools: list[Tool]
) -> None:
    served = await serve_script([say("Hi.")], code_tools)
    container = {"type": "auto", "file_ids": ["file_1"], "memory_limit": "4g"}
    _, body = await post(served, tools=[CODE | {"container": container}])
    assert body["caesura"]["left_out"] == [
        "field container.file_ids of the tool code_interpreter",
        "field container.memory_limit of the tool code_interpreter",
    ]


async def test_the_audit_log_tells_what_ran(
    serve_script: Any, code_tools: list[Tool], tmp_path: Path
) -> None:
    """By its digest, or as it is where the operator wants the text."""
    commands = ["python", "shell"]
    script = [call("python", code="6 * 7"), call("shell", command="echo hello"), say("Done.")]
    for content in (True, False):
        log = AuditLog(tmp_path / str(content), content=content)
        served = await serve_script(list(script), code_tools, audit=log)
        await post(served, tools=[CODE, SHELL])
        told = [json.loads(line) for line in log.path.read_text().splitlines()]
        made = [each for each in told if each["event"] == "call"]
        assert [each["tool"] for each in made] == commands
        assert all(each["error"] is None for each in made)
        texts = [each.get("arguments", "") for each in made]
        assert ["6 * 7" in texts[0], "echo hello" in texts[1]] == [content, content]
