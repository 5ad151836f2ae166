"""anthropic: the Messages API."""

from typing import Any

import anthropic
from pydantic import BaseModel

from tests.clients.check import Server, check, equal, honoured, raises
from tests.clients.script import ADD_PARAMETERS, call, either, say

LIBRARY = "anthropic"
ADD: Any = {
    "name": "add",
    "description": "Add two numbers.",
    "input_schema": ADD_PARAMETERS,
}


def client(server: Server) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=server.url, api_key="none", max_retries=0, timeout=200)


def user(text: str) -> Any:
    return {"role": "user", "content": text}


async def ask(server: Server, text: str, **fields: Any) -> Any:
    body = {"model": server.model, "messages": [user(text)], "max_tokens": 100} | fields
    return await client(server).messages.create(**body)


def text_of(message: Any) -> str:
    return "".join(each.text for each in message.content if each.type == "text")


def input_tokens(message: Any) -> int:
    """Return all tokens of a prompt, those of the cache too."""
    used = message.usage
    cached = (used.cache_read_input_tokens or 0) + (used.cache_creation_input_tokens or 0)
    return int(used.input_tokens + cached)


@check(LIBRARY, "create")
async def create(server: Server) -> None:
    answer = await ask(server, say("Hello there."))
    equal((text_of(answer), answer.stop_reason), ("Hello there.", "end_turn"))
    assert answer.usage.input_tokens > 5
    assert answer.usage.output_tokens > 2


@check(LIBRARY, "system")
async def system(server: Server) -> None:
    answer = await ask(server, say("Hello."), system="Be brief.")
    alone = await ask(server, say("Hello."))
    equal(text_of(answer), "Hello.")
    used, used_alone = input_tokens(answer), input_tokens(alone)
    assert used > used_alone + 3, f"{used} input tokens, {used_alone} without"


@check(LIBRARY, "system as blocks, with cache_control")
async def system_blocks(server: Server) -> None:
    blocks = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    equal(text_of(await ask(server, say("Hello."), system=blocks)), "Hello.")


@check(LIBRARY, "create with stream: events")
async def stream(server: Server) -> None:
    events = [each async for each in await ask(server, say("Hello there."), stream=True)]
    kinds = [each.type for each in events if each.type != "ping"]
    equal(kinds[:2], ["message_start", "content_block_start"])
    equal(kinds[-3:], ["content_block_stop", "message_delta", "message_stop"])
    deltas = [e.delta.text for e in events if e.type == "content_block_delta"]
    equal("".join(deltas), "Hello there.")


@check(LIBRARY, "messages.stream")
async def stream_helper(server: Server) -> None:
    async with client(server).messages.stream(
        model=server.model, max_tokens=100, messages=[user(say("Hello there."))]
    ) as events:
        texts = [each async for each in events.text_stream]
        final = await events.get_final_message()
    equal(("".join(texts), text_of(final)), ("Hello there.", "Hello there."))
    assert final.usage.output_tokens > 2


async def tool_loop(server: Server, streamed: bool) -> list[Any]:
    """Run calls as Anthropic's guide does; return all messages."""
    messages = [user(say(call("add", a=1, b=3), "It is 4."))]
    while len(messages) < 8:
        body: Any = {
            "model": server.model,
            "max_tokens": 100,
            "messages": messages,
            "tools": [ADD],
        }
        if streamed:
            async with client(server).messages.stream(**body) as events:
                answer = await events.get_final_message()
        else:
            answer = await client(server).messages.create(**body)
        messages.append({"role": "assistant", "content": answer.content})
        if answer.stop_reason != "tool_use":
            break
        results = [
            {
                "type": "tool_result",
                "tool_use_id": each.id,
                "content": str(each.input["a"] + each.input["b"]),
            }
            for each in answer.content
            if each.type == "tool_use"
        ]
        messages.append({"role": "user", "content": results})
    return messages


@check(LIBRARY, "tool loop")
async def loop(server: Server) -> None:
    messages = await tool_loop(server, streamed=False)
    equal(messages[2]["content"][0]["content"], "4")
    equal(messages[-1]["content"][-1].text, "It is 4.")


@check(LIBRARY, "tool loop, streamed")
async def loop_streamed(server: Server) -> None:
    messages = await tool_loop(server, streamed=True)
    equal(messages[2]["content"][0]["content"], "4")
    equal(messages[-1]["content"][-1].text, "It is 4.")


@anthropic.beta_async_tool
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@check(LIBRARY, "tool_runner")
async def runner(server: Server) -> None:
    made = client(server).beta.messages.tool_runner(
        model=server.model,
        max_tokens=100,
        tools=[add],
        messages=[user(say(call("add", a=1, b=3), "It is 4."))],
    )
    equal(text_of(await made.until_done()), "It is 4.")


@check(LIBRARY, "parallel calls")
async def parallel(server: Server) -> None:
    text = say("\n".join([call("add", a=1, b=3), call("add", a=2, b=4)]))
    answer = await ask(server, text, tools=[ADD])
    found = [each.input for each in answer.content if each.type == "tool_use"]
    equal(found, [{"a": 1, "b": 3}, {"a": 2, "b": 4}])


@check(LIBRARY, "tool_choice: any")
async def choice_any(server: Server) -> None:
    text = say(either("No.", call("add", a=1, b=3)))
    answer = await ask(server, text, tools=[ADD], tool_choice={"type": "any"})
    honoured(any(e.type == "tool_use" for e in answer.content), f"text {text_of(answer)!r}")


@check(LIBRARY, "tool_choice: a named tool")
async def choice_named(server: Server) -> None:
    choice = {"type": "tool", "name": "add"}
    text = say(either("No.", call("add", a=1, b=3)))
    answer = await ask(server, text, tools=[ADD], tool_choice=choice)
    honoured(any(e.type == "tool_use" for e in answer.content), f"text {text_of(answer)!r}")


@check(LIBRARY, "tool_choice: disable_parallel_tool_use")
async def not_parallel(server: Server) -> None:
    text = say("\n".join([call("add", a=1, b=3), call("add", a=2, b=4)]))
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    answer = await ask(server, text, tools=[ADD], tool_choice=choice)
    count = sum(each.type == "tool_use" for each in answer.content)
    honoured(count == 1, f"{count} calls")


class Paint(BaseModel):
    colour: str
    coats: int


@check(LIBRARY, "messages.parse: output_format")
async def parse(server: Server) -> None:
    answer = await client(server).messages.parse(
        model=server.model,
        max_tokens=100,
        messages=[user(say('{"colour": "red", "coats": 2}'))],
        output_format=Paint,
    )
    equal(answer.parsed_output, Paint(colour="red", coats=2))


@check(LIBRARY, "output format is enforced")
async def enforced(server: Server) -> None:
    schema = {
        "type": "object",
        "properties": {"colour": {"type": "string", "enum": ["red", "green"]}},
        "required": ["colour"],
        "additionalProperties": False,
    }
    config = {"format": {"type": "json_schema", "schema": schema}}
    text = say(either("No paint.", '{"colour": "red"}'))
    answer = await ask(server, text, output_config=config)
    honoured("colour" in text_of(answer), f"text {text_of(answer)!r}")


@check(LIBRARY, "stop_sequences")
async def stop(server: Server) -> None:
    answer = await ask(server, say("One. Two."), stop_sequences=["Two"])
    equal(text_of(answer).strip(), "One.")
    equal((answer.stop_reason, answer.stop_sequence), ("stop_sequence", "Two"))


@check(LIBRARY, "max_tokens")
async def max_tokens(server: Server) -> None:
    answer = await ask(server, say("One two three four five."), max_tokens=3)
    equal((answer.stop_reason, answer.usage.output_tokens), ("max_tokens", 3))


@check(LIBRARY, "prefill by a last assistant message")
async def prefill(server: Server) -> None:
    messages = [user(say("It is 816.")), {"role": "assistant", "content": "It is"}]
    answer = await ask(server, "", messages=messages)
    honoured(text_of(answer) == " 816.", f"text {text_of(answer)!r}")


@check(LIBRARY, "count_tokens")
async def count_tokens(server: Server) -> None:
    messages = [user(say("Hello."))]
    counted = await client(server).messages.count_tokens(model=server.model, messages=messages)
    made = await ask(server, say("Hello."))
    equal(counted.input_tokens, input_tokens(made))


@check(LIBRARY, "error class of a context overflow: BadRequestError")
async def overflow(server: Server) -> None:
    with raises(anthropic.BadRequestError) as caught:
        await ask(server, "far too long " * 9000)
    body = caught.error.body
    assert isinstance(body, dict)
    equal((body["type"], body["error"]["type"]), ("error", "invalid_request_error"))


@check(LIBRARY, "error class of an unknown model: NotFoundError")
async def unknown_model(server: Server) -> None:
    with raises(anthropic.NotFoundError):
        await ask(server, "Hello.", model="nothing")


@check(LIBRARY, "server tools")
async def server_tools(server: Server) -> None:
    text = say(call("calculator", expression="48 * 17"), "It is 816.")
    answer = await ask(server, text, extra_body={"server_tools": ["calculator"]})
    honoured(text_of(answer).endswith("It is 816."), f"text {text_of(answer)!r}")
