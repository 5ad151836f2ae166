"""Steering a response: it ends as steered, and its successor begins by itself."""

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from caesura.intercept.calls.events import TextDelta, TurnEnded
from caesura.runtime.server.keys.key import Key
from caesura.runtime.testing import ScriptedEngine, call, say
from tests.kit.server import MODEL
from tests.runtime.server.responses.asking import TOOL, post

STORY = "Once upon a time there was a king who had no name at all."
LAST = ("response.completed", "response.failed", "error")


class Slow:
    """An engine that waits until it is let go on: behind its first text, or before an event."""

    def __init__(self, *script: Any, before: type | None = None) -> None:
        self.written, self.let = asyncio.Event(), asyncio.Event()

        async def pace(event: Any) -> None:
            if before is not None and isinstance(event, before):
                self.written.set()
            if self.written.is_set():
                await self.let.wait()
            if before is None and isinstance(event, TextDelta):
                self.written.set()

        self.engine = ScriptedEngine(script, model=MODEL, pace=pace)


@pytest.fixture
async def connect(serve_script: Any) -> Any:
    sockets: list[aiohttp.ClientWebSocketResponse] = []

    async def start(slow: Slow) -> tuple[Any, aiohttp.ClientWebSocketResponse]:
        served = await serve_script(slow.engine)
        sockets.append(await served.http.ws_connect("/v1/responses"))
        return served, sockets[-1]

    yield start
    for socket in sockets:
        await socket.close()


async def read(socket: Any, until: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    found = [await socket.receive_json()]
    while not until(found[-1]):
        found.append(await socket.receive_json())
    return found


def is_last(event: dict[str, Any]) -> bool:
    return event["type"] in LAST


async def begun(socket: Any, **fields: Any) -> str:
    """Ask for a response, and return its id once it is written."""
    await socket.send_json({"type": "response.create", "model": MODEL, "input": "Go."} | fields)
    told = await read(socket, lambda event: event["type"] == "response.output_text.delta")
    return str(told[0]["response"]["id"])


def steer(target: str, given: Any = "Make it short.") -> dict[str, Any]:
    return {"type": "response.steer", "previous_response_id": target, "input": given}


async def test_a_running_response_ends_as_steered_and_its_successor_begins(connect: Any) -> None:
    slow = Slow(say(STORY), say("The end."))
    served, socket = await connect(slow)
    first = await begun(socket)
    await socket.send_json(steer(first))
    accepted = await socket.receive_json()
    assert accepted["type"] == "response.steer.accepted"
    assert accepted["steer"]["previous_response_id"] == first and accepted["steer"]["id"]
    slow.let.set()
    events = await read(socket, is_last)
    kinds = [event["type"] for event in events]
    cut = kinds.index("response.incomplete")
    response = events[cut]["response"]
    assert response["id"] == first and response["incomplete_details"] == {"reason": "steered"}
    assert STORY.startswith(response["output"][0]["content"][0]["text"])
    assert kinds[cut + 1] == "response.created"
    successor = events[-1]["response"]
    assert successor["id"] == events[cut + 1]["response"]["id"] != first
    assert successor["previous_response_id"] == first
    assert successor["output"][0]["content"][0]["text"] == "The end."
    # One session of the engine has made both, and both are kept.
    (session,) = served.engine.sessions
    assert [each["role"] for each in session.messages] == ["user", "assistant", "user", "assistant"]
    async with served.http.get(f"/v1/responses/{successor['id']}") as answer:
        assert (await answer.json())["output"] == successor["output"]
    async with served.http.get(f"/v1/responses/{successor['id']}/input_items") as answer:
        (item,) = (await answer.json())["data"]
        assert item["content"][0]["text"] == "Make it short."


async def test_a_successor_can_be_continued(connect: Any) -> None:
    slow = Slow(say(STORY), say("The end."), say("Yes."))
    served, socket = await connect(slow)
    await socket.send_json(steer(await begun(socket)))
    slow.let.set()
    events = await read(socket, is_last)
    _, answer = await post(served, input="Sure?", previous_response_id=events[-1]["response"]["id"])
    assert answer["output"][0]["content"][0]["text"] == "Yes."
    told = [each["content"] for each in served.engine.sessions[-1].messages]
    assert told[0] == "Go." and told[2:] == ["Make it short.", "The end.", "Sure?", "Yes."]


async def test_two_messages_reach_one_successor(connect: Any) -> None:
    slow = Slow(say(STORY), say("The end."))
    served, socket = await connect(slow)
    first = await begun(socket)
    for text in ("Make it short.", "And kind."):
        message = {"type": "message", "role": "user", "content": text}
        await socket.send_json(steer(first, [message]))
        assert (await socket.receive_json())["type"] == "response.steer.accepted"
    slow.let.set()
    events = await read(socket, is_last)
    assert [each["type"] for each in events].count("response.created") == 1
    (session,) = served.engine.sessions
    assert [each["content"] for each in session.turns[1]] == ["Make it short.", "And kind."]


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ("", "invalid_input"),
        ([], "invalid_input"),
        ([{"role": "system", "content": "x"}], "invalid_input"),
        ([{"type": "function_call_output", "call_id": "x", "output": "y"}], "invalid_input"),
        ([{"role": "user", "content": "x", "status": "completed"}], "invalid_input"),
    ],
)
async def test_wrong_input_fails_and_comes_back(connect: Any, given: Any, code: str) -> None:
    slow = Slow(say(STORY))
    _, socket = await connect(slow)
    first = await begun(socket)
    await socket.send_json(steer(first, given))
    failed = await socket.receive_json()
    assert failed["type"] == "response.steer.failed"
    assert failed["error"]["code"] == code
    assert failed["error"]["type"] == "invalid_request_error"
    assert failed["steer"] == {"input": given, "previous_response_id": first}
    slow.let.set()
    assert (await read(socket, is_last))[-1]["type"] == "response.completed"


async def test_there_must_be_such_a_response_here(connect: Any) -> None:
    slow = Slow(say(STORY))
    _, socket = await connect(slow)
    await socket.send_json(steer("resp_none"))
    failed = await socket.receive_json()
    assert failed["error"]["code"] == "response_not_found"


async def test_input_waits_for_the_clients_results(connect: Any) -> None:
    slow = Slow(call("weather", city="Ulm"), say("Short: sunny."), before=TurnEnded)
    served, socket = await connect(slow)
    asked = {"type": "response.create", "model": MODEL, "tools": [TOOL]}
    await socket.send_json(asked | {"input": "Go."})
    # The call is written before the words come.
    told = await read(
        socket, lambda event: event["type"] == "response.function_call_arguments.done"
    )
    first = told[0]["response"]["id"]
    await socket.send_json(steer(first))
    await read(socket, lambda event: event["type"] == "response.steer.accepted")
    slow.let.set()
    told = await read(socket, lambda event: event["type"] == "response.steer.pending")
    assert told[-2]["type"] == "response.completed"
    assert told[-1]["reason"] == "waiting_for_required_input"
    (needed,) = told[-1]["required_input"]
    assert needed["type"] == "function_call_output" and needed["name"] == "weather"
    output = {"type": needed["type"], "call_id": needed["call_id"], "output": "25 degrees"}
    await socket.send_json(asked | {"previous_response_id": first, "input": [output]})
    await read(socket, is_last)
    told = [each["content"] for each in served.engine.sessions[-1].messages]
    assert sorted(told) == sorted(["Go.", "", "Make it short.", "25 degrees", "Short: sunny."])


async def test_the_official_client_steers_and_gets_late_outputs(connect: Any) -> None:
    slow = Slow(call("weather", city="Ulm"), say(STORY), say("Short: it is sunny."))
    served, _ = await connect(slow)
    tool: Any = TOOL | {"async": True}
    kinds: list[str] = []
    async with served.openai.beta.responses.connect() as connection:
        await connection.response.create(model=MODEL, input="Go.", tools=[tool])
        target = called = ""
        async for event in connection:
            kinds.append(event.type)
            if event.type == "response.created":
                target = event.response.id
            elif event.type == "response.output_item.done" and event.item.type == "function_call":
                assert event.item.async_ is True
                called = event.item.call_id
            elif event.type == "response.output_text.delta" and not slow.let.is_set():
                words = "It is 25 degrees: make it short."
                await connection.response.steer(input=words, previous_response_id=target)
                slow.let.set()
            elif event.type == "response.incomplete":
                assert event.response.incomplete_details.reason == "steered"
            elif event.type == "response.completed":
                (message,) = event.response.output
                assert message.type == "message"
                assert message.content[0].text == "Short: it is sunny."
                break
    assert called
    assert "response.steer.accepted" in kinds and kinds.count("response.created") == 2


async def in_background(served: Any, slow: Slow) -> str:
    _, response = await post(served, background=True)
    await slow.written.wait()
    return str(response["id"])


async def test_a_client_without_a_socket_steers_by_a_request(serve_script: Any) -> None:
    slow = Slow(say(STORY), say("The end."))
    served = await serve_script(slow.engine)
    first = await in_background(served, slow)
    steering = asyncio.create_task(_steered(served, first))
    slow.let.set()
    status, told = await steering
    assert status == 200, told
    assert told["object"] == "response.steer" and told["previous_response_id"] == first
    url = f"/v1/responses/{told['response_id']}?stream=true"
    async with served.http.get(url) as answer:
        assert "The end." in await answer.text()
    async with served.http.get(f"/v1/responses/{first}") as answer:
        before = await answer.json()
    assert (before["status"], before["incomplete_details"]) == ("incomplete", {"reason": "steered"})


async def _steered(served: Any, response: str, given: Any = "Make it short.") -> tuple[int, Any]:
    async with served.http.post(f"/v1/responses/{response}/steer", json={"input": given}) as answer:
        return answer.status, await answer.json()


async def test_what_cannot_be_steered_is_told_by_a_status(serve_script: Any) -> None:
    slow = Slow(say("Hello."))
    slow.let.set()
    served = await serve_script(slow.engine)
    _, response = await post(served)
    status, told = await _steered(served, response["id"])
    assert (status, told["error"]["code"]) == (404, "response_not_found")


async def test_steering_counts_as_a_request_of_the_key(serve_script: Any) -> None:
    slow = Slow(say(STORY), say("The end."))
    served = await serve_script(slow.engine, api_key=[Key("secret", rpm=2, in_flight=1)])
    served.http.headers["Authorization"] = "Bearer secret"
    first = await in_background(served, slow)
    steering = asyncio.create_task(_steered(served, first))
    slow.let.set()
    assert (await steering)[0] == 200  # although its only place is that of the response
    status, told = await _steered(served, first)
    assert status in (404, 429), told
    status, told = await post(served)
    assert status == 429 and "2 requests in a minute" in told["error"]["message"]
