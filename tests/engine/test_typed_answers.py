"""Typed answers of agents: the same tests on scripted engines, the bundled model, and a server.

The bundled model is small, but its grammar makes it write what is asked for. The types here bound
what it may write, so that every answer ends.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from caesura import Agent, RemoteEngine, Sampling, ScriptedEngine
from caesura.runtime.engine import Engine
from caesura.runtime.events import OutputRefused, OutputWritten, RunEnded
from caesura.runtime.testing import Item, call, say
from caesura.scheduler.messages import CallRule
from caesura.scheduler.vllm.client.engine import VllmEngine

pytestmark = pytest.mark.engine

Goods = Literal["lamp", "chair"]
Euros = Annotated[int, Field(ge=0, le=999)]
Engines = Callable[[str], Engine]


class Offer(BaseModel):
    """An offer."""

    item: Goods
    euros: Euros


@dataclass
class Refusal:
    why: Literal["sold out", "unknown"]


@pytest.fixture(params=["scripted", "real", "remote"])
async def on(
    request: pytest.FixtureRequest, engine: VllmEngine, settled: Any, remote: RemoteEngine
) -> Engines:
    """Return an engine; the scripted one looks where it can, and answers."""
    kinds: dict[str, Engine] = {"real": engine, "remote": remote}

    def made(text: str) -> Engine:
        if request.param in kinds:
            return kinds[request.param]

        def model(messages: Any, tools: Any) -> Item:
            if tools and messages[-1]["role"] == "user":
                return call("look", item="lamp")
            return say(text)

        return ScriptedEngine(model)

    return made


def look(item: Goods) -> int:
    """Look up what an item costs."""
    return {"lamp": 24, "chair": 59}[item]


def sampling(**given: Any) -> Sampling:
    return Sampling(temperature=0, max_tokens=200, **given)


OFFER = '{"item": "lamp", "euros": 24}'
CASES = [
    pytest.param(Offer, OFFER, lambda made: isinstance(made, Offer), id="model"),
    pytest.param(Refusal, '{"why": "unknown"}', lambda made: made.why, id="dataclass"),
    pytest.param(
        Annotated[list[Offer], Field(min_length=1, max_length=2)],
        f"[{OFFER}]",
        lambda made: {type(each) for each in made} == {Offer},
        id="list",
    ),
    pytest.param(
        Offer | Refusal, OFFER, lambda made: isinstance(made, Offer | Refusal), id="union"
    ),
    pytest.param(Euros, "24", lambda made: 0 <= made <= 999, id="number"),
    pytest.param(Goods, '"chair"', lambda made: made in ("lamp", "chair"), id="literal"),
    pytest.param(bool, "true", lambda made: isinstance(made, bool), id="boolean"),
    pytest.param(
        Annotated[set[Goods], Field(min_length=1, max_length=1)],
        '["lamp"]',
        lambda made: made <= {"lamp", "chair"} and len(made) == 1,
        id="set",
    ),
]


@pytest.mark.parametrize(("output", "text", "fits"), CASES)
async def test_an_answer_has_its_type(on: Engines, output: Any, text: str, fits: Any) -> None:
    agent = Agent(on(text), output=output, sampling=sampling())
    answer = await agent.run("What does a lamp cost?")
    assert fits(answer.output), answer
    assert answer.usage.turns == 1


@pytest.mark.parametrize(("output", "text", "fits"), CASES)
async def test_an_answer_beside_tools_has_its_type(
    on: Engines, engine: VllmEngine, output: Any, text: str, fits: Any
) -> None:
    """The first turn is made to call, and the bias keeps the model from calling again."""
    tokens = engine.tokenizer.get_vocab().items()
    no_call = {token_id: -100.0 for token, token_id in tokens if "<" in token}
    settings = sampling(calls=CallRule(required=True, single=True), logit_bias=no_call)
    async with Agent(on(text), [look], output=output, sampling=settings) as agent:
        answer = await agent.run("What does a lamp cost?")
    assert fits(answer.output), answer
    assert [made.name for made, _ in answer.calls] == ["look"]
    assert answer.usage.turns == 2


async def test_a_function_refuses_and_the_model_tries_again(on: Engines) -> None:
    offered: list[tuple[str, int]] = []

    def offer(item: Goods, euros: Euros) -> str:
        """Offer an item."""
        offered.append((item, euros))
        if len(offered) < 3:
            raise ValueError("think again")
        return f"{item}: {euros}"

    agent = Agent(on(OFFER), output=offer, sampling=sampling())
    async with agent.session() as session:
        answer = await session.run("What does a lamp cost?")
        told = [m["content"] for m in session.messages if m["role"] == "user"]
    assert len(offered) == 3 and answer.output == f"{offered[-1][0]}: {offered[-1][1]}"
    assert answer.usage.turns == 3
    assert told[1:] == ["Your answer does not fit: think again. Write the whole answer again."] * 2


async def test_the_output_is_streamed_in_every_run_of_a_session(on: Engines) -> None:
    agent = Agent(on(OFFER), output=Offer, sampling=sampling())
    async with agent.session() as session:
        for _ in range(2):
            events = [event async for event in session.stream("What does a lamp cost?")]
            written = [event for event in events if isinstance(event, OutputWritten)]
            assert len(written) > 2 and written[0].output is None
            assert [event.complete for event in written].index(True) == len(written) - 1
            assert isinstance(written[-1].output, Offer)
            assert written[-1].output.model_dump() == written[-1].value
            assert not any(isinstance(event, OutputRefused) for event in events)
            assert isinstance(events[-1], RunEnded)
