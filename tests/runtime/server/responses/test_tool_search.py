"""Searches of deferred tools that the client runs, as Codex declares them."""

import json
from typing import Any

import pytest

from caesura.runtime.server.responses.output import events_again
from caesura.runtime.testing import call, say
from tests.kit.server import counted
from tests.runtime.server.responses.asking import TOOL, events, post

SEARCH: dict[str, Any] = {
    "type": "tool_search",
    "execution": "client",
    "description": "Search the apps.",
    "parameters": {
        "type": "object",
        "properties": {"query": {"type": "string"}, "limit": {"type": "number"}},
        "required": ["query"],
    },
}
EVENT: dict[str, Any] = TOOL | {"name": "create_event", "defer_loading": True}
CALENDAR = {"type": "namespace", "name": "calendar", "description": "Dates.", "tools": [EVENT]}
ASKED = {"role": "user", "content": "Hello"}


def output(call_id: str, *tools: Any) -> dict[str, Any]:
    told = {"call_id": call_id, "status": "completed", "execution": "client"}
    return {"type": "tool_search_output", **told, "tools": list(tools)}


def names(specs: Any) -> list[str]:
    return [spec["function"]["name"] for spec in specs]


async def test_a_found_tool_is_called_and_the_prompt_stays(serve_script: Any, checked: Any) -> None:
    script = [
        call("tool_search", query="calendar", limit=2),
        call("calendar__create_event", city="Ulm"),
        say("Done."),
    ]
    served = await serve_script(script)
    tools = [TOOL, SEARCH]
    found = await events(served, input=[ASKED], tools=tools, store=False)
    checked(found)
    final = found[-1]["response"]
    (search,) = final["output"]
    assert search["id"].startswith("tsc_")
    assert {name: search[name] for name in ("type", "execution", "status", "arguments")} == {
        "type": "tool_search_call",
        "execution": "client",
        "status": "completed",
        "arguments": {"query": "calendar", "limit": 2},
    }
    assert final["tools"][1] == SEARCH
    assert "caesura" not in final
    checked(events_again(final))
    sessions = served.engine.sessions
    assert names(sessions[0].spec.tools) == ["weather", "tool_search"]
    shown = sessions[0].spec.tools[1]["function"]
    assert (shown["description"], shown["parameters"]) == ("Search the apps.", SEARCH["parameters"])

    history = [ASKED, search, output(search["call_id"], CALENDAR)]
    _, second = await post(served, input=history, tools=tools, store=False)
    (made,) = second["output"]
    assert (made["type"], made["namespace"], made["name"]) == (
        *("function_call", "calendar", "create_event"),
    )
    assert await counted(served) == {("spliced", "unchanged"): 1}
    assert sessions[1].spec.tools == sessions[0].spec.tools
    assert names(sessions[1].spec.deferred) == ["calendar__create_event"]
    told = sessions[1].turns[0][-1]
    assert (told["role"], told["name"]) == ("tool", "tool_search")
    line = json.loads(told["content"].splitlines()[1])
    assert line["function"]["name"] == "calendar__create_event"
    assert line["function"]["parameters"] == TOOL["parameters"]

    result = {"type": "function_call_output", "call_id": made["call_id"], "output": "ok"}
    history += [made, result]
    _, third = await post(served, input=history, tools=tools, store=False)
    assert third["output"][0]["content"][0]["text"] == "Done."
    assert await counted(served) == {("spliced", "unchanged"): 2}


async def test_a_stored_search_goes_on(serve_script: Any) -> None:
    served = await serve_script(
        [call("tool_search", query="x"), call("create_event"), say("Done.")]
    )
    _, first = await post(served, tools=[SEARCH])
    given = {"previous_response_id": first["id"], "tools": [SEARCH]}
    answer = output(first["output"][0]["call_id"], EVENT)
    _, second = await post(served, input=[answer], **given)
    assert second["output"][0]["name"] == "create_event"
    given["previous_response_id"] = second["id"]
    result = {"type": "function_call_output", "call_id": second["output"][0]["call_id"]}
    status, _ = await post(served, input=[result | {"output": "ok"}], **given)
    assert status == 200
    assert names(served.engine.sessions[2].spec.deferred) == ["create_event"]


async def test_deferred_tools_of_the_request_are_not_listed(serve_script: Any) -> None:
    served = await serve_script([say("Hi.")] * 3)
    for tools in ([TOOL, EVENT, SEARCH], [TOOL, EVENT], [TOOL, EVENT, {"type": "tool_search"}]):
        status, body = await post(served, tools=tools)
        assert status == 200, body
    with_search, without, hosted = (session.spec for session in served.engine.sessions)
    assert names(with_search.tools) == ["weather", "tool_search"]
    assert names(with_search.deferred) == ["create_event"]
    # Nobody would find them.
    for spec in (without, hosted):
        assert names(spec.tools) == ["weather", "create_event"]
        assert spec.deferred == []
    assert body["caesura"]["left_out"] == ["tool tool_search"]
    assert body["tools"][1] == EVENT


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "tool_search"},
        {"type": "function", "name": "create_event"},
    ],
)
async def test_a_search_or_a_deferred_tool_can_be_chosen(serve_script: Any, choice: Any) -> None:
    served = await serve_script([call(choice.get("name", choice["type"]))])
    status, body = await post(served, tools=[TOOL, EVENT, SEARCH], tool_choice=choice)
    assert status == 200, body
    (session,) = served.engine.sessions
    assert names(session.spec.tools) == [choice.get("name", choice["type"])]
    assert not session.spec.deferred
    assert session.samplings[0].calls.required


async def test_what_was_found_may_be_wrong(serve_script: Any) -> None:
    served = await serve_script([])
    search = {"type": "tool_search_call", "execution": "client", "call_id": "t", "arguments": {}}
    for wrong in ({"type": "function"}, "weather"):
        asked = [ASKED, search, output("t", wrong)]
        status, body = await post(served, input=asked, tools=[SEARCH])
        assert (status, body["error"]["param"]) == (400, "input"), body
    status, body = await post(served, input=[ASKED, output("t")], tools=[SEARCH])
    assert (status, body["error"]["param"]) == (400, "input")
