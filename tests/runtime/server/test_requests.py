"""What a request may hold beside its sampling, and what it is told if it holds something else."""

import base64
import json

import pytest

from caesura.runtime.server.api import messages_request, notes
from caesura.runtime.server.api.chat_request import HARMLESS, NEUTRAL, REFUSED, ChatRequest, parse
from caesura.runtime.server.http.errors import ApiError
from caesura.runtime.server.responses import schema as responses
from caesura.scheduler.messages import Sampling, TextFormat


def body(**fields):
    base = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    return json.dumps(base | fields).encode()


def message(**fields):
    return {"messages": [fields]}


def schema(given):
    return {"type": "json_schema", "json_schema": {"name": "one", "schema": given}}


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
            "image_url with a url",
        ),
        (body(**message(role="user", content=[{"type": "text"}])), "messages[0].content", "text"),
        (
            body(**message(role="user", content=[{"type": "pdf"}])),
            "messages[0].content",
            "'pdf'; only text, image_url, audio_url, input_audio, video_url are supported",
        ),
        (
            body(**message(role="user", content=[{"type": "file", "file": {"file_id": "f"}}])),
            "messages[0].content",
            "files are not kept here",
        ),
        (
            body(**message(role="user", content=[{"type": "file", "file": {"file_data": "JQD/"}}])),
            "messages[0].content",
            "only documents of text",
        ),
        (
            body(**message(role="system", content=[{"type": "image_url", "image_url": "x"}])),
            "messages[0]",
            "role system must be text",
        ),
        (body(**message(role="tool", content="x")), "messages[0]", "tool_call_id"),
        (body(n=17), "n", "less than or equal to 16"),
        (body(n=0), "n", "greater than or equal to 1"),
        (body(priority=2**64), "priority", "less than"),
        (body(tools=[{"type": "retrieval"}]), "tools[0].type", "'function'"),
        (body(tools=[{"type": "function", "function": {}}]), "tools[0].function.name", "missing"),
        (body(tool_choice="always"), "tool_choice", "'required'"),
        (body(top_logprobs=2), "top_logprobs", "needs logprobs: true"),
        (body(cache_salt=""), "cache_salt", "must not be empty"),
        (body(response_format={"type": "xml"}), "response_format.type", "'json_schema'"),
        (
            body(response_format={"type": "json_schema"}),
            "response_format",
            "json_schema is missing",
        ),
        (
            body(response_format=schema({"type": "objekt"})),
            "response_format.json_schema.schema",
            "not a valid JSON schema: 'objekt'",
        ),
        (body(structured_outputs={}), "structured_outputs", "exactly one"),
        (body(structured_outputs={"choice": ["a"], "regex": "b"}), "structured_outputs", "got 2"),
        (body(structured_outputs={"x": 1}), "structured_outputs.x", "not a field"),
        (
            body(structured_outputs={"regex": "b"}, response_format={"type": "json_object"}),
            "structured_outputs",
            "exclude each other",
        ),
        (body(continue_final_message=True), "continue_final_message", "assistant message"),
        (body(add_generation_prompt=False), "add_generation_prompt", "opposite"),
        (body(chat_template_kwargs={"tools": []}), "chat_template_kwargs", "may not set tools"),
        (body(ignore_eos=True), "ignore_eos", "ignore_eos is not supported"),
        (body(functions=[{"name": "f"}]), "functions", "functions is not supported"),
        (body(function_call={"name": "f"}), "function_call", "not supported"),
        (body(guided_json={}), "guided_json", "not supported"),
        (body(audio={"voice": "x"}), "audio", "audio is not supported"),
        (body(modalities=["text", "audio"]), "modalities", "not supported"),
    ],
)
def test_refused(raw, param, words):
    with pytest.raises(ApiError) as caught:
        parse(raw)
    assert caught.value.status == 400
    assert caught.value.type == "invalid_request_error"
    assert caught.value.param == param
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("fields", "form"),
    [
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, TextFormat("json_object")),
        (
            {"response_format": schema({"type": "integer"})},
            TextFormat("json_schema", {"type": "integer"}),
        ),
        (
            {"structured_outputs": {"json": {"type": "integer"}}},
            TextFormat("json_schema", {"type": "integer"}),
        ),
        ({"structured_outputs": {"regex": "a+"}}, TextFormat("regex", "a+")),
        ({"structured_outputs": {"choice": ["a", "b"]}}, TextFormat("choice", ("a", "b"))),
        ({"structured_outputs": {"grammar": "root ::= x"}}, TextFormat("grammar", "root ::= x")),
        ({"structured_outputs": {"json_object": True}}, TextFormat("json_object")),
    ],
)
def test_formats(fields, form):
    assert parse(body(**fields)).sampling().text == form


def test_a_file_of_text_is_text():
    text = base64.b64encode("naïve".encode()).decode()
    file = {"file_data": f"data:text/plain;base64,{text}", "filename": "a.txt"}
    parts = [{"type": "text", "text": "Read:"}, {"type": "file", "file": file}]
    (read,) = parse(body(**message(role="user", content=parts))).messages
    assert read.content == "Read:\na.txt:\nnaïve"


def test_fields_that_change_nothing_are_taken():
    said = {"n": 1, "user": "someone", "response_format": {"type": "text"}}
    left_out = dict.fromkeys(("stream_options", "tools", "tool_choice"))
    assert parse(body(**said, **left_out)).sampling() == Sampling()
    for field in HARMLESS:
        parse(body(**{field: "x"}))
    for field, values in NEUTRAL.items():
        for value in (*values, None):
            if field != "add_generation_prompt":
                parse(body(**{field: value}))


def test_a_field_that_nobody_knows_is_left_out_with_a_note(caplog):
    notes._said.clear()
    given = {"verbosity": "low", "new_in_2027": {"a": [1]}, "x" * 1000: 1, "later": None}
    told = ["field verbosity", "field new_in_2027", f"field {'x' * 64}"]
    asked = parse(body(**given, functions=[], modalities=["text"]))
    assert asked.left_out() == told
    assert asked.sampling() == Sampling()
    both = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
    message, chat = messages_request.parse(json.dumps(both | given).encode())
    assert message.left_out() == told
    assert chat.left_out() == []
    given["text"] = {"verbosity": "low"}
    response, _ = responses.parse(json.dumps({"model": "m", "input": "x"} | given).encode())
    assert responses.left_out(response) == told
    for _ in range(2):
        notes.say_once(told)
    assert [each.partition(",")[0] for each in caplog.messages] == [
        f"a request has the {each}" for each in told
    ]
    notes.say_once([f"field {number}" for number in range(2 * notes.MAX_SAID)])
    assert len(notes._said) == notes.MAX_SAID


def test_usage_in_every_chunk_is_left_out_with_a_note():
    wanted = {"include_usage": True, "continuous_usage_stats": True}
    asked = parse(body(stream=True, stream_options=wanted))
    assert asked.include_usage
    assert asked.left_out() == ["field stream_options.continuous_usage_stats"]
    assert parse(body(stream_options=wanted | {"continuous_usage_stats": False})).left_out() == []


def test_each_field_of_vllms_server_is_known_here():
    # What is not known is left out, so that a new release's fields have to be looked at.
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest

    known = {*ChatRequest.model_fields, *HARMLESS, *NEUTRAL, *REFUSED}
    assert set(ChatCompletionRequest.model_fields) - known == set()
    own = {"enable_response_messages"}
    known |= set(responses.ResponseRequest.model_fields) | responses.REFUSED
    assert set(ResponsesRequest.model_fields) - known == own


def test_variables_of_the_template():
    assert parse(body()).template() == {}
    low = parse(body(reasoning_effort="low", chat_template_kwargs={"style": "dry"}))
    assert low.template() == {"reasoning_effort": "low", "enable_thinking": True, "style": "dry"}
    off = parse(body(reasoning_effort="none"))
    assert off.template() == {"reasoning_effort": "none", "enable_thinking": False}
    both = parse(body(reasoning_effort="none", chat_template_kwargs={"enable_thinking": True}))
    assert both.template()["enable_thinking"] is True


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
