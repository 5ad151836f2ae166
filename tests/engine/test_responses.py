"""`/v1/responses` on the real engine."""

import asyncio
import contextlib
import io
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest

from caesura.runtime.server import create_app
from caesura.runtime.server.app import ServerParts
from caesura.runtime.server.listen import listening
from caesura.scheduler.vllm.client.engine import VllmEngine
from caesura.tools import Registry
from caesura.tools.calculator.tool import calculator
from caesura.tools.people import People, with_approval

pytestmark = pytest.mark.engine

BLOCK = 16
"""The tokens of a block of the KV cache."""
DOCS = Path(__file__).parent.parent.parent / "docs" / "guides" / "responses.md"
MCP: Any = {"type": "mcp", "server_label": "caesura", "allowed_tools": ["calculator"]}


@pytest.fixture
async def client(engine: VllmEngine) -> AsyncIterator[openai.AsyncOpenAI]:
    app = create_app(engine, Registry([calculator]))
    async with (
        listening(app) as port,
        openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="-") as client,
    ):
        yield client


async def test_a_server_tool_runs_within_a_response(
    engine: VllmEngine, client: openai.AsyncOpenAI, settled: Any
) -> None:
    asked = {"model": engine.model, "input": "What is 48 * 17?", "temperature": 0, "tools": [MCP]}
    async with client.responses.stream(**asked) as stream:
        async for _ in stream:
            pass
        response = await stream.get_final_response()
    listed, made, message = response.output
    assert (listed.type, made.type, message.type) == ("mcp_list_tools", "mcp_call", "message")
    assert made.output == "816"
    assert "816" in response.output_text
    assert response.usage is not None and response.usage.output_tokens > 10


async def test_the_example_of_the_docs_prints_what_it_says(
    client: openai.AsyncOpenAI, settled: Any
) -> None:
    block = re.search(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert block is not None
    code = block[1].replace("http://127.0.0.1:8000/v1", str(client.base_url))
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        await asyncio.to_thread(exec, code, {})
    assert said.getvalue() and f"# {said.getvalue()}" in code


async def test_a_follow_up_finds_the_prefix_of_its_response(
    engine: VllmEngine, client: openai.AsyncOpenAI, settled: Any
) -> None:
    first = await client.responses.create(
        model=engine.model, input="Tell me of the sea. " * 8, max_output_tokens=32
    )
    second = await client.responses.create(
        model=engine.model,
        input="And of rivers?",
        previous_response_id=first.id,
        max_output_tokens=8,
    )
    assert first.usage is not None and second.usage is not None
    assert second.usage.input_tokens_details.cached_tokens >= first.usage.input_tokens // 2


async def test_a_response_that_two_follow_is_a_fork_that_computes_nothing_twice(
    engine: VllmEngine, client: openai.AsyncOpenAI, settled: Any
) -> None:
    """Behind a tool's result: each finds all full blocks, and says what it says alone."""
    block = (await engine.command("facts"))["block_size"]
    asked: Any = {"model": engine.model, "temperature": 0, "tools": [MCP]}

    async def begun() -> Any:
        told = "What is 48 * 17? Please be exact."
        return await client.responses.create(input=told, max_output_tokens=60, **asked)

    async def follow(response: Any, text: str) -> Any:
        return await client.responses.create(
            input=text, previous_response_id=response.id, max_output_tokens=24, **asked
        )

    first = await begun()
    assert [each.type for each in first.output] == ["mcp_list_tools", "mcp_call", "message"]
    forks = [await follow(first, text) for text in ("Hello!", "Thank you!", "And 27 * 31?")]
    # The KV of the last token was never computed.
    whole = (first.usage.total_tokens - 1) // block * block
    assert [each.usage.input_tokens_details.cached_tokens for each in forks] == [whole] * 3
    await engine.llm.reset_prefix_cache(reset_connector=True)
    alone = await follow(await begun(), "Hello!")
    assert alone.output_text == forks[0].output_text != ""


async def test_a_compaction_computes_its_instruction_alone(
    engine: VllmEngine, client: openai.AsyncOpenAI, settled: Any
) -> None:
    tool: Any = {"type": "function", "name": "look", "parameters": {"type": "object"}}
    asked: Any = {"model": engine.model, "instructions": "Be brief.", "tools": [tool]}
    told = "Tell me of the sea and of the rivers that flow into it. "
    first = await client.responses.create(input=told * 30, max_output_tokens=64, **asked)
    assert first.usage is not None and first.usage.input_tokens > 400
    context = first.usage.total_tokens
    for way in ("trigger", "compact", "named"):
        if way == "trigger":  # as Codex asks for it
            given: Any = [{"role": "user", "content": told * 30}, *first.output]
            trigger = {"type": "compaction_trigger"}
            made: Any = await client.responses.create(
                input=[*given, trigger], store=False, max_output_tokens=32, **asked
            )
        elif way == "compact":
            made = await client.responses.compact(
                input=given,
                extra_body={"tools": [tool]},
                **{name: asked[name] for name in ("model", "instructions")},
            )
        else:
            made = await client.responses.compact(model=engine.model, previous_response_id=first.id)
        assert made.output[-1].type == "compaction"
        usage = made.usage
        computed = usage.input_tokens - usage.input_tokens_details.cached_tokens
        print(way, usage.input_tokens, "tokens in the prompt,", computed, "computed")
        new = usage.input_tokens - context
        assert 0 < new < 100
        assert computed <= new + 2 * BLOCK


async def test_a_prompt_is_filled_ahead(
    engine: VllmEngine, client: openai.AsyncOpenAI, settled: Any
) -> None:
    """As Codex asks before its user has typed anything."""
    rules = "Answer in one word, whatever the number of this rule is. " * 40
    fields: Any = {"model": engine.model, "instructions": rules, "temperature": 0}
    begun = await client.responses.create(
        **fields, input="The file is long.", extra_body={"generate": False}
    )
    assert begun.status == "completed" and not begun.output
    await settled()
    answer = await client.responses.create(
        **fields, input="Hello.", previous_response_id=begun.id, max_output_tokens=4
    )
    assert answer.usage is not None
    cached = answer.usage.input_tokens_details.cached_tokens
    assert cached > answer.usage.input_tokens - 64


async def test_a_paused_call_waits_for_its_approval(engine: VllmEngine, settled: Any) -> None:
    people = People()
    tools = Registry([with_approval(calculator, people)])
    app = create_app(engine, tools, parts=ServerParts(people=people))
    async with (
        listening(app) as port,
        openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="-") as client,
    ):
        asked: Any = {"model": engine.model, "temperature": 0, "tools": [MCP]}
        first = await client.responses.create(input="What is 48 * 17?", **asked)
        request = first.output[-1]
        assert request.type == "mcp_approval_request"
        decision: Any = {
            "type": "mcp_approval_response",
            "approval_request_id": request.id,
            "approve": True,
        }
        second = await client.responses.create(
            input=[decision], previous_response_id=first.id, **asked
        )
    assert "816" in second.output_text
    await people.aclose()


async def test_prompts_are_counted_as_they_are_decoded(
    engine: VllmEngine, client: openai.AsyncOpenAI, settled: Any
) -> None:
    fields: Any = {"model": engine.model, "input": "What is 1 + 1?", "tools": [MCP]}
    counted = await client.responses.input_tokens.count(**fields)
    response = await client.responses.create(tool_choice="none", max_output_tokens=4, **fields)
    assert response.usage is not None
    assert counted.input_tokens == response.usage.input_tokens
