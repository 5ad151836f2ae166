"""Requests in the shape that coding agents send, and their follow-ups with a tool's result.

They were written after the agents' public sources and documents: `codex.json` after Codex CLI
0.144, `claude_code.json` after Claude Code 2.1. No text of a real session is in them.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from caesura.runtime.testing import call, calls
from caesura.scheduler.vllm_server import VllmServer

FOLDER = Path(__file__).parent / "agents"
FILES = "README.md\nsrc"
ENDED = {"response.completed", "message_stop"}


def recorded(name: str) -> dict[str, Any]:
    body: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return body


async def ask(served: Any, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    headers = {"x-api-key": "any", "anthropic-version": "2023-06-01", "anthropic-beta": "a,b"}
    async with served.http.post(f"{path}?beta=true", json=body, headers=headers) as response:
        assert response.status == 200, await response.text()
        lines = (await response.text()).splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    assert events[-1]["type"] in ENDED
    return events


async def behind(scope: Scope, receive: Receive, send: Send) -> None:
    pytest.fail("vLLM's server was asked")


@pytest.fixture(params=[False, True], ids=["alone", "before-vllm"])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"vllm": VllmServer(behind, None)} if request.param else {}


async def test_codex(serve_script: Any, options: dict[str, Any]) -> None:
    script = [calls(call("shell_command", command="ls")), "There are two files."]
    served = await serve_script(script, **options)
    body = recorded("codex")
    events = await ask(served, "/v1/responses", body)
    [made] = [item for item in events[-1]["response"]["output"] if item["type"] == "function_call"]
    assert (made["name"], json.loads(made["arguments"])) == ("shell_command", {"command": "ls"})
    result = {"type": "function_call_output", "call_id": made["call_id"], "output": FILES}
    body["input"] += [{key: made[key] for key in ("type", "name", "arguments", "call_id")}, result]
    [message] = (await ask(served, "/v1/responses", body))[-1]["response"]["output"]
    assert message["content"][0]["text"] == "There are two files."
    last = served.engine.sessions[-1].turns[0]
    # The renderer joins them where the chat template takes one system message.
    assert [message["role"] for message in last[:2]] == ["system", "system"]
    assert "coding agent" in last[0]["content"] and "permissions" in last[1]["content"]
    assert last[-1]["content"] == FILES


async def test_codex_calls_a_tool_of_a_namespace(
    serve_script: Any, options: dict[str, Any]
) -> None:
    body = recorded("codex")
    served = await serve_script([calls(call("mcp__docs____search", query="x"))], **options)
    offered = [tool["name"] for tool in body["tools"]]
    assert offered[-1] == "mcp__docs__"
    events = await ask(served, "/v1/responses", body)
    named = {tool["function"]["name"] for tool in served.engine.sessions[0].spec.tools}
    assert named >= {"shell_command", "update_plan"} and len(named) == 3
    [made] = [item for item in events[-1]["response"]["output"] if item["type"] == "function_call"]
    assert made["arguments"] == '{"query": "x"}'


async def test_claude_code(serve_script: Any, options: dict[str, Any]) -> None:
    script = [calls(call("Bash", command="ls")), "There are two files."]
    served = await serve_script(script, **options)
    body = recorded("claude_code")
    events = await ask(served, "/v1/messages", body)
    blocks = [event["content_block"] for event in events if "content_block" in event]
    [use] = [block for block in blocks if block["type"] == "tool_use"]
    assert use["name"] == "Bash"
    [delta] = [event["delta"] for event in events if event["type"] == "message_delta"]
    assert delta["stop_reason"] == "tool_use"
    thinking = {"type": "thinking", "thinking": "I look.", "signature": ""}
    made = use | {"input": {"command": "ls"}}
    result = {"type": "tool_result", "tool_use_id": use["id"], "content": FILES, "is_error": False}
    body["messages"] += [
        {"role": "assistant", "content": [thinking, made]},
        {"role": "user", "content": [result | {"cache_control": {"type": "ephemeral"}}]},
    ]
    events = await ask(served, "/v1/messages", body)
    text = [event["delta"]["text"] for event in events if event["type"] == "content_block_delta"]
    assert "".join(text) == "There are two files."
    first, *_, last = served.engine.sessions[-1].turns[0]
    assert "billing" not in first["content"] and "official CLI" in first["content"]
    assert (last["role"], last["content"]) == ("tool", FILES)
