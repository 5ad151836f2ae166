"""Follow-ups as clients write them again, on all three APIs: no more is computed than is new."""

import itertools
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest

from caesura.runtime.launch import CPU_BLOCK_SIZE
from caesura.runtime.server import create_app
from caesura.runtime.server.app import ServerParts
from caesura.runtime.server.listen import listening
from caesura.scheduler.vllm.client.engine import VllmEngine
from caesura.tools import Registry

pytestmark = pytest.mark.engine

MODEL = "caesura-tiny"
PARAMETERS = {
    "type": "object",
    "properties": {
        "expression": {"type": "string"},
        "digits": {"type": "integer", "default": 12},
    },
    "required": ["expression"],
}
ABOUT = {"name": "calculator", "description": "Compute the value of an arithmetic expression."}
NUMBERS = itertools.count(231)
"""Makes each conversation one that the prefix cache does not have."""
Rewrite = Callable[[dict[str, Any]], str]
WAYS: dict[str, Rewrite] = {
    "as it came": json.dumps,
    "compact": lambda value: json.dumps(value, separators=(",", ":")),
    "with defaults, in another order": lambda value: json.dumps({"digits": 12.0, **value}),
    "escaped": lambda value: json.dumps(value).replace("*", "\\u002a"),
}


@pytest.fixture
async def url(engine: VllmEngine, settled: Any) -> AsyncIterator[str]:
    async with engine.backend.server() as vllm:
        app = create_app(engine, Registry(), parts=ServerParts(vllm=vllm))
        async with listening(app, shutdown_timeout=1) as port:
            yield f"http://127.0.0.1:{port}"


class Chat:
    """A conversation over chat completions, whose client writes the history again."""

    path = "/v1/chat/completions"

    def __init__(self, rewrite: Rewrite) -> None:
        self.rewrite = rewrite
        self.history: list[Any] = []

    def ask(self, text: str) -> None:
        self.history.append({"role": "user", "content": text})

    def body(self) -> dict[str, Any]:
        tools = [{"type": "function", "function": ABOUT | {"parameters": PARAMETERS}}]
        return {"messages": self.history, "tools": tools, "max_tokens": 100, "temperature": 0}

    def take(self, answer: dict[str, Any]) -> tuple[int, int, int]:
        """Add an answer and results of its calls; return its prompt, cached and sampled tokens."""
        (choice,) = answer["choices"]
        message = {"role": "assistant", "content": choice["message"]["content"]}
        message["provider_specific_fields"] = {"reasoning": None}
        calls = choice["message"].get("tool_calls") or []
        for call in calls:
            read = json.loads(call["function"]["arguments"])
            call["function"]["arguments"] = self.rewrite(read)
        self.history.append(message | ({"tool_calls": calls} if calls else {}))
        self.history += [
            {"role": "tool", "tool_call_id": call["id"], "content": "It is 3927."} for call in calls
        ]
        usage = answer["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        return usage["prompt_tokens"], cached, usage["completion_tokens"]


class Messages(Chat):
    """A conversation over Anthropic's API."""

    path = "/v1/messages"

    def body(self) -> dict[str, Any]:
        return super().body() | {"tools": [ABOUT | {"input_schema": PARAMETERS}]}

    def take(self, answer: dict[str, Any]) -> tuple[int, int, int]:
        calls = [block for block in answer["content"] if block["type"] == "tool_use"]
        for call in calls:
            call["input"] = json.loads(self.rewrite(call["input"]))
        self.history.append({"role": "assistant", "content": answer["content"]})
        results = [
            {"type": "tool_result", "tool_use_id": call["id"], "content": "It is 3927."}
            for call in calls
        ]
        if results:
            self.history.append({"role": "user", "content": results})
        usage = answer["usage"]
        cached = usage["cache_read_input_tokens"]
        return usage["input_tokens"] + cached, cached, usage["output_tokens"]


class Responses(Chat):
    """A conversation over responses, of which none is stored."""

    path = "/v1/responses"

    def body(self) -> dict[str, Any]:
        tools = [{"type": "function", **ABOUT, "parameters": PARAMETERS}]
        asked = {"input": self.history, "tools": tools, "store": False, "temperature": 0}
        return asked | {"max_output_tokens": 100}

    def take(self, answer: dict[str, Any]) -> tuple[int, int, int]:
        calls = [item for item in answer["output"] if item["type"] == "function_call"]
        for call in calls:
            call["arguments"] = self.rewrite(json.loads(call["arguments"]))
        self.history += answer["output"]
        self.history += [
            {"type": "function_call_output", "call_id": call["call_id"], "output": "It is 3927."}
            for call in calls
        ]
        usage = answer["usage"]
        cached = usage["input_tokens_details"]["cached_tokens"]
        return usage["input_tokens"], cached, usage["output_tokens"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("api", [Chat, Messages, Responses])
async def test_a_follow_up_computes_what_is_new(url: str, api: type[Chat], way: str) -> None:
    """Two questions with a call each; the second one's result stands behind the whole first one."""
    conversation = api(WAYS[way])
    known, calls = 0, 0
    async with aiohttp.ClientSession(url) as http:
        for question in ("What is {} * 17? Please be exact.", "And what is {} * 19? Be exact."):
            conversation.ask(question.format(next(NUMBERS)))
            for _ in range(2):
                asked = {"model": MODEL, **conversation.body()}
                async with http.post(conversation.path, json=asked) as response:
                    answer = await response.json()
                assert response.status == 200, answer
                turns = len(conversation.history)
                prompt, cached, sampled = conversation.take(answer)
                assert prompt > known
                if known:
                    assert cached == (known - 1) // CPU_BLOCK_SIZE * CPU_BLOCK_SIZE
                known = prompt + sampled
                calls += len(conversation.history) > turns + 1
        async with http.get("/metrics") as metrics:
            text = await metrics.text()
    assert calls == 2
    line = 'caesura_followups_total{field="",outcome="spliced",why="unchanged"} 3.0'
    assert line in text and 'outcome="rendered"' not in text
