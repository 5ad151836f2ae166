"""Anthropic's official client against `/v1/messages`."""

from collections.abc import AsyncIterator
from typing import Any

import anthropic
import pytest
from starlette.responses import JSONResponse

from caesura.runtime.errors import EngineFailed
from caesura.runtime.testing import ScriptedEngine, call, calls, fail
from caesura.scheduler.vllm_server import VllmServer
from tests.kit.server import MODEL
from tests.runtime.server.said import HELLO, WEATHER

OPTIONS: dict[str, Any] = {"model": MODEL, "max_tokens": 100}


@pytest.fixture
async def connect() -> AsyncIterator[Any]:
    clients: list[anthropic.AsyncAnthropic] = []

    def make(served: Any, **options: Any) -> anthropic.AsyncAnthropic:
        given: dict[str, Any] = {"api_key": "any", "max_retries": 0} | options
        clients.append(anthropic.AsyncAnthropic(base_url=served.url, **given))
        return clients[-1]

    yield make
    for client in clients:
        await client.close()


@pytest.mark.parametrize("streams", [False, True])
async def test_a_loop_with_a_clients_tool(serve_script, connect, streams):
    script = [calls(call("weather", city="Ulm"), call("weather", city="Bonn"), text="So."), "Rain."]
    served = await serve_script(script)
    client = connect(served)

    async def ask() -> Any:
        fields = {**OPTIONS, "messages": messages, "tools": [WEATHER]}
        if not streams:
            return await client.messages.create(**fields)
        async with client.messages.stream(**fields) as stream:
            return await stream.get_final_message()

    messages: list[Any] = [HELLO]
    answer = await ask()
    assert answer.stop_reason == "tool_use"
    results = []
    for block in answer.content:
        if block.type == "tool_use":
            content = f"rain in {block.input['city']}"
            results.append({"type": "tool_result", "tool_use_id": block.id, "content": content})
    messages += [{"role": "assistant", "content": answer.content}]
    messages += [{"role": "user", "content": results}]
    answer = await ask()
    assert (answer.content[0].text, answer.stop_reason) == ("Rain.", "end_turn")
    told = [message["content"] for message in served.engine.sessions[1].turns[0]]
    assert told == ["Hello", "So.", "rain in Ulm", "rain in Bonn"]
    assert answer.usage.cache_read_input_tokens > 0, "the answer before it was spliced"


async def test_the_clients_own_tool_runner(serve_script, connect):
    @anthropic.beta_async_tool
    async def weather(city: str) -> str:
        """Tell the weather."""
        return f"rain in {city}"

    served = await serve_script([call("weather", city="Ulm"), "It rains."])
    runner = connect(served).beta.messages.tool_runner(**OPTIONS, messages=[HELLO], tools=[weather])
    answer = await runner.until_done()
    assert answer.content[0].text == "It rains."


async def test_streamed_text(serve_script, connect):
    served = await serve_script(["Hello to you."])
    async with connect(served).messages.stream(**OPTIONS, messages=[HELLO]) as stream:
        texts = [text async for text in stream.text_stream]
        answer = await stream.get_final_message()
    assert len(texts) > 1 and "".join(texts) == answer.content[0].text == "Hello to you."
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (1, 3)


@pytest.mark.parametrize("streams", [False, True])
async def test_server_tools(serve_script, connect, double, streams):
    served = await serve_script([call("double", number=21), "It is 42."], [double])
    fields = {**OPTIONS, "messages": [HELLO], "extra_body": {"server_tools": ["double"]}}
    client = connect(served)
    if streams:
        async with client.messages.stream(**fields) as stream:
            events = [event async for event in stream]
            answer = await stream.get_final_message()
        [told] = [event for event in events if event.type == "message_delta"]
    else:
        told = answer = await client.messages.create(**fields)
    assert answer.content[0].text == "It is 42."
    assert told.model_extra["caesura"]["calls"][0]["content"] == "42"


ADAPTERS = [f"adapter{number:02}" for number in range(24)]


@pytest.mark.parametrize("behind", [False, True])
async def test_the_list_of_models(serve_script, connect, behind):
    async def stock(scope: Any, receive: Any, send: Any) -> None:
        await JSONResponse({"object": "list", "data": ["vLLM's"]})(scope, receive, send)

    engine = ScriptedEngine([], model=MODEL, adapters=ADAPTERS)
    served = await serve_script(engine, vllm=VllmServer(stock, None) if behind else None)
    client = connect(served)
    first = await client.models.list()
    names = [MODEL, *ADAPTERS]
    assert [each.id for each in first.data] == names[:20]
    assert (first.has_more, first.first_id, first.last_id) == (True, MODEL, names[19])
    assert [each.id async for each in client.models.list(limit=7)] == names
    page = await client.models.list(before_id=names[9], limit=4)
    assert ([each.id for each in page.data], page.has_more) == (names[5:9], True)
    one = await client.models.retrieve(MODEL)
    assert one == first.data[0]
    assert (one.type, one.display_name, one.lifecycle) == ("model", MODEL, "active")
    assert one.max_input_tokens == engine.context_tokens
    assert one.created_at.timestamp() > 1.7e9
    with pytest.raises(anthropic.NotFoundError, match="not served here"):
        await client.models.retrieve("claude-opus-5")
    for wrong in ({"limit": 0}, {"after_id": "x"}, {"before_id": "x"}):
        with pytest.raises(anthropic.BadRequestError) as refused:
            await client.models.list(**wrong)
        assert refused.value.body["error"]["type"] == "invalid_request_error"
    async with served.http.get("/v1/models") as response:
        listed = (await response.json())["data"]
    assert listed == ["vLLM's"] if behind else [each["id"] for each in listed] == names


async def test_errors_have_the_clients_classes(serve_script, connect):
    served = await serve_script([fail(EngineFailed("gone"), text="one two")], api_key="secret")
    with pytest.raises(anthropic.AuthenticationError):
        await connect(served).messages.create(**OPTIONS, messages=[HELLO])
    for key in ({"api_key": "secret"}, {"api_key": None, "auth_token": "secret"}):
        with pytest.raises(anthropic.NotFoundError) as absent:
            fields = OPTIONS | {"model": "other"}
            await connect(served, **key).messages.create(**fields, messages=[HELLO])
        assert absent.value.type == "not_found_error"
    client = connect(served, api_key="secret")
    with pytest.raises(anthropic.BadRequestError, match="container is not supported"):
        await client.messages.create(**OPTIONS, messages=[HELLO], extra_body={"container": "x"})
    with pytest.raises(anthropic.APIStatusError, match="The engine has failed"):
        async with client.messages.stream(**OPTIONS, messages=[HELLO]) as stream:
            await stream.get_final_message()
