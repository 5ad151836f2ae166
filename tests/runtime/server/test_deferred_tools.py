"""Deferred tools in `/v1/messages`: found by the client, as Claude Code does, or by the server."""

import json
from typing import Any

import pytest

from caesura.runtime.server.api.deferred import BM25, MAX_FOUND, REGEX, names_in, search_tool, told
from caesura.runtime.testing import call, say
from caesura.tools.dispatcher import Dispatcher, ToolCall
from caesura.tools.registry import Registry
from tests.kit.server import MODEL, counted
from tests.runtime.server.said import HELLO, WEATHER

SEARCH = {"name": "ToolSearch", "description": "Find tools.", "input_schema": {"type": "object"}}


def deferred(name: str, description: str, **fields: str) -> dict[str, Any]:
    properties = {key: {"type": "string", "description": each} for key, each in fields.items()}
    schema = {"type": "object", "properties": properties}
    told = {"name": name, "description": description, "input_schema": schema}
    return told | {"defer_loading": True}


MAIL = deferred("send_mail", "Send a letter.", recipient="Who gets it.")
EVENT = deferred("calendar_create", "Create an event.", begin="The time at which it begins.")
FILES = deferred("read_files", "Read several files.", path="a" * 60 + "!")
LATE = [MAIL, EVENT, FILES]


def names(specs: Any) -> list[str]:
    return [spec["function"]["name"] for spec in specs]


async def ask(served: Any, **fields: Any) -> tuple[int, dict[str, Any]]:
    body = {"model": MODEL, "max_tokens": 100, "messages": [HELLO]} | fields
    async with served.http.post("/v1/messages", json=body) as response:
        return response.status, await response.json()


def result(use: dict[str, Any], *content: dict[str, Any]) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": use["id"], "content": list(content)}
    return {"role": "user", "content": [block]}


async def test_a_reference_of_the_clients_search_tells_of_the_tool(serve_script: Any) -> None:
    script = [call("ToolSearch", query="mail"), call("send_mail", recipient="a"), say("Sent.")]
    served = await serve_script(script)
    tools = [WEATHER, SEARCH, *LATE]
    _, first = await ask(served, tools=tools)
    reference = {"type": "tool_reference", "tool_name": "send_mail"}
    history = [HELLO, {"role": "assistant", "content": first["content"]}]
    history.append(result(first["content"][-1], reference))
    status, second = await ask(served, tools=tools, messages=history)
    assert status == 200, second
    (use,) = second["content"]
    assert (use["type"], use["name"], second["stop_reason"]) == (
        "tool_use",
        "send_mail",
        "tool_use",
    )
    before, after = (session.spec for session in served.engine.sessions)
    assert names(before.tools) == names(after.tools) == ["weather", "ToolSearch"]
    assert names(after.deferred) == [tool["name"] for tool in LATE]
    content = served.engine.sessions[1].turns[0][-1]["content"]
    assert names_in(content) == ["send_mail"]
    function = json.loads(content.splitlines()[1])["function"]
    assert function["parameters"] == MAIL["input_schema"]
    history += [{"role": "assistant", "content": second["content"]}, result(use)]
    await ask(served, tools=tools, messages=history)
    assert await counted(served) == {("spliced", "unchanged"): 2}


async def test_a_reference_to_no_tool_is_told(serve_script: Any) -> None:
    served = await serve_script([call("ToolSearch"), say("No.")])
    _, first = await ask(served, tools=[SEARCH])
    history = [HELLO, {"role": "assistant", "content": first["content"]}]
    text = {"type": "text", "text": "Found:"}
    reference = {"type": "tool_reference", "tool_name": "nothing"}
    history.append(result(first["content"][-1], text, reference))
    await ask(served, tools=[SEARCH], messages=history)
    content = served.engine.sessions[1].turns[0][-1]["content"]
    assert content == "Found:\nNo tools were found."


@pytest.mark.parametrize("kind", [f"{REGEX}_20251119", f"{BM25}_20251119", BM25])
async def test_the_server_searches(serve_script: Any, kind: str) -> None:
    name = kind.removesuffix("_20251119")
    script = [call(name, query="calendar"), call("calendar_create", begin="now"), say("Done.")]
    served = await serve_script(script)
    tools = [WEATHER, {"type": kind, "name": name}, *LATE]
    status, first = await ask(served, tools=tools)
    assert status == 200, first
    use, found, made = first["content"]
    assert (use["type"], use["name"], use["input"]) == (
        *("server_tool_use", name, {"query": "calendar"}),
    )
    assert (found["type"], found["tool_use_id"]) == ("tool_search_tool_result", use["id"])
    assert found["content"] == {
        "type": "tool_search_tool_search_result",
        "tool_references": [{"type": "tool_reference", "tool_name": "calendar_create"}],
    }
    assert (made["type"], made["name"]) == ("tool_use", "calendar_create")
    (session,) = served.engine.sessions
    assert names(session.spec.tools) == ["weather", name]
    assert first["usage"]["server_tool_use"] is None
    history = [HELLO, {"role": "assistant", "content": first["content"]}, result(made)]
    status, second = await ask(served, tools=tools, messages=history)
    assert status == 200, second
    assert "caesura" not in second
    assert await counted(served) == {("spliced", "unchanged"): 1}


async def test_a_bad_pattern_is_told(serve_script: Any) -> None:
    served = await serve_script([call(REGEX, query="("), say("No.")])
    _, answer = await ask(served, tools=[{"type": f"{REGEX}_20251119", "name": REGEX}, MAIL])
    error = {"type": "tool_search_tool_result_error", "error_code": "invalid_tool_input"}
    assert answer["content"][1]["content"] == error


@pytest.mark.parametrize(
    ("tools", "choice", "listed"),
    [
        (LATE, None, ["send_mail", "calendar_create", "read_files"]),
        ([SEARCH, MAIL], None, ["ToolSearch"]),
        ([SEARCH, MAIL, EVENT], {"type": "tool", "name": "send_mail"}, ["send_mail"]),
    ],
)
async def test_tools_that_nobody_could_find_are_listed(
    serve_script: Any, tools: Any, choice: Any, listed: list[str]
) -> None:
    served = await serve_script([call("send_mail")])
    fields = {} if choice is None else {"tool_choice": choice}
    status, answer = await ask(served, tools=tools, **fields)
    assert status == 200, answer
    assert names(served.engine.sessions[0].spec.tools) == listed


async def searched(kind: str, query: str) -> Any:
    specs = [
        {
            "type": "function",
            "function": {
                "name": tool["name"],
                "description": tool["description"],
                "parameters": tool["input_schema"],
            },
        }
        for tool in LATE
    ]
    many = [{**spec, "function": {**spec["function"]}} for spec in specs * 4]
    for number, spec in enumerate(many[3:]):
        spec["function"] |= {"name": f"other_{number}", "description": "Many others."}
        spec["function"]["parameters"] = {}
    dispatcher = Dispatcher(Registry([search_tool(kind, many)]))
    return await dispatcher.run(ToolCall("c", kind, json.dumps({"query": query})))


@pytest.mark.parametrize(
    ("kind", "query", "found"),
    [
        (REGEX, "^(send|read)_", ["send_mail", "read_files"]),
        (REGEX, "(?i)EVENT", ["calendar_create"]),
        (REGEX, "recipient", ["send_mail"]),
        (REGEX, "nothing", []),
        (BM25, "letters", ["send_mail"]),
        (BM25, 'the begin of a "calendar" OR event*', ["calendar_create"]),
        (BM25, "file", ["read_files"]),
        (BM25, "?!", []),
    ],
)
async def test_what_is_found(kind: str, query: str, found: list[str]) -> None:
    result = await searched(kind, query)
    assert result.error is None
    assert names_in(result.content) == found


async def test_searches_are_bounded() -> None:
    assert len(names_in((await searched(REGEX, "other")).content)) == MAX_FOUND
    result = await searched(REGEX, "(a|aa)+$")
    assert result.error == "failed"
    assert "takes too long" in result.content
    assert (await searched(REGEX, "x" * 201)).error == "failed"


def test_a_text_that_was_cut_tells_what_is_whole() -> None:
    spec = {"type": "function", "function": {"name": "a", "parameters": {}}}
    whole = told([spec, {"type": "function", "function": {"name": "b", "parameters": {}}}])
    assert names_in(whole) == ["a", "b"]
    assert names_in(f"{whole[:-5]} [cut: 10 tokens in all]") == ["a"]
    assert names_in("no such text") == []
