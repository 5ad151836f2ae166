"""What vLLM's own server does, behind ours on one engine: every route and every field."""

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal

import aiohttp
import openai
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic import BaseModel
from vllm import SamplingParams
from vllm.v1.engine.exceptions import EngineGenerateError

from caesura.runtime.server import create_app
from caesura.runtime.server.app import ServerParts
from caesura.runtime.server.listen import listening
from caesura.runtime.server.load.options import ServerOptions
from caesura.scheduler.vllm.client.engine import VllmEngine
from caesura.tools import Registry
from caesura.tools.calculator.tool import calculator
from tests.kit import wrong_bodies
from tests.kit.request_fields import BODIES, CHAT, OURS, taken

pytestmark = pytest.mark.engine

Settled = Callable[[], Any]
MODEL = "caesura-tiny"
CALCULATOR = calculator.spec()
HELLO: Any = [{"role": "user", "content": "Hello, who are you?"}]
QUESTION: Any = [{"role": "user", "content": "What is 48 * 17?"}]
MAX_BODY_BYTES = 40 * 2**20


class Door:
    """A server, and two clients of it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.openai = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        self.http = aiohttp.ClientSession(url)

    async def post(self, path: str, **body: Any) -> tuple[int, Any]:
        async with self.http.post(path, json=body) as response:
            return response.status, await response.json()

    async def raw(self, body: bytes) -> tuple[int, Any]:
        headers = {"Content-Type": "application/json"}
        async with self.http.post("/v1/chat/completions", data=body, headers=headers) as response:
            return response.status, await response.json()

    async def chat(self, **fields: Any) -> Any:
        fields = {"model": MODEL, "messages": HELLO, "max_tokens": 60, "temperature": 0} | fields
        return await self.openai.chat.completions.create(**fields)

    async def close(self) -> None:
        await self.http.close()
        await self.openai.close()


@pytest.fixture(scope="module")
async def door(engine: VllmEngine) -> AsyncIterator[Door]:
    async with engine.backend.server() as vllm:
        app = create_app(
            engine,
            Registry([calculator]),
            ServerOptions(client_max_size=MAX_BODY_BYTES),
            ServerParts(vllm=vllm),
        )
        async with listening(app, shutdown_timeout=1) as port:
            made = Door(f"http://127.0.0.1:{port}")
            yield made
            await made.close()


async def test_an_error_of_the_engine_is_told(
    door: Door, engine: VllmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def generate(*_: Any, **__: Any) -> AsyncIterator[Any]:
        raise EngineGenerateError("the step failed")
        yield

    monkeypatch.setattr(engine.llm, "generate", generate)
    status, answer = await door.post("/v1/completions", model=MODEL, prompt="Hello")
    assert status == 500
    assert "'State' object" not in json.dumps(answer)


SERVER_TOOLS = {"server_tools": ["calculator"]}


@pytest.mark.parametrize(
    ("route", "beside"),
    [*((route, {}) for route in BODIES), *((route, SERVER_TOOLS) for route in OURS)],
)
async def test_fields_of_sampling_arrive_in_vllms_parameters(
    door: Door,
    engine: VllmEngine,
    monkeypatch: pytest.MonkeyPatch,
    route: str,
    beside: dict[str, Any],
) -> None:
    """On every route, whether vLLM's server reads the request or ours."""
    seen: list[SamplingParams] = []

    async def generate(_: Any, params: SamplingParams, *__: Any, **___: Any) -> AsyncIterator[Any]:
        seen.append(params)
        raise EngineGenerateError("that is enough")
        yield

    monkeypatch.setattr(engine.llm, "generate", generate)
    body, expected = {**BODIES[route], **beside}, {}
    for _, field in taken(route):
        body |= {**field.beside.get(route, {}), str(field.on(route)): field.value}
        expected |= field.params
    if route == CHAT:
        body |= {"logprobs": True}  # the row that switches them off is the last
        expected |= {"logprobs": body["top_logprobs"]}
    status, answer = await door.post(route, model=MODEL, **body)
    assert status == 500 or answer["status"] == "failed", answer
    found = {name: getattr(seen[0], name) for name in expected}
    assert found == expected


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "calculator"}}]
)
async def test_a_call_can_be_forced(door: Door, settled: Settled, choice: Any) -> None:
    answer = await door.chat(messages=QUESTION, tools=[CALCULATOR], tool_choice=choice)
    (call,) = answer.choices[0].message.tool_calls
    assert call.function.name == "calculator"
    assert "expression" in json.loads(call.function.arguments)


async def test_a_custom_tools_grammar_holds(door: Door, settled: Settled) -> None:
    grammar = {"syntax": "regex", "definition": "(north|south)-[0-9]{2}"}
    form = {"type": "grammar", "grammar": grammar}
    tool = {"type": "custom", "custom": {"name": "go", "description": "Go.", "format": form}}
    choice = {"type": "custom", "custom": {"name": "go"}}
    fields: Any = {"tools": [tool], "tool_choice": choice}
    answer = await door.chat(messages=QUESTION, **fields)
    message = answer.choices[0].message
    (call,) = message.tool_calls
    assert (call.type, call.custom.name) == ("custom", "go")
    assert re.fullmatch(grammar["definition"], call.custom.input)
    written = ""
    async for chunk in await door.chat(messages=QUESTION, stream=True, **fields):
        for delta in chunk.choices[0].delta.tool_calls or ():
            written += delta.model_dump()["custom"]["input"]
    assert written == call.custom.input
    result = {"role": "tool", "tool_call_id": call.id, "content": "There is a wall."}
    sent = [*QUESTION, message.model_dump(exclude_none=True), result]
    later = await door.chat(messages=sent, tools=[tool], max_tokens=4)
    assert later.choices[0].message.content
    computed = later.usage.prompt_tokens - later.usage.prompt_tokens_details.cached_tokens
    context = answer.usage.total_tokens
    assert computed <= later.usage.prompt_tokens - context + 32, "the call is spliced"


class Way(BaseModel):
    direction: Literal["north", "south"]
    sure: bool


async def test_a_schema_holds(door: Door, settled: Settled) -> None:
    pattern = r'\{"direction": "(north|south)", "sure": (true|false)\}'
    answer = await door.chat(extra_body={"structured_outputs": {"regex": pattern}})
    Way.model_validate_json(answer.choices[0].message.content)


@pytest.mark.parametrize("tools", [[], ["calculator"]], ids=["vllm", "server tools"])
async def test_json_of_a_small_model_ends_before_the_limit(
    door: Door, settled: Settled, tools: list[str]
) -> None:
    schema = Way.model_json_schema()
    # The model calls a tool first where it has one.
    asked, most = (QUESTION, 200) if tools else (HELLO, 60)
    form = {"type": "json_schema", "json_schema": {"name": "way", "schema": schema}}
    answer = await door.chat(
        messages=asked,
        max_tokens=most,
        response_format=form,
        extra_body={"server_tools": tools},
    )
    (choice,) = answer.choices
    assert choice.finish_reason == "stop", choice
    assert set(json.loads(choice.message.content)) == set(schema["properties"])
    status, said = await door.post(
        "/v1/messages",
        model=MODEL,
        max_tokens=most,
        messages=asked,
        temperature=0,
        server_tools=tools,
        output_config={"format": {"type": "json_schema", "schema": schema}},
    )
    assert status == 200, said
    assert said["stop_reason"] == "end_turn"
    assert set(json.loads(said["content"][0]["text"])) == set(schema["properties"])
    named = {"type": "json_schema", "name": "way", "schema": schema}
    body = {"model": MODEL, "input": asked, "max_output_tokens": most, "server_tools": tools}
    status, told = await door.post("/v1/responses", text={"format": named}, temperature=0, **body)
    assert (status, told["status"]) == (200, "completed"), told
    text = told["output"][0]["content"][0]["text"]
    assert set(json.loads(text)) == set(schema["properties"])


async def test_an_object_of_a_small_model_ends_before_the_limit(
    door: Door, settled: Settled
) -> None:
    answer = await door.chat(response_format={"type": "json_object"})
    text = answer.choices[0].message.content
    assert "  " not in text and "\n" not in text


async def test_openais_client_parses_an_answer(door: Door, settled: Settled) -> None:
    answer = await door.openai.chat.completions.parse(
        model=MODEL, messages=HELLO, response_format=Way
    )
    assert isinstance(answer.choices[0].message.parsed, Way)


async def test_fields_that_only_vllm_knows(door: Door, settled: Settled) -> None:
    answer = await door.chat(logprobs=True, top_logprobs=2, n=2, temperature=1, seed=1)
    assert len(answer.choices) == 2
    assert len(answer.choices[0].logprobs.content[0].top_logprobs) == 2
    chosen = await door.chat(extra_body={"structured_outputs": {"choice": ["north", "south"]}})
    assert chosen.choices[0].message.content in ("north", "south")


async def test_other_routes(door: Door, settled: Settled) -> None:
    text = await door.openai.completions.create(model=MODEL, prompt="Hello", max_tokens=3)
    assert text.usage is not None and text.usage.completion_tokens == 3
    status, tokens = await door.post("/tokenize", model=MODEL, prompt="Hello")
    assert status == 200 and tokens["count"] >= 1
    body = {"model": MODEL, "max_tokens": 5, "messages": HELLO}
    status, message = await door.post("/v1/messages", **body)
    assert status == 200 and message["content"][0]["type"] == "text"
    (model,) = [each async for each in door.openai.models.list()]
    assert model.id == MODEL
    assert (await door.openai.models.retrieve(MODEL)).id == MODEL
    assert model.owned_by == "vllm"
    async with AsyncAnthropic(base_url=door.url, api_key="none") as client:
        (shown,) = [each async for each in client.models.list()]
        assert (shown.id, shown.display_name) == (MODEL, MODEL)
        assert shown.max_input_tokens == model.max_model_len
        assert await client.models.retrieve(MODEL) == shown


async def test_server_tools_are_ours_on_the_same_route(door: Door, settled: Settled) -> None:
    answer = await door.chat(messages=QUESTION, extra_body={"server_tools": ["calculator"]})
    assert "816" in answer.choices[0].message.content
    assert answer.model_extra["caesura"]["calls"][0]["content"] == "816"


@pytest.mark.parametrize("streams", [False, True])
async def test_messages_with_server_tools_are_ours(
    door: Door, settled: Settled, streams: bool
) -> None:
    fields: Any = {"model": MODEL, "max_tokens": 60}
    fields["extra_body"] = {"server_tools": ["calculator"], "temperature": 0}
    messages = list(QUESTION)

    async def ask() -> Any:
        if not streams:
            return await client.messages.create(messages=messages, **fields)
        async with client.messages.stream(messages=messages, **fields) as stream:
            return await stream.get_final_message()

    async with AsyncAnthropic(base_url=door.url, api_key="none") as client:
        answer = await ask()
        assert "816" in answer.content[0].text
        assert (answer.stop_reason, answer.usage.output_tokens > 0) == ("end_turn", True)
        messages += [{"role": "assistant", "content": answer.content}, *HELLO]
        after = await ask()
    assert after.usage.cache_read_input_tokens > answer.usage.cache_read_input_tokens


async def test_a_call_and_a_stop_text_of_messages(door: Door, settled: Settled) -> None:
    fields: Any = {"model": MODEL, "max_tokens": 60, "temperature": 0, "messages": QUESTION}
    function = CALCULATOR["function"]
    tool = {"name": "multiply", "description": "", "input_schema": function["parameters"]}
    forced = {"tools": [tool], "tool_choice": {"type": "tool", "name": "multiply"}}
    status, answer = await door.post(
        "/v1/messages", **fields, **forced, server_tools=["calculator"]
    )
    assert (status, answer["stop_reason"]) == (200, "tool_use")
    [use] = [block for block in answer["content"] if block["type"] == "tool_use"]
    assert use["name"] == "multiply" and "expression" in use["input"]
    stops = {"server_tools": ["calculator"], "stop_sequences": ["816"]}
    status, answer = await door.post("/v1/messages", **fields, **stops)
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("stop_sequence", "816")
    status, counted = await door.post("/v1/messages/count_tokens", model=MODEL, messages=HELLO)
    assert status == 200 and counted["input_tokens"] > 0


async def test_errors_have_codes(door: Door, settled: Settled) -> None:
    with pytest.raises(openai.NotFoundError) as absent:
        await door.chat(model="other")
    assert absent.value.code == "model_not_found"
    long: Any = [{"role": "user", "content": "one two three " * 1500}]
    with pytest.raises(openai.BadRequestError, match="maximum context length is") as over:
        await door.chat(messages=long)
    assert over.value.code == "context_length_exceeded"
    async with door.http.get("/no/such/route") as response:
        assert (response.status, (await response.json())["error"]["code"]) == (404, "unknown_url")
    async with door.http.delete("/tokenize") as response:
        found = (await response.json())["error"]["code"]
        assert (response.status, found) == (405, "method_not_allowed")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body"),
    [*wrong_bodies.BODIES[:2], *wrong_bodies.OF_VLLM],
    ids=lambda each: str(each)[:24],
)
async def test_no_answer_tells_of_vllms_insides(
    door: Door, settled: Settled, path: str, body: Any, stream: bool
) -> None:
    """Whatever field of a request is wrong, for each route that vLLM's server answers."""
    statuses: list[int] = []
    told: list[str] = []
    for about, wrong in wrong_bodies.wrong_bodies(body, MODEL):
        if about.startswith("max_") and wrong.get(about.split()[0]) is None:
            continue  # the answer would be as long as the context window
        sent = {**wrong, "stream": True} if stream else wrong
        async with door.http.post(path, json=sent) as response:
            text = await response.text()
        if wrong_bodies.INSIDES.search(text) or response.status >= 500:
            told.append(f"{about}: {text[:300]}")
        statuses.append(response.status)
    assert not told, "\n".join(told)
    assert statuses.count(400) > len(statuses) / 8
    await settled()


def body_of(content: bytes = b'"x"', rest: bytes = b"") -> bytes:
    message = b'{"role": "user", "content": ' + content + b"}"
    return b'{"model": "caesura-tiny", "messages": [' + message + b"]" + rest + b"}"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (body_of(b'"' + b"a b " * 3_900_000 + b'"'), "context_length_exceeded"),
        (body_of(rest=b', "tools": [' + b"{}," * 99_999 + b"{}]"), None),
        (body_of(rest=b', "x": ' + b"[" * 100_000 + b"]" * 100_000), None),
        (body_of(b'"\\ud800"'), None),
        (b'{"messages": [' + b'{"role": "user", "content": "x"},' * 100_000 + b"{}]}", None),
    ],
    ids=["characters", "tools", "depth", "half-character", "messages"],
)
async def test_what_is_too_much_is_refused_while_others_are_answered(
    door: Door, settled: Settled, body: bytes, code: str | None
) -> None:
    asking = asyncio.create_task(door.raw(body))
    while not asking.done():
        async with door.http.get("/health") as response:
            assert response.status == 200
    status, answer = await asking
    assert (status, answer["error"]["code"]) == (400, code)
    assert answer["error"]["type"] == "invalid_request_error"


async def test_a_client_that_leaves_frees_its_request(door: Door, settled: Settled) -> None:
    stream = await door.chat(stream=True, max_tokens=1000, extra_body={"ignore_eos": True})
    async for _ in stream:
        break
    await stream.close()
    await settled()


async def test_clients_that_leave_free_whole_answers(
    door: Door, engine: VllmEngine, settled: Settled
) -> None:
    running = engine.llm.vllm_config.scheduler_config.max_num_seqs
    long: Any = {"model": MODEL, "max_tokens": 1500, "ignore_eos": True}
    routes = {"/v1/completions": {"prompt": "Hello"}, "/v1/chat/completions": {"messages": HELLO}}
    asking = [
        asyncio.create_task(door.post(route, **long, **asked))
        for route, asked in routes.items()
        for _ in range(running // 2 + 2)
    ]
    while not ((state := await engine.state())["running"] and state["waiting"]):
        assert not any(each.done() for each in asking)
        await asyncio.sleep(0.05)
    for each in asking:
        each.cancel()
    await settled()


async def test_special_tokens_are_not_shown(door: Door, settled: Settled) -> None:
    favour = {"<|endoftext|>": 0, "<|im_start|>": 1}
    for field in ({}, {"server_tools": ["calculator"]}):
        answer = await door.chat(
            max_tokens=4, logit_bias={str(each): 100 for each in favour.values()}, extra_body=field
        )
        assert not any(text in (answer.choices[0].message.content or "") for text in favour)


async def test_warnings_are_still_logged(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("caesura.scheduler").warning("a warning")
    assert "a warning" in caplog.text
