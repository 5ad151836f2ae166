"""Follow-ups over HTTP: a history that holds an answer unchanged continues from its tokens."""

import asyncio
from typing import Any

import pytest

from caesura.runtime.testing import call, say, think
from tests.kit.server import counted

USER = {"role": "user", "content": "Hello"}
NEXT = {"role": "user", "content": "And now?"}


def streamed(events: list[Any]) -> dict[str, Any]:
    """Return the message that a client makes of a stream."""
    deltas = [event["choices"][0]["delta"] for event in events[:-1] if event["choices"]]
    message: dict[str, Any] = {"role": "assistant", "content": None}
    for delta in deltas:
        message["content"] = (message["content"] or "") + (delta.get("content") or "")
        for piece in delta.get("tool_calls") or ():
            calls = message.setdefault("tool_calls", [])
            if piece["index"] == len(calls):
                calls.append({"id": piece["id"], "type": "function", "function": {
                    "name": piece["function"]["name"], "arguments": ""}})  # fmt: skip
            calls[piece["index"]]["function"]["arguments"] += piece["function"]["arguments"]
    return message


async def test_a_history_with_the_answer_is_spliced(serve_script: Any) -> None:
    served = await serve_script([say("Hi."), say("Fine."), say("Good.")])
    _, first = await served.chat()
    history = [USER, first["choices"][0]["message"], NEXT]
    _, second = await served.chat(messages=history)
    assert await counted(served) == {("spliced", "unchanged"): 1}
    details = second["usage"]["prompt_tokens_details"]
    assert details["cached_tokens"] > 0
    await served.chat(messages=[*history, second["choices"][0]["message"], NEXT])
    assert await counted(served) == {("spliced", "unchanged"): 2}
    assert "caesura_spliced_tokens_total" in await served.metrics()


async def test_a_changed_answer_is_rendered(serve_script: Any) -> None:
    served = await serve_script([say("Hi."), say("Fine."), say("Good."), say("Well.")])
    await served.chat()
    await served.chat(messages=[USER, {"role": "assistant", "content": "Hi!"}, NEXT])
    other = [NEXT, {"role": "assistant", "content": "Hi."}, NEXT]
    await served.chat(messages=other)
    await served.chat(messages=[NEXT, {"role": "assistant", "content": "Fine!"}, NEXT])
    assert await counted(served) == {("rendered", "unknown"): 1, ("rendered", "changed"): 2}


@pytest.mark.parametrize("stream", [False, True])
async def test_the_result_of_a_clients_call_is_spliced(
    serve_script: Any, weather: Any, stream: bool
) -> None:
    served = await serve_script([call("weather", city="Ulm"), say("Rain.")])
    if stream:
        message = streamed(await served.events(tools=[weather]))
    else:
        _, first = await served.chat(tools=[weather])
        message = first["choices"][0]["message"]
    result = {
        "role": "tool",
        "tool_call_id": message["tool_calls"][0]["id"],
        "content": "rain",
    }
    await served.chat(messages=[USER, message, result], tools=[weather])
    assert await counted(served) == {("spliced", "unchanged"): 1}


async def test_calls_of_server_tools_stand_behind_the_answer(
    serve_script: Any, double: Any
) -> None:
    """The client sends back the text alone; the tokens hold the call and its result too."""
    script = [call("double", number=2), say("It is 4."), say("Good.")]
    served = await serve_script(script, [double])
    _, first = await served.chat(server_tools=["double"])
    history = [USER, first["choices"][0]["message"], NEXT]
    await served.chat(messages=history, server_tools=["double"])
    assert await counted(served) == {("spliced", "unchanged"): 1}


async def test_answers_belong_to_their_user_and_key(serve_script: Any) -> None:
    served = await serve_script([say("Hi."), say("Fine."), say("Fine."), say("Good.")])
    _, first = await served.chat(user="anna")
    history = [USER, first["choices"][0]["message"], NEXT]
    await served.chat(messages=history, user="bob")
    await served.chat(messages=history)
    assert await counted(served) == {("rendered", "unknown"): 2}
    await served.chat(messages=history, user="anna")
    assert (await counted(served))["spliced", "unchanged"] == 1


async def test_an_answer_that_its_client_left_is_not_remembered(
    serve_script: Any, double: Any, hanging: Any
) -> None:
    served = await serve_script([call("hang"), say("Hi.")], [hanging.tool])
    task = asyncio.create_task(served.chat(server_tools=["hang"]))
    await hanging.started.wait()
    task.cancel()
    await hanging.cancelled.wait()
    history = [USER, {"role": "assistant", "content": ""}, NEXT]
    await served.chat(messages=history, server_tools=["hang"])
    assert await counted(served) == {("rendered", "unknown"): 1}


async def test_a_response_continues_the_one_that_it_names(serve_script: Any, double: Any) -> None:
    script = [call("double", number=2), say("It is 4."), say("Good."), say("Yes.")]
    served = await serve_script(script, [double])
    tools = {"server_tools": ["double"]}
    create = served.openai.responses.create
    first = await create(model="tiny/scripted", input="Double 2.", extra_body=tools)
    named = await create(
        model="tiny/scripted", input="And now?", previous_response_id=first.id, extra_body=tools
    )
    assert named.output_text == "Good."
    assert await counted(served) == {("spliced", "unchanged"): 1}
    again = [{"role": "user", "content": "Double 2."}, *first.output, NEXT]
    await create(model="tiny/scripted", input=again, extra_body=tools)
    assert await counted(served) == {("spliced", "unchanged"): 2}


async def test_a_response_continues_behind_a_functions_output(
    serve_script: Any, weather: Any
) -> None:
    served = await serve_script([call("weather", city="Ulm"), say("Rain."), say("Rain.")])
    tools = [{"type": "function", **weather["function"]}]
    create = served.openai.responses.create
    first = await create(model="tiny/scripted", input="Ulm?", tools=tools)
    (made,) = first.output
    output = {"type": "function_call_output", "call_id": made.call_id, "output": "rain"}
    await create(model="tiny/scripted", input=[output], previous_response_id=first.id, tools=tools)
    assert await counted(served) == {("spliced", "unchanged"): 1}
    question = {"role": "user", "content": "Ulm?"}
    await create(model="tiny/scripted", input=[question, made, output], tools=tools)
    assert await counted(served) == {("spliced", "unchanged"): 2}


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content", None])
async def test_reasoning_may_come_back_or_not(serve_script: Any, field: str | None) -> None:
    served = await serve_script([think("Hm.", say("Hi.")), think("Ah.", say("Fine.")), say("Yes.")])
    history: list[dict[str, Any]] = [USER]
    for _ in range(2):
        _, answered = await served.chat(messages=history)
        message = answered["choices"][0]["message"]
        kept = {"role", "content", field}
        sent = {name: value for name, value in message.items() if name in kept}
        history += [sent, NEXT]
    await served.chat(messages=history)
    assert await counted(served) == {("spliced", "unchanged"): 2}


async def test_changed_reasoning_is_rendered(serve_script: Any) -> None:
    served = await serve_script([think("Hm.", say("Hi.")), say("Fine.")])
    await served.chat()
    changed = {"role": "assistant", "content": "Hi.", "reasoning": "Ha!"}
    await served.chat(messages=[USER, changed, NEXT])
    assert await counted(served) == {("rendered", "changed"): 1}
    assert served.engine.sessions[1].turns[0][1] == changed
