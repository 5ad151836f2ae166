"""openai-agents, by chat completions and by responses."""

from collections.abc import Callable
from functools import partial
from typing import Any

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
    handoff,
)
from agents.memory import SQLiteSession

from tests.clients.check import Server, check, check_each, equal, honoured
from tests.clients.checks.chat import client
from tests.clients.checks.formats import RED, Colour, Paint
from tests.clients.script import call, say

QUIET = RunConfig(tracing_disabled=True)


@function_tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def of_chat(server: Server) -> Any:
    return OpenAIChatCompletionsModel(model=server.model, openai_client=client(server))


def of_responses(server: Server) -> Any:
    return OpenAIResponsesModel(model=server.model, openai_client=client(server))


Build = Callable[[Server], Any]
APIS: dict[str, Build] = {
    "openai-agents chat": of_chat,
    "openai-agents responses": of_responses,
}


both = partial(check_each, APIS)


def agent(build: Build, server: Server, **fields: Any) -> Agent[Any]:
    return Agent(name="helper", instructions="Be brief.", model=build(server), **fields)


async def run(build: Build, server: Server, text: str, **fields: Any) -> Any:
    return await Runner.run(agent(build, server, **fields), text, run_config=QUIET, max_turns=4)


@both("run")
async def plain(build: Build, server: Server) -> None:
    equal((await run(build, server, say("Hello there."))).final_output, "Hello there.")


@both("run_streamed")
async def streamed(build: Build, server: Server) -> None:
    result = Runner.run_streamed(agent(build, server), say("Hello there."), run_config=QUIET)
    texts = [
        each.data.delta
        async for each in result.stream_events()
        if each.type == "raw_response_event" and each.data.type == "response.output_text.delta"
    ]
    equal(("".join(texts), result.final_output), ("Hello there.", "Hello there."))


@both("function_tool")
async def tool(build: Build, server: Server) -> None:
    text = say(call("add", a=1, b=3), "It is 4.")
    result = await run(build, server, text, tools=[add])
    outputs = [i.output for i in result.new_items if i.type == "tool_call_output_item"]
    equal((outputs, result.final_output), ([4], "It is 4."))


@both("function_tool, streamed")
async def tool_streamed(build: Build, server: Server) -> None:
    text = say(call("add", a=1, b=3), "It is 4.")
    result = Runner.run_streamed(agent(build, server, tools=[add]), text, run_config=QUIET)
    names = [e.name async for e in result.stream_events() if e.type == "run_item_stream_event"]
    equal(result.final_output, "It is 4.")
    assert "tool_output" in names, names


@both("output_type")
async def output_type(build: Build, server: Server) -> None:
    result = await run(build, server, say(RED), output_type=Paint)
    equal(result.final_output, Paint(colour=Colour.RED, coats=2))


@both("tool_choice: required")
async def required(build: Build, server: Server) -> None:
    settings = ModelSettings(tool_choice="required", max_tokens=200)
    text = say(call("add", a=1, b=3), "It is 4.")
    result = await run(build, server, text, tools=[add], model_settings=settings)
    outputs = [i for i in result.new_items if i.type == "tool_call_output_item"]
    honoured(outputs, "no call")
    equal(result.final_output, "It is 4.")


@both("handoff")
async def handoffs(build: Build, server: Server) -> None:
    other = Agent(name="other", instructions="Take over.", model=build(server))
    text = say(call("transfer_to_other"), "I am other.")
    result = await run(build, server, text, handoffs=[handoff(other)])
    equal((result.last_agent.name, result.final_output), ("other", "I am other."))


@both("session")
async def session(build: Build, server: Server) -> None:
    memory = SQLiteSession("one")
    for text, expected in ((say("One.", "Two."), "One."), ("And?", "Two.")):
        result = await Runner.run(agent(build, server), text, session=memory, run_config=QUIET)
        equal(result.final_output, expected)


@both("usage")
async def usage(build: Build, server: Server) -> None:
    used = (await run(build, server, say("Hello there."))).context_wrapper.usage
    equal(used.requests, 1)
    assert used.input_tokens > 10
    assert used.output_tokens > 2


@check("openai-agents responses", "auto_previous_response_id")
async def auto_previous(server: Server) -> None:
    agent = Agent(name="helper", model=of_responses(server), tools=[add])
    text = say(call("add", a=1, b=3), "It is 4.")
    result = await Runner.run(agent, text, auto_previous_response_id=True, run_config=QUIET)
    equal(result.final_output, "It is 4.")
