"""`async: true`: the model goes on behind a call, whose output comes later."""

import asyncio
import json
from typing import Any

import pytest

from caesura.intercept.calls.events import TurnEnded
from caesura.runtime.run.fold import acknowledgement, late_message
from caesura.runtime.testing import ScriptedEngine, call, calls, say
from caesura.scheduler.vllm_server import VllmServer
from caesura.tools import tool
from tests.kit.server import MODEL, Behind
from tests.runtime.server.responses.asking import TOOL, events, post

ASYNC = TOOL | {"async": True}
CUSTOM = {"type": "custom", "name": "note", "async": True}
MCP: dict[str, Any] = {"type": "mcp", "server_label": "caesura", "async": True}


class Lookup:
    """A slow tool of the server, which returns once the model has nothing else to say."""

    def __init__(self) -> None:
        idle = asyncio.Event()

        @tool
        async def look(place: str) -> str:
            """Look up a place."""
            await idle.wait()
            return f"{place} is sunny"

        async def pace(event: Any) -> None:
            if isinstance(event, TurnEnded) and event.reason == "stop":
                idle.set()

        self.tool, self.pace = look, pace

    def engine(self, *script: Any) -> ScriptedEngine:
        return ScriptedEngine(script, model=MODEL, pace=self.pace)


def contents(served: Any, session: int = -1) -> list[Any]:
    return [each["content"] for each in served.engine.sessions[session].messages]


async def test_the_model_goes_on_behind_a_clients_async_call(
    serve_script: Any, checked: Any
) -> None:
    served = await serve_script([call("weather", city="Ulm"), say("I asked."), say("Sunny.")])
    told = await events(served, tools=[ASYNC])
    checked(told)
    response = told[-1]["response"]
    made, message = response["output"]
    assert (made["type"], made["async"], made["status"]) == ("function_call", True, "completed")
    assert message["content"][0]["text"] == "I asked."
    assert response["tools"][0]["async"] is True
    assert contents(served) == [
        "Hello",
        "",
        acknowledgement(made["call_id"], "weather"),
        "I asked.",
    ]
    output = {"type": "function_call_output", "call_id": made["call_id"], "output": "25 degrees"}
    _, answer = await post(
        served, input=[output], previous_response_id=response["id"], tools=[ASYNC]
    )
    assert answer["output"][0]["content"][0]["text"] == "Sunny."
    late = late_message(made["call_id"], "weather", "25 degrees")
    assert served.engine.sessions[-1].messages[-2] == late
    # It goes on from the tokens of the first response.
    assert len(served.engine.sessions[-1].turns) == 1
    assert contents(served)[:4] == contents(served, 0)


async def test_items_that_are_sent_again_say_the_same(serve_script: Any) -> None:
    served = await serve_script([call("note", input="x"), say("Noted."), say("Good.")])
    _, first = await post(served, tools=[CUSTOM], store=False)
    made, _ = first["output"]
    assert made["type"] == "custom_tool_call" and made["async"] is True
    output = {"type": "custom_tool_call_output", "call_id": made["call_id"], "output": "done"}
    asked = {"role": "user", "content": "Hello"}
    await post(served, input=[asked, *first["output"], output], tools=[CUSTOM], store=False)
    assert contents(served)[:4] == contents(served, 0)
    assert contents(served)[4] == late_message(made["call_id"], "note", "done")["content"]


async def test_an_output_that_is_there_at_once_is_no_late_one(serve_script: Any) -> None:
    made = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c1", "output": "25 degrees"}
    served = await serve_script([say("Sunny.")])
    asked = {"role": "user", "content": "Hello"}
    await post(served, input=[asked, made | {"async": True}, output], tools=[ASYNC])
    assert contents(served) == ["Hello", "", "25 degrees", "Sunny."]


async def test_beside_a_call_that_is_waited_for_the_response_ends_with_both(
    serve_script: Any,
) -> None:
    other = TOOL | {"name": "alarm"}
    script = [calls(call("weather", city="Ulm"), call("alarm", city="Ulm")), say("Done.")]
    served = await serve_script(script)
    _, first = await post(served, tools=[ASYNC, other])
    weather, alarm = first["output"]
    assert weather["async"] is True and "async" not in alarm
    output = {"type": "function_call_output", "call_id": alarm["call_id"], "output": "set"}
    named = first["id"]
    await post(served, input=[output], previous_response_id=named, tools=[ASYNC, other])
    assert contents(served) == [
        *("Hello", "", "set"),
        acknowledgement(weather["call_id"], "weather"),
        "Done.",
    ]


async def test_tools_of_the_server_run_beside_the_answer(serve_script: Any) -> None:
    lookup = Lookup()
    script = [call("look", place="Ulm"), say("I look."), say("It is sunny.")]
    served = await serve_script(lookup.engine(*script), [lookup.tool])
    told = await events(served, tools=[MCP])
    kinds = [event["type"] for event in told]
    # The text between is streamed while the call is open.
    assert kinds.index("response.output_text.delta") < kinds.index("response.mcp_call.completed")
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    output = told[-1]["response"]["output"]
    assert [each["type"] for each in output] == [
        *("mcp_list_tools", "mcp_call", "message", "message"),
    ]
    assert output[1]["output"] == "Ulm is sunny"
    (session,) = served.engine.sessions
    assert session.turns[1][0]["content"].startswith("The call ")
    assert session.turns[2][0]["late"] is True


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
async def test_server_tools_by_name_may_be_async(serve_script: Any, path: str) -> None:
    lookup = Lookup()
    script = [call("look", place="Ulm"), say("I look."), say("It is sunny.")]
    served = await serve_script(lookup.engine(*script), [lookup.tool])
    body: dict[str, Any] = {
        "model": MODEL,
        "max_tokens": 100,
        "server_tools": [{"name": "look", "async": True}],
    }
    asked = [{"role": "user", "content": "Hello"}]
    if path.endswith("responses"):
        body = body | {"input": "Hello", "max_output_tokens": body.pop("max_tokens")}
    else:
        body["messages"] = asked
    async with served.http.post(path, json=body) as response:
        text = await response.text()
        assert response.status == 200, text
    assert "It is sunny." in text
    (session,) = served.engine.sessions
    assert session.turns[2][0]["late"] is True


async def test_an_async_tool_that_asks_for_approvals_is_refused(serve_script: Any) -> None:
    lookup = Lookup()
    served = await serve_script(lookup.engine(), [lookup.tool])
    status, answer = await post(served, tools=[MCP | {"require_approval": "always"}])
    assert status == 400 and answer["error"]["param"] == "tools[0].async"


@pytest.mark.parametrize("is_vllms", [True, False])
@pytest.mark.parametrize("within", [True, False])
async def test_chat_completions_refuse_a_clients_async_tool(
    serve_script: Any, is_vllms: bool, within: bool
) -> None:
    behind = VllmServer(Behind(), None) if is_vllms else None
    served = await serve_script(["Ours."], vllm=behind)
    function = {"name": "weather", "parameters": {}} | ({"async": True} if within else {})
    sent = {"type": "function", "function": function} | ({} if within else {"async": True})
    status, answer = await served.chat(tools=[sent])
    assert status == 400 and "use /v1/responses" in answer["error"]["message"], answer


async def test_messages_refuse_a_clients_async_tool(serve_script: Any) -> None:
    served = await serve_script(["Ours."], vllm=VllmServer(Behind(), None))
    sent = {"name": "weather", "input_schema": {"type": "object"}, "async": True}
    asked = [{"role": "user", "content": "Hello"}]
    body = {"model": MODEL, "max_tokens": 10, "messages": asked, "tools": [sent]}
    async with served.http.post("/v1/messages", json=body) as response:
        answer = await response.json()
        assert response.status == 400 and "use /v1/responses" in answer["error"]["message"]


async def test_async_false_changes_nothing(serve_script: Any) -> None:
    served = await serve_script([call("weather", city="Ulm")])
    _, answer = await post(served, tools=[TOOL | {"async": False}])
    (made,) = answer["output"]
    assert made["type"] == "function_call" and "async" not in json.dumps(answer)
