"""The real engine with a format that only vLLM's tool parser reads, at the end of each turn."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from openai import AsyncOpenAI
from vllm.tool_parsers import ToolParserManager
from vllm.tool_parsers.granite4_tool_parser import Granite4ToolParser

from caesura import Agent, Sampling, tool
from caesura.runtime.events import ToolReturned, TurnEnded
from caesura.runtime.server import create_app
from caesura.runtime.server.app import ServerParts
from caesura.runtime.server.listen import listening
from caesura.scheduler.engine_options import EngineOptions
from caesura.scheduler.vllm.client.engine import VllmEngine
from caesura.tools import Registry
from caesura.tools.calculator.tool import calculator

pytestmark = pytest.mark.engine

Settled = Callable[[], Any]
FORMATS = ["vllm:granite4", "vllm:of_a_plugin"]
"""One with a known opener; without one every turn is read when it has ended."""
QUESTION: Any = [{"role": "user", "content": "What is 48 * 17?"}]


@pytest.fixture(params=FORMATS)
async def model(
    engine: VllmEngine, request: pytest.FixtureRequest, settled: Settled
) -> AsyncIterator[VllmEngine]:
    """The bundled model, which writes what Granite 4 writes."""
    ToolParserManager.register_module("of_a_plugin", module=Granite4ToolParser)
    yield VllmEngine(engine.llm, EngineOptions(served_name="tiny", formats=[request.param]))
    del ToolParserManager.tool_parsers["of_a_plugin"]


async def test_server_tools_run(model: VllmEngine) -> None:
    @tool
    def price(item: str) -> int:
        """Look up the price of an item."""
        return {"lamp": 34}[item]

    agent = Agent(model, ["calculator", price], sampling=Sampling(temperature=0))
    events = [event async for event in agent.stream("How much do 7 lamps cost?")]
    returned = [event.call.name for event in events if isinstance(event, ToolReturned)]
    assert returned[:1] == ["price"]
    ends = [event for event in events if isinstance(event, TurnEnded)]
    assert [end.reason for end in ends[-2:]] == ["call", "stop"]
    assert ends[1].resume is not None


async def test_an_answer_without_calls_ends_as_always(model: VllmEngine) -> None:
    agent = Agent(model, ["calculator"], sampling=Sampling(temperature=0))
    answer = await agent.run("Hello, who are you?")
    assert answer.text
    assert not answer.calls
    assert answer.usage.turns == 1


async def test_a_turn_that_the_limit_cuts_runs_nothing(model: VllmEngine) -> None:
    agent = Agent(model, ["calculator"], sampling=Sampling(temperature=0, max_tokens=12))
    answer = await agent.run("What is 48 * 17?")
    assert not answer.calls


async def test_tools_of_clients_and_of_the_server(model: VllmEngine) -> None:
    async with (
        model.backend.server() as vllm,
        listening(create_app(model, Registry([calculator]), parts=ServerParts(vllm=vllm))) as port,
        AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none") as client,
    ):
        asked = {"model": "tiny", "messages": QUESTION, "temperature": 0}
        done = await client.chat.completions.create(**asked, tools=[calculator.spec()])
        (call,) = done.choices[0].message.tool_calls
        assert call.function.name == "calculator"
        assert json.loads(call.function.arguments) == {"expression": "48*17"}
        ours = {"server_tools": ["calculator"]}
        done = await client.chat.completions.create(**asked, extra_body=ours)
        assert "816" in done.choices[0].message.content
