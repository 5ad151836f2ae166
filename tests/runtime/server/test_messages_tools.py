"""Anthropic's own tools in `/v1/messages`: those that clients run, and those that run here."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from anthropic import AsyncAnthropic

from caesura.runtime.server.api import notes
from caesura.runtime.testing import call, calls, say
from tests.kit.server import MODEL, counted
from tests.kit.web import SearchEngine, search_engine
from tests.runtime.server.said import HELLO, WEATHER

__all__ = ["search_engine"]

SEARCH: dict[str, Any] = {"type": "web_search_20250305", "name": "web_search"}
FETCH: dict[str, Any] = {"type": "web_fetch_20250910", "name": "web_fetch"}
DIRECT = {"caller": {"type": "direct"}}


@pytest.fixture
async def served(serve_script: Any, search_engine: SearchEngine) -> AsyncIterator[Any]:
    first = calls(call("web_search", query="oak"), text="I search.")
    script = [first, say("Oaks bear acorns."), say("As I said.")]
    yield await serve_script(script, [search_engine.search, search_engine.fetch])


async def ask(served: Any, **fields: Any) -> tuple[int, dict[str, Any]]:
    body = {"model": MODEL, "max_tokens": 100, "messages": [HELLO]} | fields
    async with served.http.post("/v1/messages", json=body) as response:
        return response.status, await response.json()


async def streamed(served: Any, **fields: Any) -> list[dict[str, Any]]:
    body = {"model": MODEL, "max_tokens": 100, "messages": [HELLO], "stream": True} | fields
    async with served.http.post("/v1/messages", json=body) as response:
        assert response.status == 200, await response.text()
        lines = (await response.text()).splitlines()
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data")]


@pytest.mark.parametrize("date", ["20250305", "20260209", "20260318"])
async def test_a_search_runs_and_is_shown(served: Any, date: str) -> None:
    search = SEARCH | {"type": f"web_search_{date}"}
    status, answer = await ask(served, tools=[WEATHER, search])
    assert status == 200, answer
    before, use, result, after = answer["content"]
    assert (before["text"], after["text"]) == ("I search.", "Oaks bear acorns.")
    assert use["id"].startswith("srvtoolu_")
    told = {"type": "server_tool_use", "name": "web_search", "input": {"query": "oak"}}
    assert use == told | DIRECT | {"id": use["id"]}
    assert (result["type"], result["tool_use_id"]) == ("web_search_tool_result", use["id"])
    (page,) = result["content"]
    assert (page["type"], page["url"]) == ("web_search_result", "https://trees.example/oak")
    assert page["title"] == "Oak"
    assert answer["stop_reason"] == "end_turn"
    used = {"web_search_requests": 1, "web_fetch_requests": 0}
    assert answer["usage"]["server_tool_use"] == used
    assert "left_out" not in answer["caesura"]
    names = [spec["function"]["name"] for spec in served.engine.sessions[0].spec.tools]
    assert names == ["weather", "web_search"]


async def test_a_search_streams(served: Any) -> None:
    events = await streamed(served, tools=[SEARCH])
    started = [e["content_block"] for e in events if e["type"] == "content_block_start"]
    kinds = ["text", "server_tool_use", "web_search_tool_result", "text"]
    assert [block["type"] for block in started] == kinds
    assert started[1]["input"] == {}
    deltas = [e["delta"] for e in events if e["type"] == "content_block_delta"]
    (written,) = [each["partial_json"] for each in deltas if each["type"] == "input_json_delta"]
    assert json.loads(written) == {"query": "oak"}
    assert started[2]["content"][0]["url"] == "https://trees.example/oak"
    stops = [e["index"] for e in events if e["type"] == "content_block_stop"]
    assert stops == [0, 1, 2, 3]
    assert events[-2]["usage"]["server_tool_use"]["web_search_requests"] == 1


async def test_a_page_is_fetched(serve_script: Any, search_engine: SearchEngine) -> None:
    url = f"{search_engine.address}/beech"
    script = [call("web_fetch", url=url), say("Smooth.")]
    served = await serve_script(script, [search_engine.search, search_engine.fetch])
    status, answer = await ask(served, tools=[FETCH | {"citations": {"enabled": True}}])
    assert status == 200, answer
    use, result, _ = answer["content"]
    assert (use["name"], result["type"]) == ("web_fetch", "web_fetch_tool_result")
    content = result["content"]
    assert (content["type"], content["url"]) == ("web_fetch_result", url)
    assert content["content"]["title"] == "Beech"
    assert content["content"]["source"]["data"] == "Its bark is smooth."
    assert answer["usage"]["server_tool_use"]["web_fetch_requests"] == 1


@pytest.mark.parametrize(
    ("tool", "first", "code"),
    [
        (SEARCH, call("web_search", wrong="oak"), "invalid_tool_input"),
        (FETCH | {"allowed_domains": ["a.example"]}, "http://b.example/", "url_not_allowed"),
        (FETCH, "ftp://b.example/", "url_not_accessible"),
    ],
)
async def test_errors_have_anthropics_codes(
    serve_script: Any, search_engine: SearchEngine, tool: Any, first: Any, code: str
) -> None:
    first = call("web_fetch", url=first) if isinstance(first, str) else first
    served = await serve_script([first, say("No.")], [search_engine.search, search_engine.fetch])
    _, answer = await ask(served, tools=[tool])
    kind = f"{tool['name']}_tool_result_error"
    assert answer["content"][1]["content"] == {"type": kind, "error_code": code}


async def test_a_tool_is_used_as_often_as_allowed(
    serve_script: Any, search_engine: SearchEngine
) -> None:
    both = [call("web_search", query="oak"), call("web_search", query="beech"), say("Done.")]
    served = await serve_script(both, [search_engine.search])
    wanted = SEARCH | {"max_uses": 1, "blocked_domains": ["b.example"]}
    _, answer = await ask(served, tools=[wanted])
    results = [each["content"] for each in answer["content"] if "tool_use_id" in each]
    assert results[0][0]["title"] == "Oak"
    assert results[1]["error_code"] == "max_uses_exceeded"
    assert answer["usage"]["server_tool_use"]["web_search_requests"] == 1
    assert search_engine.queries == ["oak -site:b.example"]


async def test_a_search_beside_a_clients_call_has_a_result(
    serve_script: Any, search_engine: SearchEngine
) -> None:
    first = calls(call("web_search", query="oak"), call("weather", city="Ulm"))
    served = await serve_script([first], [search_engine.search])
    _, answer = await ask(served, tools=[WEATHER, SEARCH])
    kinds = [block["type"] for block in answer["content"]]
    assert kinds == ["server_tool_use", "tool_use", "web_search_tool_result"]
    assert answer["content"][2]["content"]["error_code"] == "unavailable"
    assert answer["stop_reason"] == "tool_use"


async def test_a_history_with_a_search_splices(served: Any) -> None:
    _, first = await ask(served, tools=[SEARCH])
    history = [HELLO, {"role": "assistant", "content": first["content"]}, HELLO]
    status, answer = await ask(served, tools=[SEARCH], messages=history)
    assert status == 200, answer
    assert await counted(served) == {("spliced", "unchanged"): 1}
    assert "caesura" not in answer


async def test_the_search_can_be_forced_as_claude_code_does(served: Any) -> None:
    choice = {"type": "tool", "name": "web_search"}
    status, answer = await ask(served, tools=[SEARCH], tool_choice=choice)
    assert status == 200, answer
    first, second = served.engine.sessions[0].samplings
    assert (first.calls.required, second.calls.required) == (True, False)


async def test_anthropics_client_reads_it(served: Any) -> None:
    tools: Any = [SEARCH]
    async with AsyncAnthropic(base_url=served.url, api_key="none") as client:
        answer = await client.messages.create(
            model=MODEL, max_tokens=50, messages=[HELLO], tools=tools
        )
    assert answer.content[2].content[0].title == "Oak"
    assert answer.usage.server_tool_use.web_search_requests == 1


@pytest.mark.parametrize(
    ("tool", "commands"),
    [
        ({"type": "bash_20250124", "name": "bash"}, None),
        (
            {"type": "text_editor_20250124", "name": "str_replace_editor"},
            ["view", "create", "str_replace", "insert", "undo_edit"],
        ),
        (
            {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
            ["view", "create", "str_replace", "insert"],
        ),
        (
            {"type": "memory_20250818", "name": "memory"},
            ["view", "create", "str_replace", "insert", "delete", "rename"],
        ),
    ],
)
async def test_tools_that_clients_run_are_functions(
    serve_script: Any, tool: Any, commands: Any
) -> None:
    served = await serve_script([call(tool["name"], command="view")])
    status, answer = await ask(served, tools=[tool], tool_choice={"type": "any"})
    assert status == 200, answer
    (use,) = answer["content"]
    assert (use["type"], use["name"], use["input"]) == (
        "tool_use",
        tool["name"],
        {"command": "view"},
    )
    (spec,) = served.engine.sessions[0].spec.tools
    assert spec["function"]["description"]
    command = spec["function"]["parameters"]["properties"]["command"]
    assert command.get("enum") == commands
    inserted = "insert_text" in spec["function"]["parameters"]["properties"]
    assert inserted == (tool["name"] in ("str_replace_based_edit_tool", "memory"))
    assert "caesura" not in answer


@pytest.mark.parametrize(
    "tool",
    [
        SEARCH,
        FETCH,
        {"type": "code_execution_20250825", "name": "code_execution"},
        {"type": "computer_20250124", "name": "computer", "display_width_px": 1},
        {"type": "mcp_toolset", "mcp_server_name": "x"},
        {"type": "computer_toolset_20260801"},
    ],
    ids=lambda tool: tool["type"],
)
async def test_tools_that_nobody_runs_are_left_out_with_a_note(
    serve_script: Any, tool: Any
) -> None:
    notes._said.clear()
    served = await serve_script([say("Hi.")])
    status, answer = await ask(served, tools=[WEATHER, tool])
    assert status == 200, answer
    kind = tool["type"].rstrip("0123456789").rstrip("_")
    assert answer["caesura"]["left_out"] == [f"tool {kind}"]
    assert answer["usage"]["server_tool_use"] is None
    (spec,) = served.engine.sessions[0].spec.tools
    assert spec["function"]["name"] == "weather"
    if "name" in tool:
        choice = {"type": "tool", "name": tool["name"]}
        status, answer = await ask(served, tools=[WEATHER, tool], tool_choice=choice)
        assert (status, answer["error"]["type"]) == (400, "invalid_request_error")
        assert "not among the tools" in answer["error"]["message"]


async def test_tokens_are_counted_with_the_tools(served: Any) -> None:
    counts = []
    for tools in ([], [SEARCH]):
        body = {"model": MODEL, "messages": [HELLO], "tools": tools}
        async with served.http.post("/v1/messages/count_tokens", json=body) as response:
            assert response.status == 200
            counts.append((await response.json())["input_tokens"])
    assert counts[1] >= counts[0]
