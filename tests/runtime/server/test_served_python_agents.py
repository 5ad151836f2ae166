"""Agents of Python that a configuration names, as models of a server."""

import itertools
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from caesura.runtime.sdk.configured import ConfiguredAgents, python_agents
from caesura.runtime.sdk.engines import ENGINES
from caesura.runtime.testing import ScriptedEngine, call, say
from caesura.tools.config.caesura_toml import Config
from caesura.tools.people import people_of
from caesura.tools.people.asking import ApprovedCall
from caesura.tools.services import SetupError
from tests.kit.server import MODEL

NUMBER = itertools.count()
HELLO = [{"role": "user", "content": "Hello"}]
SHOP = '''
from pydantic import BaseModel, field_validator

from caesura import Agent, Context, Hooks, Limits, Sampling, tool

asked = []


def price(item: str) -> int:
    """Look up what an item costs."""
    return {"lamp": 24}[item]


@tool(approval=True)
def refund(euros: int) -> str:
    """Give money back."""
    return f"{euros} euros are on their way"


async def told(context: Context) -> str:
    asked.append(context.deps)
    return f"You are asked for the {len(asked)}. time."


class Offer(BaseModel):
    euros: int

    @field_validator("euros")
    @classmethod
    def is_fair(cls, euros: int) -> int:
        if euros > 100:
            raise ValueError("nobody pays so much")
        return euros


store = Agent(name="store", instructions="Answer with one number.")
clerk = Agent(
    tools=[price, "calculator", store],
    instructions="You sell lamps.",
    sampling=Sampling(temperature=0.25),
    limits=Limits(max_turns=3),
)
greeter = Agent(instructions=told)
seller = Agent(output=Offer, instructions="Make an offer.")
careful = Agent(tools=[refund])


def needy(context: Context[Offer], item: str) -> str:
    """Look something up."""
    return item


class Nothing(Hooks):
    pass


hooked = Agent(hooks=[Nothing()])
passing = Agent(handoffs=[store])
modelled = Agent("some/model")
asking = Agent(on_approval=lambda item: True)
in_need = Agent(tools=[needy])
calling = Agent(output=price)
number = 7
'''


@pytest.fixture
def module(tmp_path: Path) -> Iterator[str]:
    """A module of agents of its own, beside the configuration."""
    name = f"shop_of_agents_{next(NUMBER)}"
    (tmp_path / f"{name}.py").write_text(SHOP)
    yield name
    sys.modules.pop(name, None)


def configured(folder: Path, text: str) -> Config:
    (folder / "caesura.toml").write_text(text)
    return Config.load(folder / "caesura.toml")


@pytest.fixture
async def serve(
    tmp_path: Path, module: str, serve_script: Callable[..., Any]
) -> AsyncIterator[Callable[..., Any]]:
    """Serve a script with agents of the module; give the server Anthropic's client too."""
    async with AsyncExitStack() as stack:

        async def start(script: Any, text: str, **more: Any) -> Any:
            engine = ScriptedEngine(script, model=MODEL)
            config = configured(tmp_path, text.replace("MODULE", module))
            toolset = await stack.enter_async_context(config.toolset())
            await stack.enter_async_context(ENGINES.lent(engine))
            agents = ConfiguredAgents(config, toolset, engine).served()
            served = await serve_script(engine, toolset.registry, agents=agents, **more)
            client = anthropic.AsyncAnthropic(base_url=served.url, api_key="any", max_retries=0)
            served.people = people_of(toolset.services)
            served.anthropic = await stack.enter_async_context(client)
            return served

        yield start


CLERK = '[agents.clerk]\nagent = "MODULE:clerk"\ndescription = "sells"\n'


def sells(messages: Any, tools: Any) -> Any:
    """What the model writes, by what it was asked and shown."""
    if not tools:
        return say("7")
    if messages[-1]["role"] == "user":
        return call("store", task="How many lamps are there?")
    return call("price", item="lamp") if messages[-1]["name"] == "store" else say("7, at 24 euros.")


async def test_an_agent_of_python_is_a_model_on_the_servers_engine(serve: Any) -> None:
    served = await serve(sells, CLERK)
    assert [model.id async for model in served.openai.models.list()] == [MODEL, "clerk"]
    answer = await served.openai.chat.completions.create(model="clerk", messages=HELLO)
    assert answer.choices[0].message.content == "7, at 24 euros."
    made = answer.model_extra["caesura"]["calls"]
    assert [(each["name"], each["content"]) for each in made] == [("store", "7"), ("price", "24")]
    clerk, store = served.engine.sessions
    assert clerk.turns[0][0] == {"role": "system", "content": "You sell lamps."}
    assert clerk.samplings[0].temperature == 0.25
    names = [tool["function"]["name"] for tool in clerk.spec.tools]
    assert names == ["price", "calculator", "store"]
    assert store.turns[0][0]["content"] == "Answer with one number."
    assert store.spec.origin.parent == clerk.spec.origin.session


async def test_its_limits_are_its_own_or_those_of_the_file(serve: Any) -> None:
    served = await serve([call("price", item="lamp") for _ in range(4)], CLERK)
    with pytest.raises(openai.APIStatusError, match="more than max_turns=3 turns"):
        await served.openai.chat.completions.create(model="clerk", messages=HELLO)
    text = '[agents.greeter]\nagent = "MODULE:greeter"\ntools = ["clock"]\n[limits]\nmax_turns = 1'
    served = await serve([call("clock"), say("It is late.")], text)
    with pytest.raises(openai.APIStatusError, match="more than max_turns=1 turns"):
        await served.openai.chat.completions.create(model="greeter", messages=HELLO)


async def test_a_function_of_instructions_is_asked_at_each_request_of_each_api(
    serve: Any, module: str
) -> None:
    served = await serve(["One.", "Two.", "Three."], '[agents.greeter]\nagent = "MODULE:greeter"')
    await served.openai.chat.completions.create(model="greeter", messages=HELLO)
    await served.openai.responses.create(model="greeter", input="Hello")
    await served.anthropic.messages.create(model="greeter", max_tokens=9, messages=HELLO)
    told = [session.turns[0][0]["content"] for session in served.engine.sessions]
    assert told == [f"You are asked for the {number}. time." for number in (1, 2, 3)]
    assert sys.modules[module].asked == [None] * 3
    count = served.anthropic.messages.count_tokens
    assert (await count(model="greeter", messages=HELLO)).input_tokens > 5
    count = served.openai.responses.input_tokens.count
    assert (await count(model="greeter", input="Hello")).input_tokens > 5
    assert len(sys.modules[module].asked) == 5


SELLER = '[agents.seller]\nagent = "MODULE:seller"'


async def test_an_output_type_is_enforced_and_checked(serve: Any) -> None:
    served = await serve(['{"euros": 24}', '{"euros": 240}', '{"euros": 240}'], SELLER)
    create = served.openai.chat.completions.create
    answer = await create(model="seller", messages=HELLO)
    assert answer.choices[0].message.content == '{"euros": 24}'
    [session] = served.engine.sessions
    assert session.samplings[0].text.value["required"] == ["euros"]
    assert "follows this schema" in session.turns[0][0]["content"]
    with pytest.raises(openai.UnprocessableEntityError, match="nobody pays so much") as raised:
        await create(model="seller", messages=HELLO)
    assert raised.value.code == "invalid_output"
    with pytest.raises(openai.UnprocessableEntityError, match="nobody pays so much"):
        await served.openai.responses.create(model="seller", input="Hello")
    form = {"type": "json_object"}
    with pytest.raises(openai.BadRequestError, match="'seller' answers in a form of its own"):
        await create(model="seller", messages=HELLO, response_format=form)


async def test_its_tools_ask_the_people_of_the_server(serve: Any) -> None:
    served = await serve([], '[agents.careful]\nagent = "MODULE:careful"')
    [made] = served.app.agents["careful"].tools()
    assert isinstance(made.call, ApprovedCall)
    assert made.call.people is served.people


async def test_an_agent_of_the_file_calls_one_of_python(serve: Any) -> None:
    text = f'{CLERK}[agents.boss]\ninstructions = "Ask the clerk."\ntools = ["clerk"]\n'
    script = [
        call("clerk", task="A lamp?"),
        call("price", item="lamp"),
        say("24"),
        say("It is 24."),
    ]
    served = await serve(script, text)
    answer = await served.openai.chat.completions.create(model="boss", messages=HELLO)
    assert answer.choices[0].message.content == "It is 24."
    assert served.engine.sessions[1].turns[0][0]["content"] == "You sell lamps."


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("MODULE:clark", "has no 'clark': did you mean 'clerk'?"),
        ("no_shop:clerk", "there is no module 'no_shop' in"),
        ("clerk", "'clerk' names nothing in Python: write \"module:attribute\""),
        ("broken:clerk", "the module 'broken' cannot be imported: ZeroDivisionError"),
        ("MODULE:number", "MODULE:number' is of type int: name an Agent of the module"),
        ("MODULE:price", "is of type function: name an Agent of the module, such as helper"),
        ("MODULE:hooked", "cannot be served: it has hooks: a server asks no hooks"),
        ("MODULE:passing", "cannot be served: it has handoffs: a server's run has one agent"),
        ("MODULE:modelled", "cannot be served: it has model: the model of the server answers"),
        ("MODULE:asking", "cannot be served: it has on_approval: people approve calls at"),
        ("MODULE:in_need", "needy needs dependencies of type Offer, and a server gives none"),
        ("MODULE:calling", "its output is a function, whose result no client would get"),
    ],
)
def test_what_cannot_be_served_is_refused_with_a_reason(
    tmp_path: Path, module: str, named: str, said: str
) -> None:
    (tmp_path / "broken.py").write_text("clerk = 1 / 0\n")
    config = configured(tmp_path, f'[agents.x]\nagent = "{named}"'.replace("MODULE", module))
    with pytest.raises(SetupError) as raised:
        python_agents(config)
    told = str(raised.value)
    assert told.startswith(f"{tmp_path / 'caesura.toml'}: [agents.x]: ")
    assert said.replace("MODULE", module) in told
    assert "\n" not in told


def test_only_what_is_asked_for_is_imported(tmp_path: Path, module: str) -> None:
    text = f'[agents.a]\nagent = "{module}:clerk"\n[agents.b]\nagent = "no_shop:b"'
    assert list(python_agents(configured(tmp_path, text), "a")) == ["a"]


async def test_tools_of_the_file_stand_behind_those_of_the_agent(serve: Any) -> None:
    served = await serve(["Hello."], f'{CLERK}tools = ["clock"]')
    await served.openai.chat.completions.create(model="clerk", messages=HELLO)
    tools = [tool["function"]["name"] for tool in served.engine.sessions[0].spec.tools]
    assert tools == ["price", "calculator", "store", "clock"]
