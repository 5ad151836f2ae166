"""openai: chat completions."""

import json
from typing import Any

import openai

from tests.clients.check import Server, check, equal, honoured, raises
from tests.clients.script import ADD_PARAMETERS, call, either, say

LIBRARY = "openai chat"
ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": ADD_PARAMETERS,
    },
}
NEGATE = {
    "type": "function",
    "function": {
        "name": "negate",
        "description": "Negate a number.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer", "enum": [1, 2]}},
            "required": ["a"],
            "additionalProperties": False,
        },
    },
}


def client(server: Server) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=server.v1, api_key="none", max_retries=0, timeout=200)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def ask(server: Server, text: str, **fields: Any) -> Any:
    body = {"model": server.model, "messages": [user(text)], "temperature": 0} | fields
    return await client(server).chat.completions.create(**body)


async def chunks(server: Server, text: str, **fields: Any) -> list[Any]:
    return [each async for each in await ask(server, text, stream=True, **fields)]


@check(LIBRARY, "plain")
async def plain(server: Server) -> None:
    answer = await ask(server, say("Hello there."))
    equal(answer.choices[0].message.content, "Hello there.")
    equal(answer.choices[0].finish_reason, "stop")


@check(LIBRARY, "stream")
async def stream(server: Server) -> None:
    parts = [each for each in await chunks(server, say("Hello there.")) if each.choices]
    equal("".join(each.choices[0].delta.content or "" for each in parts), "Hello there.")
    equal(parts[0].choices[0].delta.role, "assistant")
    equal(parts[-1].choices[0].finish_reason, "stop")


@check(LIBRARY, "stream helper: events and final completion")
async def stream_helper(server: Server) -> None:
    messages = [user(say("Hello there."))]
    kinds = []
    async with client(server).chat.completions.stream(
        model=server.model, messages=messages
    ) as events:
        async for event in events:
            kinds.append(event.type)
        final = await events.get_final_completion()
    equal(final.choices[0].message.content, "Hello there.")
    assert "content.delta" in kinds and "content.done" in kinds, kinds


@check(LIBRARY, "system message")
async def system(server: Server) -> None:
    messages = [{"role": "system", "content": "Be brief."}, user(say("Hello."))]
    answer = await ask(server, "", messages=messages)
    alone = await ask(server, say("Hello."))
    equal(answer.choices[0].message.content, "Hello.")
    assert answer.usage.prompt_tokens > alone.usage.prompt_tokens + 3


@check(LIBRARY, "developer message")
async def developer(server: Server) -> None:
    messages = [{"role": "developer", "content": "Be brief."}, user(say("Hello."))]
    answer = await ask(server, "", messages=messages)
    equal(answer.choices[0].message.content, "Hello.")


@check(LIBRARY, "content parts")
async def parts(server: Server) -> None:
    text = [{"type": "text", "text": say("Hello.")}]
    answer = await ask(server, "", messages=[{"role": "user", "content": text}])
    equal(answer.choices[0].message.content, "Hello.")


@check(LIBRARY, "text beyond ASCII, streamed")
async def unicode(server: Server) -> None:
    text = "Grüße, 世界! 👩‍🚀"
    found = await chunks(server, say(text))
    equal("".join(c.choices[0].delta.content or "" for c in found if c.choices), text)


@check(LIBRARY, "several turns")
async def turns(server: Server) -> None:
    first = say("One.", "Two.")
    answer = await ask(server, first)
    messages = [user(first), answer.choices[0].message.model_dump(exclude_none=True), user("On.")]
    again = await ask(server, "", messages=messages)
    equal(again.choices[0].message.content, "Two.")


async def tool_loop(server: Server, streamed: bool) -> list[Any]:
    """Run calls as OpenAI's guide does, until the model answers; return all messages."""
    text = say(call("add", a=1, b=3), "It is 4.")
    messages: list[Any] = [user(text)]
    while len(messages) < 8:
        body = {"model": server.model, "messages": messages, "tools": [ADD]}
        if streamed:
            async with client(server).chat.completions.stream(**body) as events:
                completion = await events.get_final_completion()
        else:
            completion = await client(server).chat.completions.create(**body)
        message = completion.choices[0].message
        messages.append(message)
        if not message.tool_calls:
            break
        equal(completion.choices[0].finish_reason, "tool_calls")
        for each in message.tool_calls:
            given = json.loads(each.function.arguments)
            result = str(given["a"] + given["b"])
            messages.append({"role": "tool", "tool_call_id": each.id, "content": result})
    return messages


@check(LIBRARY, "tool loop")
async def loop(server: Server) -> None:
    messages = await tool_loop(server, streamed=False)
    equal(messages[2]["content"], "4")
    equal(messages[-1].content, "It is 4.")


@check(LIBRARY, "tool loop, streamed")
async def streamed_loop(server: Server) -> None:
    messages = await tool_loop(server, streamed=True)
    equal(messages[2]["content"], "4")
    equal(messages[-1].content, "It is 4.")


EITHER = either("No call.", call("add", a=1, b=3))
BOTH = "\n".join([call("add", a=1, b=3), call("negate", a=2)])


@check(LIBRARY, "parallel calls")
async def parallel(server: Server) -> None:
    answer = await ask(server, say(BOTH), tools=[ADD, NEGATE])
    first, second = answer.choices[0].message.tool_calls
    equal((first.function.name, json.loads(first.function.arguments)), ("add", {"a": 1, "b": 3}))
    equal((second.function.name, json.loads(second.function.arguments)), ("negate", {"a": 2}))
    assert first.id != second.id


@check(LIBRARY, "parallel calls, streamed")
async def parallel_streamed(server: Server) -> None:
    found: dict[int, dict[str, str]] = {}
    for chunk in await chunks(server, say(BOTH), tools=[ADD, NEGATE]):
        for delta in (chunk.choices[0].delta.tool_calls or []) if chunk.choices else []:
            one = found.setdefault(delta.index, {"name": "", "arguments": "", "id": ""})
            one["id"] += delta.id or ""
            one["name"] += delta.function.name or ""
            one["arguments"] += delta.function.arguments or ""
    equal([found[i]["name"] for i in sorted(found)], ["add", "negate"])
    equal([json.loads(found[i]["arguments"]) for i in sorted(found)], [{"a": 1, "b": 3}, {"a": 2}])
    assert found[0]["id"] and found[0]["id"] != found[1]["id"]


@check(LIBRARY, "text before a call")
async def text_and_call(server: Server) -> None:
    answer = await ask(server, say("I add. " + call("add", a=1, b=3)), tools=[ADD])
    message = answer.choices[0].message
    equal((message.content or "").strip(), "I add.")
    equal(message.tool_calls[0].function.name, "add")


@check(LIBRARY, "parallel_tool_calls: false")
async def not_parallel(server: Server) -> None:
    answer = await ask(server, say(BOTH), tools=[ADD, NEGATE], parallel_tool_calls=False)
    calls = answer.choices[0].message.tool_calls
    honoured(len(calls) == 1, f"{len(calls)} calls")


@check(LIBRARY, "tool_choice: none")
async def choice_none(server: Server) -> None:
    answer = await ask(server, say("No call."), tools=[ADD], tool_choice="none")
    equal(answer.choices[0].message.content, "No call.")
    assert not answer.choices[0].message.tool_calls


@check(LIBRARY, "tool_choice: required")
async def required(server: Server) -> None:
    answer = await ask(server, say(EITHER), tools=[ADD], tool_choice="required", max_tokens=200)
    calls = answer.choices[0].message.tool_calls
    honoured(calls, f"content {answer.choices[0].message.content!r}")
    assert json.loads(calls[0].function.arguments)["a"] in (1, 2)


@check(LIBRARY, "tool_choice: required, streamed")
async def required_streamed(server: Server) -> None:
    text = say(call("add", a=2, b=4))
    found = await chunks(server, text, tools=[ADD], tool_choice="required", max_tokens=200)
    deltas = [d for c in found if c.choices for d in c.choices[0].delta.tool_calls or []]
    equal(deltas[0].function.name, "add")
    arguments = "".join(d.function.arguments or "" for d in deltas)
    equal(json.loads(arguments), {"a": 2, "b": 4})


@check(LIBRARY, "tool_choice: a named function")
async def named(server: Server) -> None:
    choice = {"type": "function", "function": {"name": "negate"}}
    text = say(either("No call.", call("negate", a=2)))
    answer = await ask(server, text, tools=[ADD, NEGATE], tool_choice=choice, max_tokens=200)
    calls = answer.choices[0].message.tool_calls
    honoured(calls, f"content {answer.choices[0].message.content!r}")
    equal(calls[0].function.name, "negate")
    assert json.loads(calls[0].function.arguments)["a"] in (1, 2)


@check(LIBRARY, "tool_choice: allowed_tools")
async def allowed_tools(server: Server) -> None:
    one = {"type": "function", "function": {"name": "negate"}}
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [one]}}
    text = say(either(call("add", a=1, b=3), call("negate", a=2)))
    answer = await ask(server, text, tools=[ADD, NEGATE], tool_choice=choice, max_tokens=200)
    calls = answer.choices[0].message.tool_calls
    honoured(calls and calls[0].function.name == "negate", "another tool is called")


@check(LIBRARY, "strict: true in a tool")
async def strict(server: Server) -> None:
    tool = {"type": "function", "function": {**ADD["function"], "strict": True}}
    text = say(either(call("add", a=77, b=3), call("add", a=1, b=3)))
    answer = await ask(server, text, tools=[tool], max_tokens=200)
    given = json.loads(answer.choices[0].message.tool_calls[0].function.arguments)
    honoured(given["a"] in (1, 2), f"arguments are {given}")


@check(LIBRARY, "max_tokens ends with length")
async def max_tokens(server: Server) -> None:
    answer = await ask(server, say("One two three four five."), max_tokens=3)
    equal(answer.choices[0].finish_reason, "length")
    equal(answer.usage.completion_tokens, 3)


@check(LIBRARY, "max_completion_tokens")
async def max_completion_tokens(server: Server) -> None:
    answer = await ask(server, say("One two three four five."), max_completion_tokens=3)
    equal(answer.choices[0].finish_reason, "length")


@check(LIBRARY, "stop text")
async def stop(server: Server) -> None:
    answer = await ask(server, say("One. Two. Three."), stop=["Two"])
    equal((answer.choices[0].message.content, answer.choices[0].finish_reason), ("One. ", "stop"))


@check(LIBRARY, "stop text, streamed")
async def stop_streamed(server: Server) -> None:
    found = await chunks(server, say("One. Two. Three."), stop="Two")
    equal("".join(c.choices[0].delta.content or "" for c in found if c.choices), "One. ")


@check(LIBRARY, "stop text inside a call")
async def stop_in_call(server: Server) -> None:
    text = say(call("add", a=1, b=3) + " Observation: 4")
    answer = await ask(server, text, tools=[ADD], stop=["Observation:"])
    message = answer.choices[0].message
    equal(json.loads(message.tool_calls[0].function.arguments), {"a": 1, "b": 3})
    assert "Observation" not in (message.content or "")


@check(LIBRARY, "logprobs")
async def logprobs(server: Server) -> None:
    answer = await ask(server, say("Hello there."), logprobs=True, top_logprobs=2)
    honoured(answer.choices[0].logprobs, "logprobs")
    content = answer.choices[0].logprobs.content
    equal("".join(each.token for each in content).partition("<|")[0], "Hello there.")
    assert all(each.logprob <= 0 and len(each.top_logprobs) >= 2 for each in content)


@check(LIBRARY, "logprobs, streamed")
async def logprobs_streamed(server: Server) -> None:
    found = await chunks(server, say("Hello there."), logprobs=True)
    parts = [c.choices[0].logprobs for c in found if c.choices and c.choices[0].logprobs]
    honoured(parts, "logprobs")
    tokens = [each.token for part in parts for each in part.content]
    equal("".join(tokens).partition("<|")[0], "Hello there.")


@check(LIBRARY, "n")
async def several(server: Server) -> None:
    answer = await ask(server, say("Hello there."), n=3, temperature=1)
    honoured(len(answer.choices) == 3, f"{len(answer.choices)} choices")
    equal(sorted(each.index for each in answer.choices), [0, 1, 2])
    equal({each.message.content for each in answer.choices}, {"Hello there."})


@check(LIBRARY, "n, streamed")
async def several_streamed(server: Server) -> None:
    texts = ["", ""]
    for chunk in await chunks(server, say("Hello there."), n=2, temperature=1):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    equal(texts, ["Hello there."] * 2)


@check(LIBRARY, "seed")
async def seed(server: Server) -> None:
    fields = {"seed": 7, "temperature": 2.0, "max_tokens": 24}
    question = "asdf jkl qwer uiop zxcv"  # the bundled model is hardly ever so unsure
    first, again = [await ask(server, question, **fields) for _ in range(2)]
    other = [await ask(server, question, **(fields | {"seed": s})) for s in range(8, 16)]
    text = first.choices[0].message.content
    equal(again.choices[0].message.content, text)
    honoured(any(each.choices[0].message.content != text for each in other), "seed")


@check(LIBRARY, "usage, with cached tokens")
async def usage(server: Server) -> None:
    text = say("Hello there.") + " Words." * 40
    await ask(server, text)
    answer = await ask(server, text)
    used = answer.usage
    equal(used.total_tokens, used.prompt_tokens + used.completion_tokens)
    assert used.completion_tokens > 2
    assert used.prompt_tokens_details and used.prompt_tokens_details.cached_tokens > 0


@check(LIBRARY, "usage of a stream")
async def stream_usage(server: Server) -> None:
    options = {"include_usage": True}
    found = await chunks(server, say("Hello there."), stream_options=options)
    equal(found[-1].choices, [])
    assert found[-1].usage.completion_tokens > 2
    assert all(each.usage is None for each in found[:-1])


@check(LIBRARY, "continue_final_message: prefill")
async def prefill(server: Server) -> None:
    messages = [user(say("It is 816.")), {"role": "assistant", "content": "It is"}]
    extra = {"continue_final_message": True, "add_generation_prompt": False}
    answer = await ask(server, "", messages=messages, extra_body=extra)
    equal(answer.choices[0].message.content, " 816.")


@check(LIBRARY, "error class of a context overflow: BadRequestError")
async def overflow(server: Server) -> None:
    with raises(openai.BadRequestError) as caught:
        await ask(server, "far too long " * 9000)
    equal(caught.error.code, "context_length_exceeded")


@check(LIBRARY, "error class of an unknown model: NotFoundError")
async def unknown_model(server: Server) -> None:
    with raises(openai.NotFoundError) as caught:
        await ask(server, "Hello.", model="nothing")
    equal(caught.error.code, "model_not_found")


@check(LIBRARY, "models.list and models.retrieve")
async def models(server: Server) -> None:
    listed = [each.id async for each in client(server).models.list()]
    equal(listed, [server.model])
    equal((await client(server).models.retrieve(server.model)).id, server.model)


@check(LIBRARY, "completions.create")
async def completions(server: Server) -> None:
    prompt = f"<|im_start|>user\n{say('Hello there.')}<|im_end|>\n<|im_start|>assistant\n"
    made = client(server).completions
    answer = await made.create(model=server.model, prompt=prompt, max_tokens=40)
    equal(answer.choices[0].text, "Hello there.")


@check(LIBRARY, "synchronous client")
def synchronous(server: Server) -> None:
    with openai.OpenAI(base_url=server.v1, api_key="none", max_retries=0) as made:
        answer = made.chat.completions.create(
            model=server.model, messages=[user(say("Hello there."))]
        )
    equal(answer.choices[0].message.content, "Hello there.")


@check(LIBRARY, "raw response")
async def raw(server: Server) -> None:
    body = {"model": server.model, "messages": [user(say("Hello."))]}
    answer = await client(server).chat.completions.with_raw_response.create(**body)
    parsed = answer.parse()
    assert parsed.id.startswith("chatcmpl"), parsed.id
    equal(parsed.object, "chat.completion")
