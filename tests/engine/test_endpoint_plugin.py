"""Caesura's routes inside `vllm serve`, by the endpoint plugin."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from openai import AsyncOpenAI

from caesura.tools.calculator.tool import calculator
from tests.engine.stock_server import vllm_server

pytestmark = [pytest.mark.engine, pytest.mark.slow]

QUESTION: Any = [{"role": "user", "content": "What is 48 * 17?"}]
KEY, CLIENT = "secret", "client-secret"
NAMES = ("tiny", "small")


@pytest.fixture(scope="module")
async def address(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    folder: Path = tmp_path_factory.mktemp("plugin")
    config = folder / "caesura.toml"
    config.write_text(f'[data]\ndirectory = "{folder}"\n[agents.counter]\ntools = ["calculator"]\n')
    keys = folder / "keys"
    keys.write_text(f"{KEY} role=admin\n{CLIENT}\n")
    environment = {
        "VLLM_PLUGINS": "caesura",
        "CAESURA_API_KEY_FILE": str(keys),
        "CAESURA_CONFIG": str(config),
        "CAESURA_TRACE": str(folder / "traces.sqlite"),
    }
    options = ["--api-key", KEY, CLIENT, "--served-model-name", *NAMES]
    async with vllm_server(folder / "records.jsonl", 60, *options, **environment) as started:
        yield started


@pytest.fixture
async def client(address: str) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0) as made:
        yield made


@pytest.fixture
async def http(address: str) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(address) as made:
        yield made


async def ask(client: AsyncOpenAI, **fields: Any) -> Any:
    options: dict[str, Any] = {"model": "tiny", "messages": QUESTION, "temperature": 0}
    return await client.chat.completions.create(**options | fields)


async def test_agents_run_and_are_listed(client: AsyncOpenAI) -> None:
    answer = await ask(client, model="counter")
    assert "816" in answer.choices[0].message.content
    assert answer.model == "counter"
    names = [model.id async for model in client.models.list()]
    assert names == [*NAMES, "counter"]
    assert (await client.models.retrieve("counter")).owned_by == "caesura"


async def test_server_tools_run(client: AsyncOpenAI) -> None:
    answer = await ask(client, extra_body={"server_tools": ["calculator"]})
    assert "816" in answer.choices[0].message.content
    assert answer.model_extra["caesura"]["calls"][0]["content"] == "816"


async def test_messages_are_ours(http: aiohttp.ClientSession) -> None:
    body = {"model": "tiny", "max_tokens": 60, "temperature": 0, "messages": QUESTION}
    headers = {"Authorization": f"Bearer {KEY}"}
    async with http.post("/v1/messages", json=body, headers=headers) as response:
        answer = await response.json()
        assert (response.status, answer["type"]) == (200, "message")
    begun = {"role": "assistant", "content": "816 and"}
    prefilled = body | {"messages": [*QUESTION, begun]}
    async with http.post("/v1/messages", json=prefilled, headers=headers) as response:
        assert not (await response.json())["content"][0]["text"].startswith("816")
    body["server_tools"] = ["calculator"]
    async with http.post("/v1/messages", json=body, headers=headers) as response:
        answer = await response.json()
    assert "816" in answer["content"][0]["text"]
    assert answer["caesura"]["calls"][0]["content"] == "816"


async def test_some_tools_can_be_allowed(client: AsyncOpenAI) -> None:
    named = [{"type": "function", "function": {"name": "calculator"}}]
    allowed = {"mode": "required", "tools": named}
    choice = {"type": "allowed_tools", "allowed_tools": allowed}
    other = {"type": "function", "function": {"name": "other", "parameters": {"type": "object"}}}
    answer = await ask(client, tools=[calculator.spec(), other], tool_choice=choice)
    assert answer.choices[0].message.tool_calls[0].function.name == "calculator"


async def test_what_vllm_answers_stays_its_own(client: AsyncOpenAI) -> None:
    answer = await ask(client, tools=[calculator.spec()], logprobs=True)
    assert answer.choices[0].message.tool_calls[0].function.name == "calculator"
    assert answer.choices[0].logprobs.content
    choices = {"choice": ["seven", "eight"]}
    formed = {"type": "text"}
    answer = await ask(client, response_format=formed, extra_body={"structured_outputs": choices})
    assert answer.choices[0].message.content in choices["choice"]
    models = [each async for each in client.models.list()]
    assert models[0].owned_by == "vllm"


async def test_responses_are_ours(client: AsyncOpenAI) -> None:
    for name in NAMES:
        made = await client.responses.create(model=name, input="Hello, who are you?")
        again = await client.responses.retrieve(made.id)
        assert again.output_text == made.output_text
    ran = await ask(client, model=NAMES[1], extra_body={"server_tools": ["calculator"]})
    assert ran.model_extra["caesura"]["calls"][0]["content"] == "816"


async def test_the_page_and_what_it_shows(http: aiohttp.ClientSession) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    for path, status, type_ in (
        ("/ui/", 200, "text/html"),
        ("/v1/trace", 200, "application/json"),
        ("/v1/pending", 200, "application/json"),
        ("/metrics", 200, "text/plain"),
        ("/health", 200, None),
    ):
        async with http.get(path, headers=headers) as response:
            assert response.status == status, path
            assert type_ is None or response.content_type == type_
            text = await response.text()
        if path == "/metrics":
            assert "caesura_tool_calls_total" in text and "vllm:" in text


async def test_the_key_guards_our_routes_too(http: aiohttp.ClientSession) -> None:
    for path in ("/v1/trace", "/v1/pending", "/artifacts/x.png"):
        async with http.get(path) as response:
            assert response.status == 401, path


async def test_a_clients_key_gets_what_is_its_own(
    client: AsyncOpenAI, http: aiohttp.ClientSession
) -> None:
    made = await client.responses.create(model="tiny", input="Hello, who are you?")
    headers = {"Authorization": f"Bearer {CLIENT}"}
    for path, status in (
        ("/v1/models", 200),
        (f"/v1/responses/{made.id}", 404),
        ("/v1/trace", 403),
        ("/metrics", 403),
    ):
        async with http.get(path, headers=headers) as response:
            assert response.status == status, path
