"""A prompt that is counted has the tokens that the same request is charged, in every form."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from caesura.runtime.server import create_app
from caesura.runtime.server.app import ServerParts
from caesura.runtime.server.listen import listening
from caesura.scheduler.vllm.client.engine import VllmEngine
from caesura.tools import Registry
from tests.engine.templates import over

pytestmark = pytest.mark.engine

MODEL = "caesura-tiny"
TEMPLATES = ("", "qwen3", "qwen3_5_think", "llama3_1", "deepseek_v31", "mistral_nemo", "granite_4")
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1}},
    "required": ["city"],
}
TOOLS = [
    {"name": name, "description": f"Tells the {name}.", "input_schema": SCHEMA}
    for name in ("weather", "time")
]
ASKED = {"role": "user", "content": "What is the weather in Rome?"}
THOUGHT = {"type": "thinking", "thinking": "I should look.\nIn Rome.", "signature": "s"}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


# Mistral's template refuses ids of calls that have not nine letters and digits.
def use(number: int, name: str = "weather") -> dict[str, Any]:
    called = {"city": "Rome", "days": number}
    return {"type": "tool_use", "id": f"toolu{number:04}", "name": name, "input": called}


def result(number: int, content: Any = "Rain.", **more: Any) -> dict[str, Any]:
    told = {"type": "tool_result", "tool_use_id": f"toolu{number:04}", "content": content}
    return told | more


def after(calls: list[Any], *results: Any, **more: Any) -> dict[str, Any]:
    told = [{"role": "assistant", "content": calls}, {"role": "user", "content": [*results]}]
    return {"tools": TOOLS, "messages": [ASKED, *told]} | more


MESSAGES: dict[str, dict[str, Any]] = {
    "text": {},
    "parts": {"messages": [{"role": "user", "content": [text("One."), text("Two.")]}]},
    "system": {"system": "Be brief."},
    "system of one part": {"system": [text("Be brief.")]},
    "system of parts": {
        "system": [text("Be brief."), text("Be kind.") | {"cache_control": {"type": "ephemeral"}}]
    },
    "late system": {"messages": [ASKED, {"role": "system", "content": "Be kind."}]},
    "two users": {"messages": [ASKED, {"role": "user", "content": "And in Oslo?"}]},
    "tools": {"tools": TOOLS},
    "no calls": {"tools": TOOLS, "tool_choice": {"type": "none"}},
    "result": after([use(1)], result(1)),
    "result and text": after([text("I look."), use(1)], result(1), text("Well?")),
    "several calls": after([use(1), use(2, "time")], result(1), result(2)),
    "result of parts": after([use(1)], result(1, [text("Rain."), text("Wind.")])),
    "error": after([use(1)], result(1, "No network.", is_error=True)),
    "empty result": after([use(1)], result(1, "")),
    "thinking": after([THOUGHT, text("I look."), use(1)], result(1)),
    "thinking on": after([THOUGHT, use(1)], result(1), thinking={"type": "adaptive"}),
    "thinking off": {"thinking": {"type": "disabled"}},
    "effort": {"output_config": {"effort": "low"}},
    "prefill": {"messages": [ASKED, {"role": "assistant", "content": "In Rome"}]},
}
CALLED = {"type": "function_call", "call_id": "call00001", "name": "weather"}
OUTPUT = {"type": "function_call_output", "call_id": "call00001", "output": "Rain."}
FUNCTIONS = [
    {"type": "function", "name": each["name"], "description": "", "parameters": SCHEMA}
    for each in TOOLS
]
RESPONSES: dict[str, dict[str, Any]] = {
    "text": {"input": "Hello!"},
    "instructions": {"instructions": "Be brief."},
    "developers": {
        "instructions": "Be brief.",
        "input": [{"role": "developer", "content": each} for each in ("One.", "Two.")] + [ASKED],
    },
    "tools": {"tools": FUNCTIONS},
    "result": {
        "tools": FUNCTIONS,
        "input": [ASKED, CALLED | {"arguments": '{"city": "Rome"}'}, OUTPUT],
    },
    "several calls": {
        "tools": FUNCTIONS,
        "input": [
            ASKED,
            CALLED | {"arguments": '{"city": "Rome"}'},
            CALLED | {"arguments": '{"city": "Oslo"}', "call_id": "call00002"},
            OUTPUT,
            OUTPUT | {"call_id": "call00002"},
        ],
    },
    "effort": {"reasoning": {"effort": "low"}},
}


class Server:
    def __init__(self, url: str) -> None:
        self.http = aiohttp.ClientSession(url)

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        async with self.http.post(path, json={"model": MODEL} | body) as response:
            answer: dict[str, Any] = await response.json()
            assert response.status == 200, answer
        return answer


@pytest.fixture(params=TEMPLATES)
async def server(request: pytest.FixtureRequest, engine: VllmEngine) -> AsyncIterator[Server]:
    chosen = over(request.param, engine) if request.param else engine
    async with chosen.backend.server() as vllm:
        app = create_app(chosen, Registry(), parts=ServerParts(vllm=vllm))
        async with listening(app, shutdown_timeout=1) as port:
            made = Server(f"http://127.0.0.1:{port}")
            yield made
            await made.http.close()


async def test_messages_cost_what_was_counted(server: Server) -> None:
    counted, charged = {}, {}
    for form, fields in MESSAGES.items():
        body = {"messages": [ASKED], "cache_salt": "counted"} | fields
        counted[form] = (await server.post("/v1/messages/count_tokens", body))["input_tokens"]
        usage = (await server.post("/v1/messages", body | {"max_tokens": 1}))["usage"]
        charged[form] = usage["input_tokens"] + usage["cache_read_input_tokens"]
    assert counted == charged


async def test_responses_cost_what_was_counted(server: Server) -> None:
    counted, charged = {}, {}
    for form, fields in RESPONSES.items():
        body = {"input": [ASKED]} | fields
        counted[form] = (await server.post("/v1/responses/input_tokens", body))["input_tokens"]
        answer = await server.post("/v1/responses", body | {"max_output_tokens": 1})
        charged[form] = answer["usage"]["input_tokens"]
    assert counted == charged
