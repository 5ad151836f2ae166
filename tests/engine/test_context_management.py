"""`context_management` of messages on the real engine: what clearing and compacting compute."""

from collections.abc import AsyncIterator
from typing import Any

import anthropic
import pytest

from caesura.runtime.server import create_app
from caesura.runtime.server.listen import listening
from caesura.scheduler.vllm.client.engine import VllmEngine
from caesura.tools import Registry

pytestmark = pytest.mark.engine

BLOCK = 16
"""The tokens of a block of the KV cache."""
TOLD = "Tell me of the sea and of the rivers that flow into it. "
GREEDY = {"temperature": 0}
LOOK: Any = {"name": "look", "input_schema": {"type": "object"}}


@pytest.fixture
async def client(engine: VllmEngine) -> AsyncIterator[anthropic.AsyncAnthropic]:
    app = create_app(engine, Registry([]))
    async with (
        listening(app) as port,
        anthropic.AsyncAnthropic(base_url=f"http://127.0.0.1:{port}", api_key="-") as client,
    ):
        yield client


def user(content: Any) -> Any:
    return {"role": "user", "content": content}


def prompt(usage: Any) -> int:
    """The tokens of a prompt; `input_tokens` are those of them that were computed."""
    return int(usage.input_tokens + usage.cache_read_input_tokens)


async def test_a_compaction_computes_its_instruction_alone(
    engine: VllmEngine, client: anthropic.AsyncAnthropic, settled: Any
) -> None:
    asked: Any = {"model": engine.model, "system": "Be brief.", "tools": [LOOK]}
    asked |= {"max_tokens": 400, "betas": ["compact-2026-01-12"], "extra_body": GREEDY}
    messages: Any = [user(TOLD * 30)]
    first = await client.beta.messages.create(messages=messages, **asked)
    context = prompt(first.usage) + first.usage.output_tokens
    assert context > 400
    trigger = {"type": "input_tokens", "value": 300}
    asked["context_management"] = {"edits": [{"type": "compact_20260112", "trigger": trigger}]}
    messages += [{"role": "assistant", "content": first.content}, user("And of lakes?")]
    second = await client.beta.messages.create(messages=messages, **asked)
    written, answered = second.usage.iterations
    print(prompt(written), "tokens in the prompt,", written.input_tokens, "computed")
    print("summary:", second.content[0].content)
    assert 0 < prompt(written) - context < 100
    assert written.input_tokens <= prompt(written) - context + 2 * BLOCK
    assert second.content[0].content
    assert prompt(answered) < 300 + written.output_tokens
    assert prompt(answered) == prompt(second.usage)
    # The next request goes on from the summary and its answer.
    messages += [{"role": "assistant", "content": second.content}, user("Thanks.")]
    third = await client.beta.messages.create(messages=messages, **asked)
    before = prompt(answered) + answered.output_tokens
    print(prompt(third.usage), "tokens in the prompt,", third.usage.input_tokens, "computed")
    assert third.usage.input_tokens <= prompt(third.usage) - before + 2 * BLOCK


async def test_a_cleared_result_keeps_the_kv_cache_up_to_it(
    engine: VllmEngine, client: anthropic.AsyncAnthropic, settled: Any
) -> None:
    asked: Any = {"model": engine.model, "system": TOLD * 10, "tools": [LOOK], "extra_body": GREEDY}
    asked |= {"max_tokens": 4, "betas": ["context-management-2025-06-27"]}
    edit = {
        "type": "clear_tool_uses_20250919",
        "trigger": {"type": "input_tokens", "value": 1400},
        "keep": {"type": "tool_uses", "value": 1},
    }
    asked["context_management"] = {"edits": [edit]}
    messages: Any = [user("Look at both.")]
    usages, cleared = [], []
    for number in range(5):
        block = {"type": "tool_use", "id": f"call{number:05}", "name": "look", "input": {}}
        result = {"type": "tool_result", "tool_use_id": block["id"], "content": TOLD * 15}
        messages += [{"role": "assistant", "content": [block]}, user([result])]
        answer = await client.beta.messages.create(messages=messages, **asked)
        counted = await client.beta.messages.count_tokens(
            messages=messages,
            **{name: asked[name] for name in asked if name != "max_tokens"},
        )
        assert counted.input_tokens == prompt(answer.usage)
        applied = answer.context_management.applied_edits
        cleared.append(applied[0].cleared_tool_uses if applied else 0)
        if applied:
            assert counted.context_management is not None
            original = counted.context_management.original_input_tokens
            assert original - counted.input_tokens == applied[0].cleared_input_tokens > 100
        usages.append(answer.usage)
        print(
            prompt(answer.usage), "in the prompt,", answer.usage.input_tokens, "computed", cleared
        )
    assert cleared[0] == 0 < cleared[-1]
    at = next(number for number, uses in enumerate(cleared) if uses)
    system = await client.beta.messages.count_tokens(
        model=engine.model, system=asked["system"], tools=[LOOK], messages=messages[:1]
    )
    assert usages[at].cache_read_input_tokens >= system.input_tokens - 2 * BLOCK
    assert len(set(cleared[at:])) < len(cleared[at:]), "it goes on between two clearings"
    for number in range(1, 5):
        if cleared[number] == cleared[number - 1]:
            grown = prompt(usages[number]) - prompt(usages[number - 1])
            assert usages[number].input_tokens <= grown + 2 * BLOCK
