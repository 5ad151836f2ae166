"""Caesura's server tools, through each library that passes on extra fields."""

import json
from typing import Any

import litellm
from agents import Agent, ModelSettings, Runner
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models.openai import OpenAIChatModelSettings

from tests.clients.check import Server, check, equal, honoured
from tests.clients.checks import agents, pydantic, smol
from tests.clients.checks import langchain as langchain_api
from tests.clients.checks.chat import ADD, chunks, user
from tests.clients.checks.chat import ask as ask_chat
from tests.clients.checks.formats import FORMAT, SCHEMA, is_paint
from tests.clients.checks.plain import chat as http_chat
from tests.clients.checks.responses import ask as ask_responses
from tests.clients.script import call, say

CALL = call("calculator", expression="48 * 17")
TEXT = say(CALL, "It is 816.")
EXTRA: dict[str, Any] = {"server_tools": ["calculator"]}
ANSWER = "It is 816."
LIBRARY = "server tools"
MCP: dict[str, Any] = {
    "type": "mcp",
    "server_label": "caesura",
    "allowed_tools": ["calculator"],
}
PAINT = {"type": "json_schema", "name": "paint", "schema": SCHEMA, "strict": True}


def ran(text: str | None) -> None:
    """Raise `Ignored` unless the answer is that behind the call."""
    honoured((text or "").strip().endswith(ANSWER), f"the answer is {text!r}")


def calls_of(answer: Any) -> list[tuple[str, str]]:
    extra = answer.model_extra.get("caesura") or {}
    return [(each["name"], each["content"]) for each in extra.get("calls", [])]


@check(LIBRARY, "plain HTTP")
def plain(server: Server) -> None:
    answer = http_chat(server, TEXT, **EXTRA).json()
    ran(answer["choices"][0]["message"]["content"])
    equal(answer["caesura"]["calls"][0]["content"], "816")


@check(LIBRARY, "openai chat")
async def chat(server: Server) -> None:
    answer = await ask_chat(server, TEXT, extra_body=EXTRA)
    ran(answer.choices[0].message.content)
    equal(calls_of(answer), [("calculator", "816")])


@check(LIBRARY, "openai chat, streamed")
async def chat_streamed(server: Server) -> None:
    found = await chunks(server, TEXT, extra_body=EXTRA)
    ran("".join(c.choices[0].delta.content or "" for c in found if c.choices))
    equal([each for chunk in found for each in calls_of(chunk)], [("calculator", "816")])


@check(LIBRARY, "openai chat, two calls in one turn")
async def two(server: Server) -> None:
    both = f"{CALL}\n{call('calculator', expression='2 + 2')}"
    answer = await ask_chat(server, say(both, ANSWER), extra_body=EXTRA)
    ran(answer.choices[0].message.content)
    equal(sorted(content for _, content in calls_of(answer)), ["4", "816"])


@check(LIBRARY, "openai chat, beside a client's tool")
async def beside(server: Server) -> None:
    text = say(CALL, call("add", a=1, b=3))
    answer = await ask_chat(server, text, tools=[ADD], extra_body=EXTRA)
    honoured(calls_of(answer), "server_tools")
    (made,) = answer.choices[0].message.tool_calls
    equal((made.function.name, json.loads(made.function.arguments)), ("add", {"a": 1, "b": 3}))


@check(LIBRARY, "openai chat, tool_choice: required")
async def required(server: Server) -> None:
    body: dict[str, Any] = {"tool_choice": "required", "extra_body": EXTRA, "max_tokens": 300}
    answer = await ask_chat(server, TEXT, **body)
    equal(calls_of(answer)[:1], [("calculator", "816")])


@check(LIBRARY, "openai chat, response_format")
async def response_format(server: Server) -> None:
    text = say(CALL, '{"colour": "red", "coats": 2}')
    answer = await ask_chat(server, text, response_format=FORMAT, extra_body=EXTRA, max_tokens=300)
    honoured(calls_of(answer), "server_tools")
    assert is_paint(answer.choices[0].message.content), answer.choices[0].message.content


@check(LIBRARY, "openai chat, logprobs")
async def logprobs(server: Server) -> None:
    answer = await ask_chat(server, TEXT, logprobs=True, top_logprobs=1, extra_body=EXTRA)
    ran(answer.choices[0].message.content)
    tokens = "".join(each.token for each in answer.choices[0].logprobs.content)
    equal(tokens.partition("<|")[0].strip(), ANSWER)


@check(LIBRARY, "openai chat, stop text")
async def stop(server: Server) -> None:
    text = say(CALL, "One. Two.")
    answer = await ask_chat(server, text, stop=["Two"], extra_body=EXTRA)
    honoured(calls_of(answer), "server_tools")
    equal(answer.choices[0].message.content.strip(), "One.")


@check(LIBRARY, "openai chat, n")
async def several(server: Server) -> None:
    answer = await ask_chat(server, TEXT, n=2, extra_body=EXTRA)
    honoured(len(answer.choices) == 2, f"{len(answer.choices)} choices")
    for choice in answer.choices:
        ran(choice.message.content)


@check(LIBRARY, "openai chat, follow-up")
async def follow_up(server: Server) -> None:
    first_text = say(CALL, ANSWER, "And 4.")
    first = await ask_chat(server, first_text, extra_body=EXTRA)
    ran(first.choices[0].message.content)
    text = say("And 4.")
    messages = [user(first_text), {"role": "assistant", "content": ANSWER}, user(text)]
    again = await ask_chat(server, "", messages=messages, extra_body=EXTRA)
    equal(again.choices[0].message.content, "And 4.")


@check(LIBRARY, "openai responses: server_tools")
async def responses(server: Server) -> None:
    answer = await ask_responses(server, TEXT, extra_body=EXTRA)
    ran(answer.output_text)


@check(LIBRARY, "openai responses: mcp tool of label caesura")
async def mcp(server: Server) -> None:
    answer = await ask_responses(server, TEXT, tools=[MCP])
    ran(answer.output_text)
    equal([e.output for e in answer.output if e.type == "mcp_call"], ["816"])


@check(LIBRARY, "openai responses: mcp tool, streamed")
async def mcp_streamed(server: Server) -> None:
    events = [each async for each in await ask_responses(server, TEXT, tools=[MCP], stream=True)]
    kinds = [each.type for each in events]
    honoured("response.mcp_call.completed" in kinds, "no call ran")
    equal(kinds[-1], "response.completed")
    ran(events[-1].response.output_text)


@check(LIBRARY, "openai responses: mcp tool, tool_choice: required, text.format")
async def mcp_forced(server: Server) -> None:
    text = say(CALL, '{"colour": "red", "coats": 2}')
    fields: dict[str, Any] = {"tools": [MCP], "tool_choice": "required", "text": {"format": PAINT}}
    answer = await ask_responses(server, text, max_output_tokens=300, **fields)
    equal([each.output for each in answer.output if each.type == "mcp_call"], ["816"])
    assert is_paint(answer.output_text), answer.output_text


@check(LIBRARY, "openai-agents chat")
async def agents_chat(server: Server) -> None:
    settings = ModelSettings(extra_body=EXTRA)
    agent = Agent(name="helper", model=agents.of_chat(server), model_settings=settings)
    ran((await Runner.run(agent, TEXT, run_config=agents.QUIET)).final_output)


@check(LIBRARY, "openai-agents responses")
async def agents_responses(server: Server) -> None:
    settings = ModelSettings(extra_body=EXTRA)
    agent = Agent(name="helper", model=agents.of_responses(server), model_settings=settings)
    ran((await Runner.run(agent, TEXT, run_config=agents.QUIET)).final_output)


@check(LIBRARY, "pydantic-ai")
async def pydantic_ai(server: Server) -> None:
    settings = OpenAIChatModelSettings(extra_body=EXTRA)
    agent = PydanticAgent(pydantic.of_chat(server), model_settings=settings)
    ran((await agent.run(TEXT)).output)


@check(LIBRARY, "langchain")
def langchain(server: Server) -> None:
    model = langchain_api.of_chat(server, extra_body=EXTRA)
    ran(model.invoke(TEXT).text)


@check(LIBRARY, "langchain, streamed")
def langchain_streamed(server: Server) -> None:
    model = langchain_api.of_chat(server, extra_body=EXTRA)
    ran("".join(each.text for each in model.stream(TEXT)))


@check(LIBRARY, "litellm")
async def lite(server: Server) -> None:
    answer = await litellm.acompletion(
        model=f"openai/{server.model}",
        messages=[user(TEXT)],
        api_base=server.v1,
        api_key="none",
        extra_body=EXTRA,
    )
    ran(answer.choices[0].message.content)


@check(LIBRARY, "smolagents")
def smolagents(server: Server) -> None:
    model = smol.model(server, extra_body=EXTRA)
    ran(model.generate([smol.message(TEXT)]).content)
