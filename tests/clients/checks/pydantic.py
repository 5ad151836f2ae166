"""pydantic-ai, by chat completions and by responses."""

from collections.abc import Callable
from functools import partial
from typing import Any

from pydantic_ai import Agent, NativeOutput, PromptedOutput, ToolOutput
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.clients.check import Server, check_each, equal, raises
from tests.clients.checks.chat import client
from tests.clients.checks.formats import RED, Colour, Paint
from tests.clients.script import call, say


def provider(server: Server) -> Any:
    return OpenAIProvider(openai_client=client(server))


def of_chat(server: Server) -> Any:
    return OpenAIChatModel(server.model, provider=provider(server))


def of_responses(server: Server) -> Any:
    return OpenAIResponsesModel(server.model, provider=provider(server))


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


PAINT = Paint(colour=Colour.RED, coats=2)
Build = Callable[[Server], Any]
APIS: dict[str, Build] = {
    "pydantic-ai chat": of_chat,
    "pydantic-ai responses": of_responses,
}


both = partial(check_each, APIS)


@both("run")
async def plain(build: Build, server: Server) -> None:
    result = await Agent(build(server)).run(say("Hello there."))
    equal(result.output, "Hello there.")


@both("run_stream")
async def stream(build: Build, server: Server) -> None:
    async with Agent(build(server)).run_stream(say("Hello there.")) as result:
        texts = [each async for each in result.stream_text(delta=True)]
    equal("".join(texts), "Hello there.")


@both("instructions")
async def instructions(build: Build, server: Server) -> None:
    text = say("Hello.")
    result = await Agent(build(server), instructions="Be brief.").run(text)
    alone = await Agent(build(server)).run(text)
    equal(result.output, "Hello.")
    assert result.usage.input_tokens > alone.usage.input_tokens + 3


@both("tools")
async def tools(build: Build, server: Server) -> None:
    agent = Agent(build(server), tools=[add])
    result = await agent.run(say(call("add", a=1, b=3), "It is 4."))
    equal(result.output, "It is 4.")
    parts = [part for message in result.all_messages() for part in message.parts]
    equal([part.content for part in parts if part.part_kind == "tool-return"], [4])


@both("tools, streamed")
async def tools_streamed(build: Build, server: Server) -> None:
    agent = Agent(build(server), tools=[add])
    text = say(call("add", a=1, b=3), "It is 4.")
    async with agent.run_stream(text) as result:
        equal(await result.get_output(), "It is 4.")


@both("output tool: tool_choice required")
async def tool_output(build: Build, server: Server) -> None:
    agent = Agent(build(server), output_type=ToolOutput(Paint, name="paint"))
    result = await agent.run(say(call("paint", colour="red", coats=2)))
    equal(result.output, PAINT)


@both("NativeOutput: json_schema")
async def native(build: Build, server: Server) -> None:
    agent = Agent(build(server), output_type=NativeOutput(Paint))
    equal((await agent.run(say(RED))).output, PAINT)


@both("NativeOutput with tools")
async def native_tools(build: Build, server: Server) -> None:
    agent = Agent(build(server), output_type=NativeOutput(Paint), tools=[add])
    result = await agent.run(say(call("add", a=1, b=3), RED))
    equal(result.output, PAINT)
    parts = [part for message in result.all_messages() for part in message.parts]
    equal([part.content for part in parts if part.part_kind == "tool-return"], [4])


@both("PromptedOutput")
async def prompted(build: Build, server: Server) -> None:
    agent = Agent(build(server), output_type=PromptedOutput(Paint))
    equal((await agent.run(say(RED))).output, PAINT)


@both("message_history")
async def history(build: Build, server: Server) -> None:
    agent = Agent(build(server))
    first = await agent.run(say("One.", "Two."))
    second = await agent.run("And?", message_history=first.all_messages())
    equal(second.output, "Two.")


@both("error class of an unknown model")
async def unknown_model(build: Build, server: Server) -> None:
    with raises(ModelHTTPError) as caught:
        await Agent(build(Server(server.url, "nothing"))).run("Hello.")
    equal(caught.error.status_code, 404)
