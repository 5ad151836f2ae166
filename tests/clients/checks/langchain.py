"""langchain-openai and LangChain's agents, by chat completions and by responses."""

from collections.abc import Callable
from functools import partial
from typing import Any

import openai
from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from tests.clients.check import Server, check, check_each, equal, honoured, raises
from tests.clients.checks.formats import RED, Colour, Paint
from tests.clients.script import call, say

PAINT = Paint(colour=Colour.RED, coats=2)


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def of_chat(server: Server, **fields: Any) -> ChatOpenAI:
    given: dict[str, Any] = {"model": server.model, "base_url": server.v1, "api_key": "none"}
    return ChatOpenAI(**given | {"max_retries": 0} | fields)


def of_responses(server: Server, **fields: Any) -> ChatOpenAI:
    return of_chat(server, use_responses_api=True, **fields)


Build = Callable[..., ChatOpenAI]
APIS: dict[str, Build] = {"langchain chat": of_chat, "langchain responses": of_responses}


both = partial(check_each, APIS)


def loop(build: Build, server: Server, streamed: bool) -> Any:
    """Run calls as LangChain's guide does; return the last message."""
    bound = build(server).bind_tools([add])
    messages: list[Any] = [HumanMessage(say(call("add", a=1, b=3), "It is 4."))]
    for _ in range(4):
        if streamed:
            message, *rest = list(bound.stream(messages))
            for chunk in rest:
                message += chunk
        else:
            message = bound.invoke(messages)
        messages.append(message)
        if not message.tool_calls:
            break
        messages.extend(add.invoke(each) for each in message.tool_calls)
    equal([m.content for m in messages if isinstance(m, ToolMessage)], ["4"])
    return messages[-1]


@both("invoke")
def invoke(build: Build, server: Server) -> None:
    equal(build(server).invoke(say("Hello there.")).text, "Hello there.")


@both("stream")
def stream(build: Build, server: Server) -> None:
    found = build(server).stream(say("Hello there."))
    equal("".join(each.text for each in found), "Hello there.")


@both("system message")
def system(build: Build, server: Server) -> None:
    answer = build(server).invoke([("system", "Be brief."), ("user", say("Hello."))])
    equal(answer.text, "Hello.")


@both("bind_tools loop")
def tools(build: Build, server: Server) -> None:
    equal(loop(build, server, streamed=False).text, "It is 4.")


@both("bind_tools loop, streamed")
def tools_streamed(build: Build, server: Server) -> None:
    equal(loop(build, server, streamed=True).text, "It is 4.")


@both("bind_tools(tool_choice)")
def choice(build: Build, server: Server) -> None:
    bound = build(server, max_tokens=200).bind_tools([add], tool_choice="add")
    answer = bound.invoke(say(call("add", a=1, b=3)))
    honoured(answer.tool_calls, f"content {answer.content!r}")
    equal(answer.tool_calls[0]["args"], {"a": 1, "b": 3})


def structured(build: Build, server: Server, method: Any, text: str) -> None:
    bound = build(server).with_structured_output(Paint, method=method)
    equal(bound.invoke(say(text)), PAINT)


@both("with_structured_output: json_schema")
def structured_schema(build: Build, server: Server) -> None:
    structured(build, server, "json_schema", RED)


@both("with_structured_output: function_calling")
def structured_call(build: Build, server: Server) -> None:
    structured(build, server, "function_calling", call("Paint", colour="red", coats=2))


@both("with_structured_output: json_mode")
def structured_mode(build: Build, server: Server) -> None:
    structured(build, server, "json_mode", RED)


@both("create_agent")
def agent(build: Build, server: Server) -> None:
    made = create_agent(build(server), [add])
    text = say(call("add", a=1, b=3), "It is 4.")
    state = made.invoke({"messages": [("user", text)]})
    equal(state["messages"][-1].text, "It is 4.")
    equal([m.content for m in state["messages"] if m.type == "tool"], ["4"])


@both("create_agent, ProviderStrategy")
def agent_provider(build: Build, server: Server) -> None:
    made = create_agent(build(server), [add], response_format=ProviderStrategy(Paint))
    text = say(call("add", a=1, b=3), RED)
    equal(made.invoke({"messages": [("user", text)]})["structured_response"], PAINT)


@both("create_agent, ToolStrategy")
def agent_tool(build: Build, server: Server) -> None:
    made = create_agent(build(server), [add], response_format=ToolStrategy(Paint))
    text = say(call("add", a=1, b=3), call("Paint", colour="red", coats=2))
    equal(made.invoke({"messages": [("user", text)]})["structured_response"], PAINT)


@both("usage_metadata of a stream")
def usage(build: Build, server: Server) -> None:
    message, *rest = list(build(server, stream_usage=True).stream(say("Hello there.")))
    for chunk in rest:
        message += chunk
    assert message.usage_metadata["output_tokens"] > 2


@both("error class of a context overflow: ContextOverflowError")
def overflow(build: Build, server: Server) -> None:
    with raises(ContextOverflowError):
        build(server).invoke("far too long " * 9000)


@both("error class of an unknown model: NotFoundError")
def unknown_model(build: Build, server: Server) -> None:
    with raises(openai.NotFoundError):
        build(server, model="nothing").invoke("Hello.")


@check("langchain chat", "generate with n")
def generate(server: Server) -> None:
    made = of_chat(server, n=2)
    result = made.generate([[HumanMessage(say("Hello there."))]])
    honoured(len(result.generations[0]) == 2, "one generation")
    equal({each.text for each in result.generations[0]}, {"Hello there."})


@check("langchain chat", "logprobs")
def logprobs(server: Server) -> None:
    made = of_chat(server, logprobs=True)
    answer = made.invoke(say("Hello there."))
    honoured(answer.response_metadata.get("logprobs"), "logprobs")
