"""openai: the Responses API."""

import json
from typing import Any

import openai
from pydantic import BaseModel

from tests.clients.check import Server, check, equal, honoured, raises
from tests.clients.checks.chat import ADD, NEGATE, client
from tests.clients.checks.formats import RED, SCHEMA, Colour, Paint, is_paint
from tests.clients.script import call, either, say

LIBRARY = "openai responses"
FLAT_ADD: dict[str, Any] = {"type": "function", **ADD["function"]}
FLAT_NEGATE: dict[str, Any] = {"type": "function", **NEGATE["function"]}


async def ask(server: Server, prompt: Any, **fields: Any) -> Any:
    body = {"model": server.model, "input": prompt, "temperature": 0} | fields
    return await client(server).responses.create(**body)


@check(LIBRARY, "create")
async def create(server: Server) -> None:
    answer = await ask(server, say("Hello there."))
    equal((answer.output_text, answer.status), ("Hello there.", "completed"))
    assert answer.usage.output_tokens > 2


@check(LIBRARY, "create, with a list of messages")
async def messages(server: Server) -> None:
    text = [{"role": "user", "content": [{"type": "input_text", "text": say("Hello.")}]}]
    equal((await ask(server, text)).output_text, "Hello.")


@check(LIBRARY, "instructions")
async def instructions(server: Server) -> None:
    answer = await ask(server, say("Hello."), instructions="Be brief.")
    alone = await ask(server, say("Hello."))
    equal(answer.output_text, "Hello.")
    assert answer.usage.input_tokens > alone.usage.input_tokens + 3


@check(LIBRARY, "stream")
async def stream(server: Server) -> None:
    events = [each async for each in await ask(server, say("Hello there."), stream=True)]
    kinds = [each.type for each in events]
    equal(kinds[:2], ["response.created", "response.in_progress"])
    equal(kinds[-1], "response.completed")
    texts = [each.delta for each in events if each.type == "response.output_text.delta"]
    equal("".join(texts), "Hello there.")
    equal([each.sequence_number for each in events], list(range(len(events))))


@check(LIBRARY, "stream helper")
async def stream_helper(server: Server) -> None:
    async with client(server).responses.stream(
        model=server.model, input=say("Hello there.")
    ) as events:
        async for _ in events:
            pass
        final = await events.get_final_response()
    equal(final.output_text, "Hello there.")


@check(LIBRARY, "tool loop by previous_response_id")
async def loop(server: Server) -> None:
    first = await ask(server, say(call("add", a=1, b=3), "It is 4."), tools=[FLAT_ADD])
    (made,) = [each for each in first.output if each.type == "function_call"]
    given = json.loads(made.arguments)
    equal((made.name, given), ("add", {"a": 1, "b": 3}))
    output = {"type": "function_call_output", "call_id": made.call_id, "output": "4"}
    second = await ask(server, [output], tools=[FLAT_ADD], previous_response_id=first.id)
    equal(second.output_text, "It is 4.")


@check(LIBRARY, "tool loop by resending items")
async def loop_items(server: Server) -> None:
    text = say(call("add", a=1, b=3), "It is 4.")
    items: list[Any] = [{"role": "user", "content": text}]
    first = await ask(server, items, tools=[FLAT_ADD], store=False)
    items += [each.model_dump(exclude_none=True) for each in first.output]
    made = first.output[-1]
    items.append({"type": "function_call_output", "call_id": made.call_id, "output": "4"})
    second = await ask(server, items, tools=[FLAT_ADD], store=False)
    equal(second.output_text, "It is 4.")


@check(LIBRARY, "tool call, streamed")
async def call_streamed(server: Server) -> None:
    text = say(call("add", a=1, b=3))
    events = [each async for each in await ask(server, text, tools=[FLAT_ADD], stream=True)]
    deltas = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
    equal(json.loads("".join(deltas)), {"a": 1, "b": 3})
    done = [e for e in events if e.type == "response.output_item.done"]
    equal([e.item.name for e in done if e.item.type == "function_call"], ["add"])


@check(LIBRARY, "parallel calls")
async def parallel(server: Server) -> None:
    text = say("\n".join([call("add", a=1, b=3), call("negate", a=2)]))
    answer = await ask(server, text, tools=[FLAT_ADD, FLAT_NEGATE])
    equal([e.name for e in answer.output if e.type == "function_call"], ["add", "negate"])


@check(LIBRARY, "tool_choice: required")
async def required(server: Server) -> None:
    text = say(either("No.", call("add", a=1, b=3)))
    answer = await ask(
        server, text, tools=[FLAT_ADD], tool_choice="required", max_output_tokens=200
    )
    honoured(answer.output[-1].type == "function_call", f"text {answer.output_text!r}")


@check(LIBRARY, "tool_choice: a named function")
async def named(server: Server) -> None:
    choice = {"type": "function", "name": "negate"}
    tools = [FLAT_ADD, FLAT_NEGATE]
    text = say(either("No.", call("negate", a=2)))
    answer = await ask(server, text, tools=tools, tool_choice=choice, max_output_tokens=200)
    honoured(answer.output[-1].type == "function_call", f"text {answer.output_text!r}")
    equal(answer.output[-1].name, "negate")


@check(LIBRARY, "parse")
async def parse(server: Server) -> None:
    answer = await client(server).responses.parse(
        model=server.model, input=say(RED), text_format=Paint
    )
    equal(answer.output_parsed, Paint(colour=Colour.RED, coats=2))


@check(LIBRARY, "text.format: json_schema")
async def json_schema(server: Server) -> None:
    form = {"type": "json_schema", "name": "paint", "schema": SCHEMA, "strict": True}
    prompt = say(either("No.", RED))
    answer = await ask(server, prompt, text={"format": form}, max_output_tokens=200)
    honoured(is_paint(answer.output_text), f"text {answer.output_text!r}")


class Sum(BaseModel):
    a: int
    b: int


@check(LIBRARY, "parse of tool arguments: pydantic_function_tool")
async def parse_tool(server: Server) -> None:
    answer = await client(server).responses.parse(
        model=server.model,
        input=say(call("Sum", a=1, b=3)),
        tools=[openai.pydantic_function_tool(Sum)],
    )
    equal(answer.output[-1].parsed_arguments, Sum(a=1, b=3))


@check(LIBRARY, "previous_response_id")
async def previous(server: Server) -> None:
    first = await ask(server, say("One.", "Two."))
    second = await ask(server, "And?", previous_response_id=first.id)
    equal(second.output_text, "Two.")
    equal(second.previous_response_id, first.id)


@check(LIBRARY, "unknown previous_response_id: refused")
async def unknown_previous(server: Server) -> None:
    with raises(openai.APIStatusError):
        await ask(server, "And?", previous_response_id="resp_nothing")


@check(LIBRARY, "retrieve")
async def retrieve(server: Server) -> None:
    made = await ask(server, say("Hello there."))
    again = await client(server).responses.retrieve(made.id)
    equal(again.output_text, "Hello there.")


@check(LIBRARY, "delete")
async def delete(server: Server) -> None:
    made = await ask(server, say("Hello there."))
    await client(server).responses.delete(made.id)
    try:
        await client(server).responses.retrieve(made.id)
    except openai.NotFoundError:
        return
    raise AssertionError("it is still there")


@check(LIBRARY, "input_items.list")
async def input_items(server: Server) -> None:
    made = await ask(server, say("Hello."))
    found = [each async for each in client(server).responses.input_items.list(made.id)]
    assert "SAY" in found[0].content[0].text


@check(LIBRARY, "input_tokens.count")
async def input_tokens(server: Server) -> None:
    text = say("Hello.")
    counted = await client(server).responses.input_tokens.count(model=server.model, input=text)
    made = await ask(server, text)
    equal(counted.input_tokens, made.usage.input_tokens)


@check(LIBRARY, "store: false")
async def unstored(server: Server) -> None:
    made = await ask(server, say("Hello."), store=False)
    try:
        await client(server).responses.retrieve(made.id)
    except openai.NotFoundError:
        return
    raise AssertionError("it is kept")


@check(LIBRARY, "background")
async def background(server: Server) -> None:
    made = await ask(server, say("Hello."), background=True)
    honoured(made.status in ("queued", "in_progress"), f"status is {made.status}")
    for _ in range(200):
        made = await client(server).responses.retrieve(made.id)
        if made.status not in ("queued", "in_progress"):
            break
    equal((made.status, made.output_text), ("completed", "Hello."))


@check(LIBRARY, "max_output_tokens: status incomplete")
async def incomplete(server: Server) -> None:
    answer = await ask(server, say("One two three four five six."), max_output_tokens=3)
    equal(answer.status, "incomplete")
    equal(answer.incomplete_details.reason, "max_output_tokens")


@check(LIBRARY, "max_output_tokens, streamed: response.incomplete")
async def incomplete_streamed(server: Server) -> None:
    text = say("One two three four five six.")
    events = [each async for each in await ask(server, text, max_output_tokens=3, stream=True)]
    equal(events[-1].type, "response.incomplete")


@check(LIBRARY, "logprobs by include")
async def logprobs(server: Server) -> None:
    include = ["message.output_text.logprobs"]
    answer = await ask(server, say("Hello there."), include=include, top_logprobs=2)
    content = answer.output[-1].content[0]
    honoured(content.logprobs, "logprobs")
    equal("".join(each.token for each in content.logprobs).partition("<|")[0], "Hello there.")


@check(LIBRARY, "metadata")
async def metadata(server: Server) -> None:
    answer = await ask(server, say("Hello."), metadata={"topic": "greeting"})
    honoured(answer.metadata == {"topic": "greeting"}, f"metadata is {answer.metadata}")


@check(LIBRARY, "conversations")
async def conversations(server: Server) -> None:
    made = await client(server).conversations.create()
    await ask(server, say("One.", "Two."), conversation=made.id)
    again = await ask(server, "And?", conversation=made.id)
    equal(again.output_text, "Two.")
    found = [each async for each in client(server).conversations.items.list(made.id)]
    equal(len(found), 4)


@check(LIBRARY, "compact")
async def compact(server: Server) -> None:
    items = [{"role": "user", "content": say("Hello.")}, {"role": "assistant", "content": "Yes."}]
    made = await client(server).responses.compact(model=server.model, input=items)
    assert made.output, "nothing is left"


@check(LIBRARY, "error class of a context overflow: BadRequestError")
async def overflow(server: Server) -> None:
    with raises(openai.BadRequestError) as caught:
        await ask(server, "far too long " * 9000)
    equal(caught.error.code, "context_length_exceeded")


@check(LIBRARY, "error class of an unknown model: NotFoundError")
async def unknown_model(server: Server) -> None:
    with raises(openai.NotFoundError):
        await ask(server, "Hello.", model="nothing")
