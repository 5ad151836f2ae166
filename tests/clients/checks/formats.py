"""openai: structured outputs of chat completions."""

import json
from enum import Enum
from typing import Any

import openai
from pydantic import BaseModel

from tests.clients.check import Server, check, equal, honoured, raises
from tests.clients.checks.chat import ADD, ask, chunks, client, user
from tests.clients.script import call, either, say

LIBRARY = "openai formats"


class Colour(Enum):
    RED = "red"
    GREEN = "green"


class Paint(BaseModel):
    colour: Colour
    coats: int


RED = '{"colour": "red", "coats": 2}'
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "colour": {"type": "string", "enum": ["red", "green"]},
        "coats": {"type": "integer", "enum": [1, 2, 3]},
    },
    "required": ["colour", "coats"],
    "additionalProperties": False,
}
FORMAT = {
    "type": "json_schema",
    "json_schema": {"name": "paint", "schema": SCHEMA, "strict": True},
}


def is_paint(text: str) -> bool:
    """Return whether a text is an object of `SCHEMA`."""
    try:
        found = json.loads(text)
    except ValueError:
        return False
    return found.get("colour") in ("red", "green") and found.get("coats") in (1, 2, 3)


@check(LIBRARY, "response_format: json_schema")
async def json_schema(server: Server) -> None:
    answer = await ask(
        server, say(either("No paint.", RED)), response_format=FORMAT, max_tokens=200
    )
    text = answer.choices[0].message.content
    honoured(is_paint(text), f"content is {text!r}")


@check(LIBRARY, "response_format: json_schema, streamed")
async def json_schema_streamed(server: Server) -> None:
    found = await chunks(
        server, say(either("No paint.", RED)), response_format=FORMAT, max_tokens=200
    )
    text = "".join(c.choices[0].delta.content or "" for c in found if c.choices)
    honoured(is_paint(text), f"content is {text!r}")


@check(LIBRARY, "response_format: json_object")
async def json_object(server: Server) -> None:
    form = {"type": "json_object"}
    answer = await ask(server, say('{"a": 1} and more'), response_format=form, max_tokens=200)
    text = answer.choices[0].message.content
    try:
        equal(json.loads(text)["a"], 1)
    except ValueError:
        honoured(False, f"content is {text!r}")


@check(LIBRARY, "parse")
async def parse(server: Server) -> None:
    answer = await client(server).chat.completions.parse(
        model=server.model, messages=[user(say(RED))], response_format=Paint
    )
    equal(answer.choices[0].message.parsed, Paint(colour=Colour.RED, coats=2))


@check(LIBRARY, "parse of a stream")
async def parse_stream(server: Server) -> None:
    async with client(server).chat.completions.stream(
        model=server.model, messages=[user(say(RED))], response_format=Paint
    ) as events:
        final = await events.get_final_completion()
    equal(final.choices[0].message.parsed, Paint(colour=Colour.RED, coats=2))


class Add(BaseModel):
    a: int
    b: int


@check(LIBRARY, "parse of tool arguments: pydantic_function_tool")
async def parse_tool(server: Server) -> None:
    answer = await client(server).chat.completions.parse(
        model=server.model,
        messages=[user(say(call("Add", a=1, b=3)))],
        tools=[openai.pydantic_function_tool(Add)],
    )
    (made,) = answer.choices[0].message.tool_calls
    equal(made.function.parsed_arguments, Add(a=1, b=3))


@check(LIBRARY, "response_format with tools: a call")
async def format_and_call(server: Server) -> None:
    text = say(call("add", a=1, b=3))
    answer = await ask(server, text, tools=[ADD], response_format=FORMAT, max_tokens=200)
    honoured(answer.choices[0].message.tool_calls, "no call is possible")


@check(LIBRARY, "response_format with tools: an answer")
async def format_and_answer(server: Server) -> None:
    text = say(either("No paint.", RED))
    answer = await ask(server, text, tools=[ADD], response_format=FORMAT, max_tokens=200)
    message = answer.choices[0].message
    honoured(message.tool_calls or is_paint(message.content), f"content is {message.content!r}")


@check(LIBRARY, "error of an impossible schema")
async def impossible(server: Server) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "nonsense"}}}
    form = {"type": "json_schema", "json_schema": {"name": "bad", "schema": schema}}
    with raises(openai.BadRequestError):
        await ask(server, say("{}"), response_format=form, max_tokens=20)
