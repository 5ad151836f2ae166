"""OpenAI's search of the web in Responses, run by the server's own tool."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from caesura.runtime.server.responses.output import events_again
from caesura.runtime.testing import call, calls, say
from caesura.tools.tool import tool
from tests.kit.server import counted
from tests.kit.web import SearchEngine, search_engine
from tests.runtime.server.responses.asking import TOOL, events, post

__all__ = ["search_engine"]

SEARCH: dict[str, Any] = {"type": "web_search"}
SOURCES = "web_search_call.action.sources"


@pytest.fixture
async def served(serve_script: Any, search_engine: SearchEngine) -> AsyncIterator[Any]:
    first = calls(call("web_search", query="oak"), text="I search. ")
    script = [first, say("Oaks bear acorns."), say("As I said.")]
    yield await serve_script(script, [search_engine.search, search_engine.fetch])


@pytest.mark.parametrize("kind", ["web_search", "web_search_2025_08_26", "web_search_preview"])
async def test_a_search_runs_and_is_shown(served: Any, checked: Any, kind: str) -> None:
    found = await events(served, tools=[TOOL, {"type": kind}], include=[SOURCES])
    checked(found)
    told = [event["type"] for event in found if "web_search_call" in event["type"]]
    assert told == [
        f"response.web_search_call.{state}" for state in ("in_progress", "searching", "completed")
    ]
    final = found[-1]["response"]
    assert [item["type"] for item in final["output"]] == ["message", "web_search_call", "message"]
    search = final["output"][1]
    assert search["id"].startswith("ws_")
    assert search["status"] == "completed"
    assert search["action"] == {
        "type": "search",
        "query": "oak",
        "queries": ["oak"],
        "sources": [{"type": "url", "url": "https://trees.example/oak"}],
    }
    assert final["output"][2]["content"][0]["annotations"] == []
    assert final["tools"][1] == {"type": kind}
    assert "left_out" not in final["caesura"]
    (ran,) = final["caesura"]["calls"]
    assert "https://trees.example/oak" in ran["content"]
    names = [spec["function"]["name"] for spec in served.engine.sessions[0].spec.tools]
    assert names == ["weather", "web_search"]
    again = events_again(final)
    checked(again)
    assert [event["type"] for event in again if "web_search" in event["type"]] == told


async def test_what_include_does_not_name_is_not_shown(served: Any) -> None:
    _, body = await post(served, tools=[SEARCH])
    (search,) = [item for item in body["output"] if item["type"] == "web_search_call"]
    assert "sources" not in search["action"]
    assert "results" not in search


async def test_openais_client_reads_a_search(served: Any) -> None:
    tools: Any = [SEARCH | {"search_context_size": "low"}]
    answer = await served.openai.responses.create(model=served.engine.model, input="?", tools=tools)
    assert answer.output[1].action.query == "oak"
    assert answer.output_text == "I search. Oaks bear acorns."


async def test_the_domains_are_kept_to(served: Any, search_engine: SearchEngine) -> None:
    filters = {"allowed_domains": ["nowhere.example"]}
    place = {"type": "approximate", "country": "NO"}
    search = SEARCH | {"filters": filters, "user_location": place}
    _, body = await post(served, tools=[search], include=[SOURCES])
    assert body["output"][1]["action"]["sources"] == []
    assert search_engine.queries == ["oak site:nowhere.example"]
    assert body["caesura"]["left_out"] == ["field user_location of the tool web_search"]
    assert body["tools"] == [search]


async def test_a_search_that_fails_is_shown(served: Any, search_engine: SearchEngine) -> None:
    search_engine.status = 403
    found = await events(served, tools=[SEARCH])
    assert found[-1]["response"]["output"][1]["status"] == "failed"
    assert "response.web_search_call.completed" not in [event["type"] for event in found]
    told = served.engine.sessions[0].turns[1][0]["content"]
    assert told.startswith("error: ")


async def test_the_search_can_be_chosen(served: Any) -> None:
    status, body = await post(served, tools=[TOOL, SEARCH], tool_choice={"type": "web_search"})
    assert status == 200, body
    session = served.engine.sessions[0]
    assert [spec["function"]["name"] for spec in session.spec.tools] == ["web_search"]
    assert session.samplings[0].calls.required
    assert body["tool_choice"] == {"type": "web_search"}
    other = {"type": "allowed_tools", "tools": [{"type": "image_generation"}]}
    status, _ = await post(served, tools=[TOOL, SEARCH], tool_choice=other)
    assert status == 400


async def test_a_history_with_a_search_is_taken_and_splices(served: Any) -> None:
    asked = {"role": "user", "content": "Hello"}
    _, first = await post(served, tools=[SEARCH], store=False)
    # Codex sends searches back without their ids.
    items = [
        {name: value for name, value in item.items() if name != "id"} for item in first["output"]
    ]
    status, body = await post(served, input=[asked, *items, asked], tools=[SEARCH], store=False)
    assert status == 200, body
    sent = served.engine.sessions[1].turns[0][1:-1]
    assert [message["content"] for message in sent] == ["I search. ", "Oaks bear acorns."]
    assert await counted(served) == {("spliced", "unchanged"): 1}
    assert "left_out" not in body.get("caesura", {})


async def test_a_stored_response_goes_on_with_what_the_search_found(served: Any) -> None:
    _, first = await post(served, tools=[SEARCH])
    await post(served, previous_response_id=first["id"], tools=[SEARCH])
    whole = served.engine.sessions[1].turns[0]
    assert [message["role"] for message in whole] == [
        *("user", "assistant", "tool", "assistant", "user")
    ]
    assert "https://trees.example/oak" in whole[2]["content"]


async def test_a_clients_tool_of_that_name_comes_first(served: Any) -> None:
    own = TOOL | {"name": "web_search"}
    _, body = await post(served, tools=[own, SEARCH])
    assert [item["type"] for item in body["output"]] == ["message", "function_call"]
    assert body["caesura"]["left_out"] == ["tool web_search"]
    assert [each["type"] for each in body["tools"]] == ["function"]


async def test_another_tool_of_that_name_is_none(serve_script: Any) -> None:
    @tool
    async def web_search(query: str) -> str:
        """Search something."""
        return "x"

    served = await serve_script([say("Hi.")], [web_search])
    _, body = await post(served, tools=[SEARCH])
    assert body["caesura"]["left_out"] == ["tool web_search"]
    assert served.engine.sessions[0].spec.tools == []


async def test_the_calls_are_counted(served: Any) -> None:
    _, body = await post(served, tools=[SEARCH], max_tool_calls=1)
    assert body["output"][1]["status"] == "completed"
    async with served.http.post(
        "/v1/responses/input_tokens",
        data=json.dumps({"input": "Hello", "tools": [SEARCH]}),
        headers={"Content-Type": "application/json"},
    ) as response:
        assert response.status == 200
