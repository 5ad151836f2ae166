"""smolagents."""

from typing import Any

from smolagents import CodeAgent, OpenAIModel, ToolCallingAgent, tool
from smolagents.monitoring import LogLevel

from tests.clients.check import Server, check, equal
from tests.clients.checks.formats import RED, Colour, Paint
from tests.clients.script import call, say

LIBRARY = "smolagents"


@tool
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a + b


def model(server: Server, **fields: Any) -> Any:
    return OpenAIModel(model_id=server.model, api_base=server.v1, api_key="none", **fields)


def message(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


CALL = call("add", a=1, b=3)
FINAL = call("final_answer", answer="It is 4.")


@check(LIBRARY, "model.generate")
def generate(server: Server) -> None:
    equal(model(server).generate([message(say("Hello there."))]).content, "Hello there.")


@check(LIBRARY, "model.generate_stream")
def generate_stream(server: Server) -> None:
    found = model(server).generate_stream([message(say("Hello there."))])
    equal("".join(each.content or "" for each in found), "Hello there.")


@check(LIBRARY, "model.generate with stop_sequences")
def stop(server: Server) -> None:
    answer = model(server).generate([message(say("One. Two."))], stop_sequences=["Two"])
    equal(answer.content.strip(), "One.")


@check(LIBRARY, "model.generate with response_format")
def response_format(server: Server) -> None:
    schema = Paint.model_json_schema()
    form = {"type": "json_schema", "json_schema": {"name": "paint", "schema": schema}}
    answer = model(server).generate([message(say(RED))], response_format=form)
    equal(Paint.model_validate_json(answer.content), Paint(colour=Colour.RED, coats=2))


@check(LIBRARY, "ToolCallingAgent: tool_choice required")
def tool_agent(server: Server) -> None:
    agent = ToolCallingAgent(
        tools=[add], model=model(server, max_tokens=200), verbosity_level=LogLevel.OFF, max_steps=3
    )
    equal(agent.run(say(CALL, FINAL)), "It is 4.")


@check(LIBRARY, "ToolCallingAgent, streamed")
def tool_agent_streamed(server: Server) -> None:
    agent = ToolCallingAgent(
        tools=[add],
        model=model(server, max_tokens=200),
        verbosity_level=LogLevel.OFF,
        max_steps=3,
        stream_outputs=True,
    )
    steps = list(agent.run(say(CALL, FINAL), stream=True))
    equal(steps[-1].output, "It is 4.")


CODE = "Thought: I add.\n<code>\nfinal_answer(add(1, 3))\n</code>"


@check(LIBRARY, "CodeAgent")
def code_agent(server: Server) -> None:
    agent = CodeAgent(tools=[add], model=model(server), verbosity_level=LogLevel.OFF, max_steps=2)
    equal(agent.run(say(CODE)), 4)
