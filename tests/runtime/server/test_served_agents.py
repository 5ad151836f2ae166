"""Agents that clients name as their model, by the official clients."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from starlette.responses import JSONResponse

from caesura.runtime.errors import UsageError
from caesura.runtime.run.limits import Limits
from caesura.runtime.run.served_agent import ServedAgent
from caesura.runtime.sdk.configured import ConfiguredAgents
from caesura.runtime.server import create_app
from caesura.runtime.server.keys.key import Key, salted, tenant_of
from caesura.runtime.server.keys.quota import Quotas
from caesura.runtime.testing import ScriptedEngine, call, say
from caesura.scheduler.messages import Sampling
from caesura.scheduler.vllm_server import VllmServer
from caesura.tools.config.caesura_toml import Config
from caesura.tools.registry import Registry
from tests.kit.server import MODEL, WEATHER, Behind, settings

EXAMPLE = Path(__file__).parents[3] / "examples" / "19_served" / "caesura.toml"
HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def helper(double: Any) -> ServedAgent:
    tools = Registry([double])
    return ServedAgent(
        name="helper",
        description="doubles numbers",
        instructions="Double what you are given.",
        tools=lambda: tools,
        sampling=Sampling(temperature=0.0, top_p=0.5, stop=("END",)),
        limits=Limits(max_turns=2, max_tokens=50),
    )


@pytest.fixture
async def serve_agents(
    serve_script: Callable[..., Any], helper: ServedAgent
) -> AsyncIterator[Callable[..., Any]]:
    """Serve a script with the agent; give the server Anthropic's client too."""
    async with AsyncExitStack() as stack:

        async def start(script: Any, **more: Any) -> Any:
            served = await serve_script(script, **{"agents": {"helper": helper}, **more})
            client = anthropic.AsyncAnthropic(base_url=served.url, api_key="any", max_retries=0)
            served.anthropic = await stack.enter_async_context(client)
            return served

        yield start


DOUBLED = [call("double", number=21), "It is 42."]


def heard(served: Any, number: int = 0) -> tuple[list[str], list[str]]:
    """Return the system messages at the begin of a session, and its tools."""
    session = served.engine.sessions[number]
    system = [each["content"] for each in session.turns[0] if each["role"] == "system"]
    return system, [tool["function"]["name"] for tool in session.spec.tools]


async def test_a_chat_completion_runs_the_agent(serve_agents: Any) -> None:
    served = await serve_agents(DOUBLED)
    answer = await served.openai.chat.completions.create(model="helper", messages=HELLO)
    assert (answer.model, answer.choices[0].message.content) == ("helper", "It is 42.")
    assert answer.choices[0].message.tool_calls is None
    [made] = answer.model_extra["caesura"]["calls"]
    assert (made["name"], made["content"]) == ("double", "42")
    assert heard(served) == (["Double what you are given."], ["double"])


async def test_it_streams(serve_agents: Any) -> None:
    served = await serve_agents(DOUBLED)
    stream = await served.openai.chat.completions.create(
        model="helper", messages=HELLO, stream=True
    )
    chunks = [chunk async for chunk in stream]
    assert {chunk.model for chunk in chunks} == {"helper"}
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "It is 42."


async def test_a_response_runs_the_agent_and_its_follow_up_too(serve_agents: Any) -> None:
    served = await serve_agents([*DOUBLED, "You are welcome."])
    first = await served.openai.responses.create(
        model="helper", instructions="Be short.", input="Double 21."
    )
    assert (first.model, first.output_text) == ("helper", "It is 42.")
    assert first.instructions == "Be short."
    assert heard(served) == (["Double what you are given.", "Be short."], ["double"])
    second = await served.openai.responses.create(
        model="helper", input="Thanks.", previous_response_id=first.id
    )
    assert second.output_text == "You are welcome."
    assert heard(served, 1)[0] == ["Double what you are given."]


async def test_a_message_runs_the_agent(serve_agents: Any) -> None:
    served = await serve_agents(DOUBLED)
    answer = await served.anthropic.messages.create(
        model="helper", max_tokens=40, system="Be short.", messages=HELLO
    )
    assert (answer.model, answer.content[0].text) == ("helper", "It is 42.")
    assert answer.stop_reason == "end_turn"
    assert heard(served) == (["Double what you are given.", "Be short."], ["double"])


async def test_tokens_are_counted_with_what_the_agent_adds(serve_agents: Any) -> None:
    served = await serve_agents([])
    counts = served.anthropic.messages.count_tokens
    plain = (await counts(model=MODEL, messages=HELLO)).input_tokens
    assert (await counts(model="helper", messages=HELLO)).input_tokens > plain
    tokens = served.openai.responses.input_tokens
    plain = (await tokens.count(model=MODEL, input="Hello")).input_tokens
    assert (await tokens.count(model="helper", input="Hello")).input_tokens > plain


async def test_a_clients_own_tools_stand_behind_the_agents(serve_agents: Any) -> None:
    served = await serve_agents([call("weather", city="Oslo")])
    answer = await served.openai.chat.completions.create(
        model="helper", messages=HELLO, tools=[WEATHER]
    )
    [made] = answer.choices[0].message.tool_calls
    assert made.function.name == "weather"
    assert heard(served)[1] == ["double", "weather"]
    weather: Any = WEATHER["function"]
    flat = {"type": "function", **weather}
    served = await serve_agents([call("weather", city="Oslo")])
    response = await served.openai.responses.create(model="helper", input="Hello", tools=[flat])
    assert response.output[-1].name == "weather"
    assert heard(served)[1] == ["double", "weather"]


async def test_a_tool_of_the_agents_name_is_refused(serve_agents: Any) -> None:
    served = await serve_agents([])
    clashing: Any = {"type": "function", "function": {"name": "double", "parameters": {}}}
    with pytest.raises(openai.BadRequestError, match="'double' is a tool of the server's"):
        await served.openai.chat.completions.create(
            model="helper", messages=HELLO, tools=[clashing]
        )
    with pytest.raises(openai.BadRequestError, match="the server's tool 'double' has that name"):
        flat: Any = {"type": "function", **clashing["function"], "strict": False}
        await served.openai.responses.create(model="helper", input="Hello", tools=[flat])


async def test_the_client_decides_about_sampling_and_the_agent_about_the_rest(
    serve_agents: Any,
) -> None:
    served = await serve_agents(["Yes.", "No."])
    create = served.openai.chat.completions.create
    await create(model="helper", messages=HELLO, temperature=0.9, max_tokens=7)
    [sampling] = served.engine.sessions[0].samplings
    assert (sampling.temperature, sampling.top_p, sampling.stop) == (0.9, 0.5, ("END",))
    assert sampling.max_tokens == 7
    await create(model="helper", messages=HELLO)
    [sampling] = served.engine.sessions[1].samplings
    assert (sampling.temperature, sampling.max_tokens) == (0.0, 50)


async def test_its_limits_bound_the_run(serve_agents: Any) -> None:
    served = await serve_agents([call("double", number=number) for number in range(3)])
    with pytest.raises(openai.APIStatusError, match="more than max_turns=2 turns"):
        await served.openai.chat.completions.create(model="helper", messages=HELLO)


async def test_agents_are_listed_as_models(serve_agents: Any) -> None:
    served = await serve_agents([])
    assert [model.id async for model in served.openai.models.list()] == [MODEL, "helper"]
    found = await served.openai.models.retrieve("helper")
    assert (found.owned_by, found.model_extra["parent"]) == ("caesura", MODEL)
    assert found.model_extra["description"] == "doubles numbers"
    assert [model.id async for model in served.anthropic.models.list()] == [MODEL, "helper"]
    assert (await served.anthropic.models.retrieve("helper")).id == "helper"
    with pytest.raises(openai.NotFoundError, match="'tiny/scripted', 'helper' are"):
        await served.openai.chat.completions.create(model="halper", messages=HELLO)


async def test_vllms_list_is_kept_and_its_server_answers_no_agent(
    serve_agents: Any, helper: Any
) -> None:
    cards = {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "vllm"}]}
    behind = Behind(JSONResponse(cards))
    served = await serve_agents(DOUBLED, vllm=VllmServer(behind, None))
    models = [model async for model in served.openai.models.list()]
    assert [(model.id, model.owned_by) for model in models] == [
        (MODEL, "vllm"),
        ("helper", "caesura"),
    ]
    asked = len(behind.bodies)
    answer = await served.openai.chat.completions.create(model="helper", messages=HELLO)
    assert answer.choices[0].message.content == "It is 42."
    with pytest.raises(openai.BadRequestError):  # and it gets no broken request either
        await served.openai.chat.completions.create(model="helper", messages=HELLO, n=99)
    assert len(behind.bodies) == asked


async def test_an_error_of_vllms_list_is_passed_on(serve_agents: Any) -> None:
    behind = Behind(JSONResponse({"error": {"message": "loading"}}, 503))
    served = await serve_agents([], vllm=VllmServer(behind, None))
    with pytest.raises(openai.InternalServerError, match="loading"):
        await served.openai.models.list()


async def test_an_adapter_answers_for_the_agent(serve_agents: Any, helper: Any) -> None:
    engine = ScriptedEngine([say("SELECT 1")], model=MODEL, adapters=["sql"])
    agents = {"query": replace(helper, name="query", adapter="sql")}
    served = await serve_agents(engine, agents=agents)
    await served.openai.chat.completions.create(model="query", messages=HELLO)
    assert engine.sessions[0].spec.adapter == "sql"
    served = await serve_agents([], agents=agents)
    with pytest.raises(openai.NotFoundError, match="adapter 'sql', which is not loaded here"):
        await served.openai.chat.completions.create(model="query", messages=HELLO)


def test_an_agent_may_not_have_the_name_of_the_model(helper: Any) -> None:
    with pytest.raises(UsageError, match="'tiny/scripted' has the name of the model"):
        create_app(ScriptedEngine([], model=MODEL), Registry(), *settings(agents={MODEL: helper}))


# -- From a configuration ------------------------------------------------------------------------


@pytest.fixture
async def serve_example(serve_script: Callable[..., Any]) -> AsyncIterator[Callable[..., Any]]:
    async with AsyncExitStack() as stack:

        async def start(script: Any, **more: Any) -> Any:
            engine = ScriptedEngine(script, model=MODEL)
            config = Config.load(EXAMPLE)
            toolset = await stack.enter_async_context(config.toolset())
            agents = ConfiguredAgents(config, toolset, engine).served()
            return await serve_script(engine, toolset.registry, agents=agents, **more)

        yield start


def sells(messages: Any, tools: Any) -> Any:
    """What the model writes in the example, by what it was asked and shown."""
    offered = [tool["function"]["name"] for tool in tools]
    last = messages[-1]
    if last["role"] == "user":
        if "stock" in offered:
            return call("stock", item="lamp")
        return call("storekeeper", task="How many lamps are there?")
    if offered == ["stock"]:
        return say("7")
    if last["name"] == "storekeeper":
        return call("price", item="lamp")
    return say("A lamp is 24 euros, and there are 7.")


async def test_the_example_sells_with_functions_and_an_agent_below(serve_example: Any) -> None:
    served = await serve_example(sells)
    answer = await served.openai.chat.completions.create(
        model="clerk", messages=[{"role": "user", "content": "A lamp?"}]
    )
    assert answer.choices[0].message.content == "A lamp is 24 euros, and there are 7."
    made = answer.model_extra["caesura"]["calls"]
    assert [(each["name"], each["content"]) for each in made] == [
        ("storekeeper", "7"),
        ("price", "24"),
    ]
    clerk, keeper = served.engine.sessions
    assert heard(served)[1] == ["price", "calculator", "storekeeper"]
    assert heard(served, 1) == (["Answer with one number."], ["stock"])
    assert keeper.spec.origin.parent == clerk.spec.origin.session == answer.id
    names = [model.id async for model in served.openai.models.list()]
    assert names == [MODEL, "clerk", "storekeeper"]


async def test_clients_may_use_no_tool_that_is_only_an_agents(serve_example: Any) -> None:
    served = await serve_example([])
    status, body = await served.chat(server_tools=["price"])
    assert (status, body["error"]["code"]) == (400, "unknown_tool")


async def test_an_agent_below_keeps_to_the_key_of_its_client(serve_example: Any) -> None:
    keys = [Key("one-key", "one"), Key("other-key", "other")]
    served = await serve_example(sells, api_key=keys)
    client = served.openai.with_options(api_key="one-key")
    await client.chat.completions.create(
        model="clerk",
        messages=[{"role": "user", "content": "A lamp?"}],
        extra_headers={"Caesura-Session": "shopping"},
    )
    clerk, keeper = (session.spec for session in served.engine.sessions)
    tenant = tenant_of("one-key")
    assert (clerk.origin.tenant, keeper.origin.tenant) == (tenant, tenant)
    assert (clerk.origin.session, keeper.origin.parent) == ("shopping", "shopping")
    assert clerk.cache_salt == keeper.cache_salt == salted(tenant, None)


async def test_an_agent_below_spends_the_tokens_of_the_run_and_of_the_key(
    serve_example: Any, monkeypatch: Any
) -> None:
    def chatty(messages: Any, tools: Any) -> Any:
        if messages[-1]["role"] == "tool" or len(tools) == 1:
            return say("word " * 30)
        return call("storekeeper", task="Talk.")

    spent: list[int] = []
    monkeypatch.setattr(Quotas, "spend", lambda self, sender, tokens: spent.append(tokens))
    served = await serve_example(chatty)
    answer = await served.openai.chat.completions.create(
        model="clerk", messages=HELLO, max_tokens=20
    )
    assert answer.choices[0].finish_reason == "length"
    clerk, keeper = served.engine.sessions
    below = keeper.samplings[0].max_tokens
    assert clerk.samplings[0].max_tokens == 20 and 0 < below < 20
    assert len(clerk.turns) == 1, "no token was left for a second turn"
    assert len(spent) == 2 and spent[1] > below, "its prompt and all that was left"
