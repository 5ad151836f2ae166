"""What goes wrong between a remote engine and its server, and what an agent is told."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest

from caesura import Agent, ContextOverflow, EngineFailed, RemoteEngine, UsageError
from caesura.intercept.calls.events import TextDelta
from caesura.runtime.testing import call, say
from tests.kit.server import MODEL
from tests.kit.waiting import until

Remote = Callable[..., Any]
asked: list[str] = []


@pytest.fixture(autouse=True)
def nothing_asked() -> None:
    asked.clear()


def price(item: str) -> int:
    """Look up a price."""
    asked.append(item)
    return 24


@pytest.mark.parametrize("kind", ["ours"])
@pytest.mark.parametrize("events", [2, 4, 6, 9])
async def test_a_turn_goes_on_behind_a_broken_line(remote: Remote, events: int) -> None:
    """Nothing is decoded again, and no call is repeated."""
    script = [call("price", item="lamp"), say("A lamp costs twenty four euros.")]
    engine, scripted, line = await remote(script)
    line.cuts = [events, 2, 2]
    async with Agent(engine, [price]) as agent:
        answer = await agent.run("What does a lamp cost?")
    assert answer.text == "A lamp costs twenty four euros."
    assert asked == ["lamp"]
    assert len(scripted.sessions) == 2
    assert line.cuts == []


@pytest.mark.parametrize("kind", ["another"])
async def test_a_turn_that_breaks_on_another_server_fails(remote: Remote) -> None:
    engine, _, line = await remote([say("One two three four.")])
    line.cuts = [3]
    async with Agent(engine) as agent:
        with pytest.raises(EngineFailed, match="was lost within an answer"):
            await agent.run("Count.")


@pytest.mark.parametrize(("status", "headers"), [(503, {}), (429, {"Retry-After": "0"}), (502, {})])
async def test_a_busy_server_is_asked_again(remote: Remote, status: int, headers: Any) -> None:
    engine, _, line = await remote([say("Hi.")])
    line.refusals = [(status, headers)] * 2
    async with Agent(engine) as agent:
        assert (await agent.run("Hello.")).text == "Hi."
    assert line.refusals == []


async def test_a_server_that_stays_busy_is_told(remote: Remote) -> None:
    engine, _, line = await remote([say("Hi.")])
    line.refusals = [(503, {})] * 9
    hasty = RemoteEngine(engine.url, patience=0.3)
    async with Agent(hasty) as agent:
        with pytest.raises(EngineFailed, match="is not ready: busy"):
            await agent.run("Hello.")


async def test_a_server_that_is_not_there_is_named() -> None:
    agent = Agent(RemoteEngine("http://127.0.0.1:9/v1", "tiny", patience=0.1))
    with pytest.raises(EngineFailed, match=r"http://127.0.0.1:9/v1 cannot be reached"):
        await agent.run("Hello.")


async def test_a_model_that_is_not_there_is_named(remote: Remote) -> None:
    engine, _, _ = await remote([])
    with pytest.raises(UsageError, match=rf"has no model 'other': it has {MODEL}"):
        await Agent(engine.url, model="other").run("Hello.")


@pytest.mark.parametrize("kind", ["ours"])
async def test_a_wrong_key_is_told(remote: Remote) -> None:
    engine, _, line = await remote([])
    line.refusals = [(401, {})]
    with pytest.raises(UsageError, match="it wants an api_key: busy"):
        await Agent(engine).run("Hello.")
    line.refusals = [(401, {})]
    with pytest.raises(UsageError, match="its api_key was refused: busy"):
        await Agent(RemoteEngine(engine.url, api_key="wrong")).run("Hello.")


async def test_a_conversation_that_is_too_long_overflows(remote: Remote) -> None:
    engine, _, _ = await remote([say("Hi.")])
    with pytest.raises(ContextOverflow, match="8192"):
        await Agent(engine).run("word " * 9000)


@pytest.mark.parametrize("kind", ["ours"])
async def test_a_response_that_the_server_lost_is_told_again(remote: Remote) -> None:
    engine, scripted, _ = await remote([say("One."), say("Two.")])
    async with Agent(engine, instructions="Count.").session() as session:
        await session.run("Go.")
        inner = session._engine_session
        inner._previous = "resp_" + "0" * 32  # as if the server had forgotten it
        await session.run("On.")
    told = [message["content"] for message in scripted.sessions[-1].turns[0]]
    assert told == ["Count.", "Go.", "One.", "On."]


async def test_leaving_a_stream_ends_the_turn_at_the_server(remote: Remote) -> None:
    released = asyncio.Event()
    engine, scripted, _ = await remote([say("One two three four five six seven eight.")])

    async def pace(event: Any) -> None:
        if isinstance(event, TextDelta) and event.text.strip().startswith(("two", "three")):
            await released.wait()

    scripted.pace = pace
    async with Agent(engine) as agent, aclosing(agent.stream("Count.")) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                break
    await until(lambda: scripted.open_sessions == 0)
    released.set()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RemoteEngine("host:8000"), "must be like http://host:8000/v1, got 'host:8000'"),
        (lambda: RemoteEngine("ftp://host/v1"), "must be like http://host:8000/v1"),
        (lambda: Agent(model="http://host/v1"), r"write Agent\('http://host/v1'\)"),
        (lambda: Agent(api_key="secret"), "an api_key is for a server"),
        (lambda: Agent("a", model="b"), "'a' and model='b' are two models"),
        (lambda: Agent("http://host/v1", model=3), "the model of a server is named by a text"),
    ],
)
def test_a_wrong_argument_is_refused_in_a_sentence(make: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()
