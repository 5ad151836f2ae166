"""LiteLLM."""

import json
from typing import Any

import litellm

from tests.clients.check import Server, check, equal, honoured, raises
from tests.clients.checks.chat import ADD, NEGATE, user
from tests.clients.checks.formats import RED, Paint, is_paint
from tests.clients.script import call, either, say

LIBRARY = "litellm"
litellm.telemetry = False
litellm.suppress_debug_info = True


async def ask(server: Server, text: str, **fields: Any) -> Any:
    body = {"model": f"openai/{server.model}", "messages": [user(text)]} | fields
    return await litellm.acompletion(
        **body, api_base=server.v1, api_key="none", num_retries=0, max_retries=0, timeout=200
    )


@check(LIBRARY, "completion")
async def plain(server: Server) -> None:
    equal((await ask(server, say("Hello there."))).choices[0].message.content, "Hello there.")


@check(LIBRARY, "stream")
async def stream(server: Server) -> None:
    parts = [each async for each in await ask(server, say("Hello there."), stream=True)]
    equal("".join(each.choices[0].delta.content or "" for each in parts), "Hello there.")


@check(LIBRARY, "stream, put together by stream_chunk_builder")
async def builder(server: Server) -> None:
    text = say(call("add", a=1, b=3))
    parts = [each async for each in await ask(server, text, tools=[ADD], stream=True)]
    (made,) = litellm.stream_chunk_builder(parts).choices[0].message.tool_calls
    equal(json.loads(made.function.arguments), {"a": 1, "b": 3})


@check(LIBRARY, "tool loop")
async def loop(server: Server) -> None:
    text = say(call("add", a=1, b=3), "It is 4.")
    messages: list[Any] = [user(text)]
    first = await ask(server, "", messages=messages, tools=[ADD])
    message = first.choices[0].message
    (made,) = message.tool_calls
    messages += [message, {"role": "tool", "tool_call_id": made.id, "content": "4"}]
    second = await ask(server, "", messages=messages, tools=[ADD])
    equal(second.choices[0].message.content, "It is 4.")


@check(LIBRARY, "parallel calls")
async def parallel(server: Server) -> None:
    text = say("\n".join([call("add", a=1, b=3), call("negate", a=2)]))
    answer = await ask(server, text, tools=[ADD, NEGATE])
    names = [each.function.name for each in answer.choices[0].message.tool_calls]
    equal(names, ["add", "negate"])


@check(LIBRARY, "tool_choice: required")
async def required(server: Server) -> None:
    text = say(either("No.", call("add", a=1, b=3)))
    answer = await ask(server, text, tools=[ADD], tool_choice="required", max_tokens=200)
    honoured(answer.choices[0].message.tool_calls, "no call")


@check(LIBRARY, "response_format: a pydantic class")
async def formats(server: Server) -> None:
    answer = await ask(server, say(RED), response_format=Paint, max_tokens=200)
    honoured(is_paint(answer.choices[0].message.content), "response_format")


@check(LIBRARY, "logprobs")
async def logprobs(server: Server) -> None:
    answer = await ask(server, say("Hello there."), logprobs=True, top_logprobs=1)
    honoured(answer.choices[0].logprobs, "logprobs")


@check(LIBRARY, "n")
async def several(server: Server) -> None:
    answer = await ask(server, say("Hello there."), n=2)
    honoured(len(answer.choices) == 2, f"{len(answer.choices)} choices")


@check(LIBRARY, "stop")
async def stop(server: Server) -> None:
    answer = await ask(server, say("One. Two."), stop=["Two"])
    equal(answer.choices[0].message.content.strip(), "One.")


@check(LIBRARY, "usage of a stream")
async def usage(server: Server) -> None:
    options = {"include_usage": True}
    asked = await ask(server, say("Hello there."), stream=True, stream_options=options)
    used = [each.usage for each in [c async for c in asked] if getattr(each, "usage", None)]
    assert used[-1].completion_tokens > 2


@check(LIBRARY, "error class of a context overflow: ContextWindowExceededError")
async def overflow(server: Server) -> None:
    with raises(litellm.ContextWindowExceededError):
        await ask(server, "far too long " * 9000)


@check(LIBRARY, "error class of an unknown model: NotFoundError")
async def unknown_model(server: Server) -> None:
    with raises(litellm.NotFoundError):
        await ask(server, "Hello.", model="openai/nothing")


@check(LIBRARY, "text_completion")
async def text_completion(server: Server) -> None:
    prompt = f"<|im_start|>user\n{say('Hello there.')}<|im_end|>\n<|im_start|>assistant\n"
    answer = await litellm.atext_completion(
        model=f"text-completion-openai/{server.model}",
        prompt=prompt,
        max_tokens=40,
        api_base=server.v1,
        api_key="none",
    )
    equal(answer.choices[0].text, "Hello there.")


async def respond(server: Server, text: Any, **fields: Any) -> Any:
    return await litellm.aresponses(
        model=f"openai/{server.model}", input=text, api_base=server.v1, api_key="none", **fields
    )


@check(LIBRARY, "responses")
async def responses(server: Server) -> None:
    answer = await respond(server, say("Hello there."))
    equal(answer.output[-1].content[0].text, "Hello there.")


@check(LIBRARY, "responses, streamed")
async def responses_streamed(server: Server) -> None:
    events = [each async for each in await respond(server, say("Hello there."), stream=True)]
    texts = [each.delta for each in events if each.type == "response.output_text.delta"]
    equal("".join(texts), "Hello there.")


@check(LIBRARY, "responses with previous_response_id")
async def previous(server: Server) -> None:
    first = await respond(server, say("One.", "Two."))
    second = await respond(server, "And?", previous_response_id=first.id)
    equal(second.output[-1].content[0].text, "Two.")


@check(LIBRARY, "Anthropic messages over chat completions")
async def messages(server: Server) -> None:
    answer = await litellm.anthropic.messages.acreate(
        model=f"hosted_vllm/{server.model}",
        messages=[user(say("Hello there."))],
        max_tokens=60,
        api_base=server.v1,
        api_key="none",
    )
    equal(answer["content"][0]["text"], "Hello there.")
