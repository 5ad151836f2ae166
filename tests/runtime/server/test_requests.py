"""What a request may hold, and what it is told if it holds something else."""

import json

import pytest

from caesura.runtime.server.chat.schema import parse
from caesura.runtime.server.http.errors import ApiError


def body(**fields):
    base = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    return json.dumps(base | fields).encode()


def message(**fields):
    return {"messages": [fields]}


@pytest.mark.parametrize(
    ("raw", "param", "words"),
    [
        (b"{", None, "not valid JSON"),
        (b'"\xff"', None, "not valid JSON"),
        (b"[]", None, "must be a JSON object"),
        (b"{}", "model", "model is missing"),
        (b'{"model": "m"}', "messages", "messages is missing"),
        (body(messages=[]), "messages", "must not be empty"),
        (body(**message(role="bot", content="x")), "messages[0].role", "'user'"),
        (body(**message(role="user", content=1)), "messages[0].content", "string"),
        (
            body(**message(role="user", content=[{"type": "image_url"}])),
            "messages[0].content",
            "'image_url'; only text is supported",
        ),
        (body(**message(role="user", content=[{"type": "text"}])), "messages[0].content", "text"),
        (body(**message(role="tool", content="x")), "messages[0]", "tool_call_id"),
        (body(n=2), "n", "n must be 1, got 2"),
        (body(temperature=3), "temperature", "less than or equal to 2"),
        (body(top_p=float("nan")), "top_p", "finite"),
        (body(max_tokens=0), "max_tokens", "greater than or equal to 1"),
        (body(stop=[""]), "stop[0]", "must not be empty"),
        (body(seed=2**70), "seed", "less than"),
        (body(tools=[{"type": "retrieval"}]), "tools[0].type", "'function'"),
        (body(tools=[{"type": "function", "function": {}}]), "tools[0].function.name", "missing"),
        (body(tool_choice="always"), "tool_choice", "'required'"),
        (body(logprobs=True), "logprobs", "not supported"),
        (body(response_format={"type": "json_object"}), "response_format", "type text"),
    ],
)
def test_refused(raw, param, words):
    with pytest.raises(ApiError) as caught:
        parse(raw)
    assert caught.value.status == 400
    assert caught.value.type == "invalid_request_error"
    assert caught.value.param == param
    assert words in caught.value.message


def test_sampling():
    request = parse(
        body(
            temperature=0,
            top_p=0.9,
            top_k=5,
            seed=7,
            stop="\n",
            max_tokens=10,
            max_completion_tokens=5,
            presence_penalty=1,
            frequency_penalty=-1,
            n=1,
            user="someone",
            store=False,
            response_format={"type": "text"},
            stream_options=None,
            tools=None,
            tool_choice=None,
        )
    )
    sampling = request.sampling()
    assert sampling.temperature == 0
    assert (sampling.top_p, sampling.top_k, sampling.seed) == (0.9, 5, 7)
    assert sampling.max_tokens == 5
    assert sampling.stop == ("\n",)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (1, -1)
    assert parse(body()).sampling() == type(sampling)()


async def test_history_reaches_the_engine_in_one_shape(serve_script):
    served = await serve_script(["Fine."])
    function = {"name": "weather", "arguments": '{"city": "Oslo"}'}
    call = {"id": "c1", "type": "function", "function": function}
    as_object = {"id": "c2", "function": {"name": "weather", "arguments": {"city": "Bergen"}}}
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None, "tool_calls": [call, as_object], "refusal": None},
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "sun"}]},
        {"role": "assistant", "content": "Rain and sun."},
        {"role": "user", "name": "ann", "content": "Thanks."},
    ]
    status, _ = await served.chat(messages=messages)
    assert status == 200
    [sent] = served.engine.sessions[0].turns
    other = {"name": "weather", "arguments": '{"city": "Bergen"}'}
    assert list(sent) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "a\nb"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [call, {"id": "c2", "type": "function", "function": other}],
        },
        {"role": "tool", "content": "rain", "tool_call_id": "c1", "name": "weather"},
        {"role": "tool", "content": "sun", "tool_call_id": "c2", "name": "weather"},
        {"role": "assistant", "content": "Rain and sun."},
        {"role": "user", "content": "Thanks."},
    ]


async def test_sampling_reaches_the_engine(serve_script):
    served = await serve_script(["Fine."])
    await served.chat(temperature=0.5, stop=["a", "b"])
    [session] = served.engine.sessions
    assert session.samplings[0].temperature == 0.5
    assert session.samplings[0].stop == ("a", "b")
