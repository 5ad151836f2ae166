"""`/v1/responses` as a WebSocket."""

import asyncio
from typing import Any

import aiohttp
import pytest

from caesura.intercept.calls.events import Event, TextDelta
from caesura.runtime.errors import UsageError
from caesura.runtime.server.api.decoding import LOWEST_PRIORITY
from caesura.runtime.testing import ScriptedEngine, call, fail, say
from tests.kit.server import MODEL
from tests.kit.waiting import until

LAST = ("response.completed", "response.incomplete", "response.failed", "error")
HANGS = {"type": "response.create", "model": MODEL, "input": "x", "server_tools": ["hang"]}


class Client:
    """A connection, and the events of one request at a time."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def ask(self, text: str = "Hello", **fields: Any) -> list[dict[str, Any]]:
        message = {"type": "response.create", "model": MODEL, "input": text} | fields
        await self.socket.send_json(message)
        return await self.events()

    async def events(self) -> list[dict[str, Any]]:
        found = [await self.socket.receive_json()]
        while found[-1]["type"] not in LAST:
            found.append(await self.socket.receive_json())
        return found


@pytest.fixture
async def connect(serve_script: Any) -> Any:
    sockets: list[aiohttp.ClientWebSocketResponse] = []

    async def start(script: Any, **options: Any) -> tuple[Any, Client]:
        served = script if hasattr(script, "url") else await serve_script(script, **options)
        sockets.append(await served.http.ws_connect("/v1/responses"))
        return served, Client(sockets[-1])

    yield start
    for socket in sockets:
        await socket.close()


async def test_requests_are_answered_by_the_same_events(connect: Any, checked: Any) -> None:
    _, client = await connect([say("One."), say("Two.")])
    first = await client.ask()
    checked(first)
    second = await client.ask(previous_response_id=first[-1]["response"]["id"])
    checked(second)
    assert second[-1]["response"]["output"][0]["content"][0]["text"] == "Two."


async def test_a_connection_continues_what_is_not_stored(connect: Any) -> None:
    served, client = await connect([say("One."), say("Two."), say("Three.")])
    last = await client.ask("a", store=False)
    for text in ("b", "c"):
        previous = last[-1]["response"]["id"]
        last = await client.ask(text, store=False, previous_response_id=previous)
    messages = served.engine.sessions[2].turns[0]
    assert [m["content"] for m in messages] == ["a", "One.", "b", "Two.", "c"]
    _, other = await connect(served)
    told = await other.ask(previous_response_id=last[-1]["response"]["id"])
    assert told[0]["error"]["code"] == "previous_response_not_found"


async def test_a_failed_continuation_forgets_what_it_built_on(connect: Any) -> None:
    _, client = await connect([say("One."), fail(RuntimeError("no")), say("Two.")])
    first = await client.ask(store=False)
    previous = first[-1]["response"]["id"]
    failed = await client.ask(store=False, previous_response_id=previous)
    assert (failed[-1]["type"], failed[-1]["status"]) == ("error", 500)
    again = await client.ask(store=False, previous_response_id=previous)
    assert again[-1]["error"]["code"] == "previous_response_not_found"
    assert (await client.ask())[-1]["type"] == "response.completed"


async def test_an_error_is_told_and_the_connection_goes_on(
    connect: Any, specification: Any
) -> None:
    _, client = await connect([say("One.")])
    for frame in ("{", "[]", '{"type": "response.stop"}'):
        await client.socket.send_str(frame)
        (told,) = await client.events()
        specification.check(told, "WebSocketErrorEvent")
        assert told["status"] == 400
    for fields in ({"model": "other"}, {"background": True}, {"stream_id": 7}, {"prompt": 1}):
        (told,) = await client.ask(**fields)
        specification.check(told, "WebSocketErrorEvent")
    assert (await client.ask())[-1]["type"] == "response.completed"


async def test_streams_of_one_connection_go_on_side_by_side(
    connect: Any, serve_script: Any, hanging: Any
) -> None:
    engine = ScriptedEngine(sessions=[[call("hang"), say("a")], [say("b")]], model=MODEL)
    served = await serve_script(engine, [hanging.tool])
    _, client = await connect(served)
    message = {"type": "response.create", "model": MODEL, "input": "x", "stream_id": "slow"}
    await client.socket.send_json(message | {"server_tools": ["hang"]})
    await hanging.started.wait()
    fast = [event for event in await client.ask(stream_id="fast") if event["stream_id"] == "fast"]
    assert fast[-1]["response"]["output"][0]["content"][0]["text"] == "b"
    hanging.released.set()
    slow = await client.events()
    assert {event["stream_id"] for event in slow} == {"slow"}


async def test_a_request_without_generation_keeps_its_input_and_fills_the_cache(
    connect: Any, checked: Any
) -> None:
    served, client = await connect([say("x"), say("One.")])
    prepared = await client.ask("a", store=False, generate=False)
    checked(prepared)
    assert prepared[-1]["response"]["output"] == []
    await until(lambda: served.engine.sessions and served.engine.open_sessions == 0)
    (filling,) = served.engine.sessions
    assert [m["content"] for m in filling.turns[0]] == ["a"]
    assert filling.spec.sampling.max_tokens == 1
    assert filling.spec.priority == LOWEST_PRIORITY
    assert filling.spec.origin.session == prepared[-1]["response"]["id"]
    await client.ask("b", previous_response_id=prepared[-1]["response"]["id"])
    assert [m["content"] for m in served.engine.sessions[1].turns[0]] == ["a", "b"]


@pytest.mark.parametrize(
    "fields", [{"generate": False}, {"prompt_cache_options": {"prewarm": True}}]
)
@pytest.mark.parametrize("stream", [False, True])
async def test_the_cache_is_filled_over_http_too(
    serve_script: Any, fields: dict[str, Any], stream: bool
) -> None:
    served = await serve_script([say("x")])
    body = {"model": MODEL, "input": "a", "stream": stream, **fields}
    async with served.http.post("/v1/responses", json=body) as response:
        text = await response.text()
        assert response.status == 200, text
    assert '"output":[]' in text and '"status":"completed"' in text
    await until(lambda: served.engine.sessions and served.engine.open_sessions == 0)
    assert [m["content"] for m in served.engine.sessions[0].turns[0]] == ["a"]


async def test_nothing_is_filled_while_others_are_answered_without_priorities(
    serve_script: Any, hanging: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await serve_script([call("hang"), say("Done.")], [hanging.tool])
    opened = served.engine.open

    def by_arrival(spec: Any, log: Any = None) -> Any:
        if spec.priority:
            raise UsageError("the engine schedules by fcfs")
        return opened(spec, log)

    monkeypatch.setattr(served.engine, "open", by_arrival)
    other = asyncio.create_task(served.chat(server_tools=["hang"]))
    await hanging.started.wait()
    body = {"model": MODEL, "input": "a", "generate": False}
    async with served.http.post("/v1/responses", json=body) as response:
        assert response.status == 200
    hanging.released.set()
    assert (await other)[0] == 200
    assert len(served.engine.sessions) == 1


async def test_a_client_that_leaves_frees_its_request(
    connect: Any, serve_script: Any, hanging: Any
) -> None:
    served = await serve_script([call("hang")], [hanging.tool])
    _, client = await connect(served)
    await client.socket.send_json(HANGS)
    await hanging.started.wait()
    await client.socket.close()
    await hanging.cancelled.wait()
    await until(lambda: served.engine.open_sessions == 0)


async def cancelled(client: Client, **fields: Any) -> dict[str, Any]:
    await client.socket.send_json({"type": "response.cancel"} | fields)
    return (await client.events())[-1]


@pytest.mark.parametrize("named", [False, True])
async def test_a_response_under_way_can_be_cancelled(
    connect: Any, serve_script: Any, hanging: Any, named: bool
) -> None:
    engine = ScriptedEngine(sessions=[[call("hang"), say("a")], [say("b")]], model=MODEL)
    served = await serve_script(engine, [hanging.tool])
    _, client = await connect(served)
    await client.socket.send_json(HANGS)
    await hanging.started.wait()
    created = await client.socket.receive_json()
    fields = {"response_id": created["response"]["id"]} if named else {}
    last = await cancelled(client, **fields)
    assert (last["type"], last["response"]["status"]) == ("response.incomplete", "cancelled")
    await hanging.cancelled.wait()
    await until(lambda: served.engine.open_sessions == 0)
    told = await cancelled(client, **fields)
    assert (told["type"], told["error"]["code"]) == ("error", "response_cancel_not_active")
    assert (await client.ask())[-1]["type"] == "response.completed"


async def test_a_cancel_ends_a_text_that_streams(connect: Any) -> None:
    words = "word " * 100
    written = 0
    ended = asyncio.Event()

    async def pace(event: Event) -> None:
        nonlocal written
        written += isinstance(event, TextDelta)
        if written == 20:
            await ended.wait()

    engine = ScriptedEngine([words, say("b")], model=MODEL, pace=pace)
    served, client = await connect(engine)
    await client.socket.send_json({"type": "response.create", "model": MODEL, "input": "x"})
    while (await client.socket.receive_json())["type"] != "response.output_text.delta":
        pass
    await client.socket.send_json({"type": "response.cancel"})
    last = (await client.events())[-1]
    assert (last["type"], last["response"]["status"]) == ("response.incomplete", "cancelled")
    await until(lambda: served.engine.open_sessions == 0)
    ended.set()
    (item,) = last["response"]["output"]
    shown = item["content"][0]["text"]
    assert shown and words.startswith(shown) and len(shown) < len(words)
    assert (await client.ask())[-1]["type"] == "response.completed"


async def test_a_cancel_reaches_the_request_that_was_sent_before_it(
    connect: Any, serve_script: Any, hanging: Any
) -> None:
    served = await serve_script([call("hang")], [hanging.tool])
    _, client = await connect(served)
    await client.socket.send_json(HANGS)
    assert (await cancelled(client))["response"]["status"] == "cancelled"
    await until(lambda: served.engine.open_sessions == 0)


async def test_a_cancel_concerns_one_stream(connect: Any, serve_script: Any, hanging: Any) -> None:
    served = await serve_script([call("hang")], [hanging.tool])
    _, client = await connect(served)
    message = {"type": "response.create", "model": MODEL, "input": "x", "server_tools": ["hang"]}
    await client.socket.send_json(message | {"stream_id": "one"})
    await hanging.started.wait()
    while (await client.socket.receive_json())["type"] != "response.in_progress":
        pass
    for fields in ({}, {"stream_id": "other"}, {"response_id": "resp_other"}):
        assert (await cancelled(client, **fields))["type"] == "error"
    assert not hanging.cancelled.is_set()
    assert (await cancelled(client, stream_id="one"))["response"]["status"] == "cancelled"


async def test_a_connection_needs_the_key(connect: Any, serve_script: Any) -> None:
    served = await serve_script([], api_key="secret")
    with pytest.raises(aiohttp.WSServerHandshakeError):
        await connect(served)


async def test_a_foreign_page_cannot_connect(serve_script: Any) -> None:
    served = await serve_script([])
    with pytest.raises(aiohttp.WSServerHandshakeError):
        await served.http.ws_connect("/v1/responses", headers={"Origin": "https://evil.example"})


async def test_openais_client_connects(serve_script: Any) -> None:
    served = await serve_script([say("Hi.")])
    kinds = []
    async with served.openai.responses.connect() as connection:
        await connection.response.create(model=MODEL, input="Hello")
        async for event in connection:
            kinds.append(event.type)
            if event.type == "response.completed":
                break
    assert "response.output_text.delta" in kinds
