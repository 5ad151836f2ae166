"""The agents of examples/five, on a scripted engine, the bundled model, and a server with it."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from caesura import Agent, Context, Hooks, RemoteEngine, Sampling, ScriptedEngine
from caesura.runtime.engine import Engine
from caesura.runtime.testing import Item, call, calls, say
from caesura.scheduler.messages import CallRule
from caesura.scheduler.vllm.client.engine import VllmEngine
from examples.five import approval, on_disk, page, parallel, typed

pytestmark = pytest.mark.engine

Model = Callable[[Any, Any], Item]
Engines = Callable[[Model], Engine]


@pytest.fixture(params=["scripted", "real", "remote"])
async def on(
    request: pytest.FixtureRequest, engine: VllmEngine, settled: Any, remote: RemoteEngine
) -> Engines:
    """Return an engine; the scripted one writes what the model is said to write."""
    kinds: dict[str, Engine] = {"real": engine, "remote": remote}
    return lambda model: kinds.get(request.param) or ScriptedEngine(model)


def clerk(messages: Any, tools: Any) -> Item:
    if messages[-1]["role"] == "user":
        return call("price", item="lamp")
    return say('{"item": "lamp", "euros": 168}')


class OneTurnOfCalls(Hooks[None]):
    """The bundled model is too small to stop by itself."""

    def tools(self, context: Context[None]) -> list[str] | None:
        return [] if context.usage.turns else None


async def test_a_typed_answer_with_a_tool(on: Engines) -> None:
    offer = await asyncio.to_thread(typed.main, on(clerk), hooks=[OneTurnOfCalls()])
    assert isinstance(offer, typed.Offer)


def guide(messages: Any, tools: Any) -> Item:
    if not tools:
        return say("16 C")
    if messages[-1]["role"] == "user":
        return calls(*(call("weather", task=city) for city in ("Oslo", "Rome", "Lima")))
    return say(f"{len([each for each in messages if each['role'] == 'tool'])} cities")


async def test_three_agents_at_once(on: Engines) -> None:
    engine = on(guide)
    text = await asyncio.to_thread(parallel.main, engine)
    assert text == "3 cities" if isinstance(engine, ScriptedEngine) else text


async def test_a_page_streams_from_a_model_elsewhere(on: Engines) -> None:
    def model(messages: Any, tools: Any) -> Item:
        if messages[-1]["role"] == "user":
            return call("calculator", expression="6*7")
        return say("The answer is 42.")

    app = page.page(on(model))

    def read() -> str:
        with TestClient(app) as client:
            return client.get("/ask", params={"q": "What is 6*7?"}).text

    told = await asyncio.to_thread(read)
    events = [line.removeprefix("event: ") for line in told.splitlines() if line[:6] == "event:"]
    assert {"CallFinished", "ToolReturned", "TextDelta"} <= set(events)
    assert events[-1] == "RunEnded" and "The answer is 42." in told


async def test_a_conversation_on_disk(on: Engines, tmp_path: Path) -> None:
    def model(messages: Any, tools: Any) -> Item:
        return say(f"{len(messages)} messages")

    engine, store = on(model), str(tmp_path / "sessions.sqlite")
    first = await on_disk.main("What is 2+3?", engine, store)
    then = await on_disk.main("And 4+5?", engine, store)
    assert (first, then) == ("1 messages", "3 messages") or not isinstance(engine, ScriptedEngine)
    async with Agent(engine).session(id="ada", store=store) as session:
        told = [message["content"] for message in session.messages]
    assert told == ["What is 2+3?", first, "And 4+5?", then]


async def test_an_approval_across_processes(on: Engines, tmp_path: Path) -> None:
    def model(messages: Any, tools: Any) -> Item:
        return say("Done.") if messages[-1]["role"] == "tool" else call("refund", order=7)

    engine, store = on(model), str(tmp_path / "refunds.sqlite")
    # The bundled model makes no such call by itself.
    forced = Sampling(max_tokens=60, calls=CallRule(required=True, single=True))
    sampling = Sampling() if isinstance(engine, ScriptedEngine) else forced
    waits = await approval.main("ask", engine, store, sampling=sampling)
    assert waits.startswith('waits: {"order":')
    assert await approval.main("approve", engine, store)
