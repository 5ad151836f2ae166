"""Options of `vllm serve` behind one port: each acts on all routes, also after a restart."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import torch
from safetensors.torch import save_file
from vllm import SamplingParams
from vllm.inputs import tokens_input

from caesura.intercept.calls.events import CallFinished, TurnEnded
from caesura.runtime.launch import start_engine
from caesura.runtime.server import create_app
from caesura.runtime.server.app import ServerParts
from caesura.runtime.server.listen import listening
from caesura.scheduler.errors import UsageError
from caesura.scheduler.messages import CallRule, Sampling, SessionSpec
from caesura.scheduler.vllm.client.engine import VllmEngine
from caesura.tools import Registry
from caesura.tools.calculator.tool import calculator

pytestmark = pytest.mark.engine

MODEL = "caesura-tiny"
ALIAS = "another-name"
WORDS = "Say a word, and another one, and go on with words for a long time."
HELLO: Any = [{"role": "user", "content": WORDS}]
ADAPTERS = ("lawyer", "surgeon")
MOST = 8
TEMPLATE = """
{%- for m in messages -%}
{{ '<|im_start|>' + m.role + '\\n' }}{% for part in m.content %}{{ part.text }}{% endfor %}
{{- ' zebra' * repeats + '<|im_end|>\\n' }}
{%- endfor -%}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""
"""A template that takes texts as parts, and whose length shows whether a variable was set."""


class Client:
    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http

    async def post(self, path: str, **fields: Any) -> Any:
        async with self._http.post(path, json={"model": MODEL, **fields}) as response:
            assert response.status == 200, await response.text()
            return await response.json()

    async def check_listed(self, model: str) -> None:
        async with self._http.get("/v1/models") as response:
            assert model in [each["id"] for each in (await response.json())["data"]]
        async with self._http.get(f"/v1/models/{model}") as response:
            assert (await response.json())["id"] == model

    async def usages(self, **fields: Any) -> dict[str, tuple[int, int]]:
        """Return the tokens of the same prompt and of its answer, by route."""
        asked = {"messages": HELLO, "temperature": 0, **fields}
        limit = fields.get("max_tokens", 40)
        said = {"input": WORDS, "temperature": 0, **fields}
        if "max_tokens" in said:
            said["max_output_tokens"] = said.pop("max_tokens")
        tools = {"server_tools": ["calculator"], "tool_choice": "none"}
        chats = {
            "chat": await self.post("/v1/chat/completions", **asked),
            "chat with server tools": await self.post("/v1/chat/completions", **asked, **tools),
        }
        messages = {
            "messages": await self.post("/v1/messages", **{**asked, "max_tokens": limit}),
            "messages with server tools": await self.post(
                "/v1/messages",
                **{**asked, "max_tokens": limit},
                server_tools=["calculator"],
                tool_choice={"type": "none"},
            ),
            "responses": await self.post("/v1/responses", **said),
        }
        used = {name: _tokens(each["usage"]) for name, each in (chats | messages).items()}
        assert len({prompt for prompt, _ in used.values()}) == 1, used
        return used


def _tokens(usage: dict[str, Any]) -> tuple[int, int]:
    if "prompt_tokens" in usage:
        return usage["prompt_tokens"], usage["completion_tokens"]
    apart = usage.get("cache_read_input_tokens") or 0  # as Anthropic counts
    return usage["input_tokens"] + apart, usage["output_tokens"]


def adapter(folder: Path, name: str) -> str:
    """Make a LoRA adapter of the bundled model that changes its answers; return `NAME=PATH`."""
    torch.manual_seed(len(name))
    weights = {}
    for layer in range(4):
        part = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        weights[f"{part}.lora_A.weight"] = torch.randn(8, 336)
        weights[f"{part}.lora_B.weight"] = torch.randn(384, 8)
    save_file(weights, folder / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "base_model_name_or_path": "tiny",
        "r": 8,
        "lora_alpha": 16,
        "target_modules": ["q_proj"],
        "bias": "none",
        "task_type": "CAUSAL_LM",
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return f"{name}={folder}"


@pytest.fixture(scope="module")
async def optioned(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[VllmEngine]:
    template = Path(tmp_path_factory.mktemp("template")) / "t.jinja"
    template.write_text(TEMPLATE)
    adapters = [adapter(tmp_path_factory.mktemp(name), name) for name in ADAPTERS]
    given = {
        "--chat-template": str(template),
        "--default-chat-template-kwargs": json.dumps({"repeats": 40}),
        "--override-generation-config": json.dumps({"max_new_tokens": MOST}),
        "--max-num-seqs": "8",
    }
    flags = [each for pair in given.items() for each in pair]
    engine = await start_engine(
        vllm_args=[
            *flags,
            "--exclude-tools-when-tool-choice-none",
            *("--enable-lora", "--max-loras", "2", "--lora-modules", *adapters),
        ],
        formats=["hermes"],
        served_name=(MODEL, ALIAS),
        serves=True,
    )
    assert isinstance(engine, VllmEngine)
    yield engine
    await engine.close()


@asynccontextmanager
async def served(engine: VllmEngine) -> AsyncIterator[Client]:
    async with engine.backend.server() as vllm:
        app = create_app(engine, Registry([calculator]), parts=ServerParts(vllm=vllm))
        async with (
            listening(app, shutdown_timeout=1) as port,
            aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http,
        ):
            yield Client(http)


async def check_routes_agree(client: Client) -> None:
    counted = await client.post("/v1/messages/count_tokens", messages=HELLO)
    tokenized = await client.post("/tokenize", messages=HELLO, add_generation_prompt=True)
    assert tokenized["count"] == counted["input_tokens"]
    for fields in ({}, {"max_tokens": 40}, {"model": ALIAS}):
        used = await client.usages(**fields)
        assert set(used.values()) == {(counted["input_tokens"], MOST)}
    await client.check_listed(ALIAS)
    once = await client.usages(chat_template_kwargs={"repeats": 1})
    assert once["chat"][0] < counted["input_tokens"] - 30


async def check_adapters_answer(client: Client) -> None:
    """Each adapter writes its own text, and the same on every route, also behind a tool's call."""
    said: dict[str, str] = {}
    for model in (MODEL, *ADAPTERS):
        asked: Any = {"messages": HELLO, "temperature": 0, "model": model}
        chat = await client.post("/v1/chat/completions", **asked)
        ours = await client.post("/v1/chat/completions", **asked, server_tools=["calculator"])
        response = await client.post("/v1/responses", input=WORDS, temperature=0, model=model)
        assert chat["model"] == ours["model"] == response["model"] == model
        said[model] = chat["choices"][0]["message"]["content"]
        texts = [
            ours["choices"][0]["message"]["content"],
            response["output"][0]["content"][0]["text"],
        ]
        assert texts == [said[model]] * 2
        await client.check_listed(model)
    assert len(set(said.values())) == len(said), said


async def test_an_adapter_writes_on_behind_a_pause(
    optioned: VllmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What follows a pause is what the adapter writes behind the same tokens in one request."""
    monkeypatch.setattr(optioned.sampling, "max_answer_tokens", None)  # a call has more tokens
    nothing = {"type": "object", "properties": {}, "additionalProperties": False}
    look = {"type": "function", "function": {"name": "look", "parameters": nothing}}
    rule = CallRule(required=True, single=True)
    forced = Sampling(temperature=0, calls=rule, max_tokens=200)
    free = Sampling(temperature=0, max_tokens=MOST)
    written = []
    async with served(optioned):
        for name in (None, *ADAPTERS):
            session = optioned.open(SessionSpec([look], adapter=name))
            events = [event async for event in session.turn(HELLO, forced)]
            [call_id] = [each.call_id for each in events if isinstance(each, CallFinished)]
            request, before = session.request_id, list(session.tokens)
            result = {"role": "tool", "tool_call_id": call_id, "content": "Seen."}
            events = [event async for event in session.turn([result], free)]
            ended = events[-1]
            assert isinstance(ended, TurnEnded) and session.request_id == request
            at = len(session.tokens) - ended.completion_tokens
            prompt, after = session.tokens[:at], session.tokens[at:]
            assert prompt[: len(before)] == before
            assert after == await whole(optioned, prompt, name)
            written.append(after)
            await session.close()
        assert len(set(map(tuple, written))) == len(written)
        with pytest.raises(UsageError, match="no adapter 'none such'; there are: lawyer, surgeon"):
            optioned.open(SessionSpec(adapter="none such"))


async def whole(engine: VllmEngine, prompt: list[int], name: str | None) -> list[int]:
    """Return what vLLM samples behind a prompt in a request of its own."""
    params = SamplingParams(temperature=0, max_tokens=MOST)
    made: list[int] = []
    request = engine.llm.generate(
        tokens_input(prompt), params, f"whole-{name}", lora_request=engine.adapter(name)
    )
    async for output in request:
        made = list(output.outputs[0].token_ids)
    return made


async def test_all_routes_render_and_limit_the_same(optioned: VllmEngine) -> None:
    async with served(optioned) as client:
        await check_routes_agree(client)
        await check_adapters_answer(client)
    await optioned.restart()
    async with served(optioned) as client:
        await check_routes_agree(client)
        await check_adapters_answer(client)


REFUSING = """
{%- for m in messages -%}
{%- if m.role == 'system' and not loop.first -%}
{{ raise_exception('System message must be at the beginning.') }}
{%- endif -%}
{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
{%- endfor -%}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""
"""A template in the manner of Qwen 3.5's."""


async def test_plain_chat_takes_what_the_template_refuses(tmp_path: Path) -> None:
    """vLLM answers it, from tokens that hold each text; so it counts the same on all routes."""
    template = tmp_path / "refusing.jinja"
    template.write_text(REFUSING)
    engine = await start_engine(
        vllm_args=["--chat-template", str(template)], formats=["hermes"], serves=True
    )
    assert isinstance(engine, VllmEngine)
    told: Any = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "system", "content": "Zebras have stripes."},
    ]
    try:
        async with served(engine) as client:
            asked = {"messages": told, "max_tokens": 4, "temperature": 0}
            plain = await client.post("/v1/chat/completions", **asked)
            tools = {"server_tools": ["calculator"], "tool_choice": "none"}
            ours = await client.post("/v1/chat/completions", **asked, **tools)
            used = plain["usage"]["prompt_tokens"]
            counted = await client.post(
                "/v1/messages/count_tokens", messages=told[1:], system="Be brief."
            )
            assert used == ours["usage"]["prompt_tokens"] == counted["input_tokens"]
            shorter = await client.post("/v1/chat/completions", **asked | {"messages": told[:2]})
            assert shorter["usage"]["prompt_tokens"] < used
            more = [*told, plain["choices"][0]["message"], {"role": "user", "content": "Go on."}]
            later = await client.post("/v1/chat/completions", **asked | {"messages": more})
            assert later["usage"]["prompt_tokens"] > used
    finally:
        await engine.close()
