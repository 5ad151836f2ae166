"""Tools that clients expect a server to have, and deferred tools, on the real engine.

The calls are forced by grammars, since the bundled model does not know these tools.
"""

import json
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import openai
import pytest

from caesura.runtime.server import create_app
from caesura.runtime.server.listen import listening
from caesura.scheduler.vllm.client.engine import VllmEngine
from caesura.tools import Registry
from tests.kit.web import SearchEngine, search_engine

__all__ = ["search_engine"]

pytestmark = pytest.mark.engine

BLOCK = 16
"""The tokens of a block of the KV cache."""
RULES = "Answer in one word, whatever the number of this rule is. " * 8
ASKED: Any = {"role": "user", "content": "What do oaks bear?"}
NEXT: Any = {"role": "user", "content": "And beeches?"}


@pytest.fixture
async def address(engine: VllmEngine, search_engine: SearchEngine) -> AsyncIterator[str]:
    app = create_app(engine, Registry([search_engine.search, search_engine.fetch]))
    async with listening(app) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
async def responses(address: str) -> AsyncIterator[Any]:
    async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="-") as client:
        yield client.responses


def computed(before: Any, after: Any) -> tuple[int, int]:
    """Return how many tokens a follow-up computed, and how many of its prompt were new."""
    usage = after.usage
    missed = usage.input_tokens - usage.input_tokens_details.cached_tokens
    new = usage.input_tokens - before.usage.total_tokens
    print(f"{usage.input_tokens} tokens in the prompt, {new} new, {missed} computed")
    return missed, new


async def test_a_search_runs_and_its_history_is_spliced(
    engine: VllmEngine, responses: Any, search_engine: SearchEngine, settled: Any
) -> None:
    fields: Any = {"model": engine.model, "store": False, "max_output_tokens": 600}
    fields |= {"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}
    fields |= {"instructions": RULES, "temperature": 0}
    async with responses.stream(input=[ASKED], **fields) as stream:
        kinds = [event.type async for event in stream]
        first = await stream.get_final_response()
    assert "response.web_search_call.completed" in kinds
    assert first.output[0].type == "web_search_call"
    assert first.output[0].status == "completed"
    (query,) = search_engine.queries
    assert first.output[0].action.query == query
    items = [item.to_dict() for item in first.output]
    for item in items:  # Codex leaves the ids out
        item.pop("id")
    second = await responses.create(input=[ASKED, *items, NEXT], **fields)
    missed, new = computed(first, second)
    assert 0 < new < 100
    assert missed <= new + 2 * BLOCK


async def test_messages_search_and_their_history_is_spliced(
    engine: VllmEngine, address: str, search_engine: SearchEngine, settled: Any
) -> None:
    tool: Any = {"type": "web_search_20250305", "name": "web_search", "max_uses": 4}
    fields: Any = {"model": engine.model, "max_tokens": 600, "tools": [tool]}
    fields |= {"system": RULES, "extra_body": {"temperature": 0}}
    fields |= {"tool_choice": {"type": "tool", "name": "web_search"}}
    async with anthropic.AsyncAnthropic(base_url=address, api_key="-") as client:
        async with client.messages.stream(messages=[ASKED], **fields) as stream:
            first = await stream.get_final_message()
        use, result = first.content[0], first.content[1]
        assert (use.type, result.type) == ("server_tool_use", "web_search_tool_result")
        assert isinstance(result.content, list)
        assert result.content[0].url == "https://trees.example/oak"
        assert first.usage.server_tool_use is not None
        assert first.usage.server_tool_use.web_search_requests == 1
        content: Any = [block.to_dict() for block in first.content]
        history = [ASKED, {"role": "assistant", "content": content}, NEXT]
        second = await client.messages.create(messages=history, **fields)
    read = second.usage.cache_read_input_tokens or 0
    before = first.usage.input_tokens + (first.usage.cache_read_input_tokens or 0)
    print(f"{second.usage.input_tokens} computed, {read} cached, {before} before")
    assert read >= before - 2 * BLOCK
    assert len(search_engine.queries) == 2


async def test_a_tool_that_was_found_is_called_and_the_prefix_stays(
    engine: VllmEngine, responses: Any, settled: Any
) -> None:
    search: Any = {"type": "tool_search", "execution": "client", "description": "Find tools."}
    query = {"type": "string", "maxLength": 12}
    search["parameters"] = {"type": "object", "properties": {"query": query}, "required": ["query"]}
    found = {
        "type": "function",
        "name": "plant",
        "description": "Plant a tree.",
        "parameters": {
            "type": "object",
            "properties": {"kind": {"type": "string", "enum": ["oak", "beech"]}},
            "required": ["kind"],
        },
        "defer_loading": True,
    }
    fields: Any = {"model": engine.model, "store": False, "max_output_tokens": 600}
    fields |= {"tools": [search], "instructions": RULES, "temperature": 0}
    first = await responses.create(input=[ASKED], tool_choice={"type": "tool_search"}, **fields)
    (call,) = first.output
    assert (call.type, call.execution) == ("tool_search_call", "client")
    assert "query" in call.arguments
    output = {"type": "tool_search_output", "execution": "client", "call_id": call.call_id}
    history = [ASKED, call.to_dict(), output | {"status": "completed", "tools": [found]}]
    choice = {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "function", "name": "plant"}],
    }
    second = await responses.create(input=history, tool_choice=choice, **fields)
    (made,) = second.output
    assert (made.type, made.name) == ("function_call", "plant")
    assert json.loads(made.arguments)["kind"] in ("oak", "beech")
    missed, new = computed(first, second)
    assert missed <= new + 2 * BLOCK
    result = {"type": "function_call_output", "call_id": made.call_id, "output": "planted"}
    third = await responses.create(input=[*history, made.to_dict(), result], **fields)
    missed, new = computed(second, third)
    assert missed <= new + 2 * BLOCK
