"""The official client against the endpoint."""

import asyncio
import json

import openai
import pytest

from caesura.runtime.errors import EngineFailed
from caesura.runtime.testing import call, calls, fail
from tests.kit.server import MODEL

HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def ask():
    """What every request here says."""
    return {"model": MODEL, "messages": HELLO}


async def test_whole_answer(serve_script, ask):
    served = await serve_script(["Hello to you."])
    answer = await served.openai.chat.completions.create(**ask)
    assert answer.choices[0].message.content == "Hello to you."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens == 3
    assert answer.usage.prompt_tokens_details.cached_tokens == 0


async def test_streamed_answer(serve_script, ask):
    served = await serve_script(["Hello to you."])
    stream = await served.openai.chat.completions.create(
        **ask, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "Hello to you."
    assert chunks[-1].usage.completion_tokens == 3


async def test_models(serve_script):
    served = await serve_script([])
    assert [model.id async for model in served.openai.models.list()] == [MODEL]
    assert (await served.openai.models.retrieve(MODEL)).owned_by == "caesura"


async def test_conversation_with_a_client_tool(serve_script, ask, weather):
    served = await serve_script([call("weather", city="Oslo"), "It rains."])
    answer = await served.openai.chat.completions.create(**ask, tools=[weather])
    message = answer.choices[0].message
    [made] = message.tool_calls
    assert json.loads(made.function.arguments) == {"city": "Oslo"}
    result = {"role": "tool", "tool_call_id": made.id, "content": "rain"}
    history = [*HELLO, message.model_dump(), result]
    answer = await served.openai.chat.completions.create(
        model=MODEL, messages=history, tools=[weather]
    )
    assert answer.choices[0].message.content == "It rains."


async def test_server_tool(serve_script, ask, double):
    served = await serve_script([call("double", number=21), "It is 42."], [double])
    answer = await served.openai.chat.completions.create(
        **ask, extra_body={"server_tools": ["double"]}
    )
    assert answer.choices[0].message.content == "It is 42."
    assert answer.model_extra["caesura"]["calls"][0]["content"] == "42"


async def test_stream_helper_with_a_server_tool(serve_script, ask, double):
    served = await serve_script([call("double", number=21), "It is 42."], [double])
    async with served.openai.chat.completions.stream(
        **ask, extra_body={"server_tools": ["double"]}
    ) as stream:
        kinds = [event.type async for event in stream]
        answer = await stream.get_final_completion()
    assert answer.choices[0].message.content == "It is 42."
    assert answer.choices[0].message.tool_calls is None
    assert "content.done" in kinds


async def test_stream_helper_with_client_tools(serve_script, ask, weather):
    script = [calls(call("weather", city="Oslo"), call("weather", city="Bergen"), text="Looking.")]
    served = await serve_script(script)
    async with served.openai.chat.completions.stream(**ask, tools=[weather]) as stream:
        done = [
            event async for event in stream if event.type == "tool_calls.function.arguments.done"
        ]
        answer = await stream.get_final_completion()
    assert [event.arguments for event in done] == ['{"city": "Oslo"}', '{"city": "Bergen"}']
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Looking."
    assert len({made.id for made in choice.message.tool_calls}) == 2


async def test_comments_are_passed_over(serve_script, ask, hanging):
    served = await serve_script([call("hang"), "Done."], [hanging.tool], keep_alive_seconds=0.01)
    stream = await served.openai.chat.completions.create(
        **ask, stream=True, extra_body={"server_tools": ["hang"]}
    )
    asyncio.get_running_loop().call_later(0.05, hanging.released.set)  # after some comments
    text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    assert text == "Done."


async def test_errors_become_the_clients_exceptions(serve_script, ask):
    served = await serve_script([fail(EngineFailed("x"), "Once upon")], api_key="any")
    create = served.openai.chat.completions.create
    with pytest.raises(openai.NotFoundError) as unknown:
        await create(model="other", messages=HELLO)
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as invalid:
        await create(**ask, n=99)
    assert invalid.value.param == "n"
    with pytest.raises(openai.AuthenticationError):
        await served.openai.with_options(api_key="wrong").models.list()
    with pytest.raises(openai.APIError, match="engine has failed"):
        async for _ in await create(**ask, stream=True):
            pass
