"""Plain and streamed answers without server tools, as the wire shows them."""

from vllm.entrypoints.serve.engine.protocol import ModelCard

from caesura.runtime.testing import ScriptedEngine, call, calls, malformed, say, think


def joined(events, field="content"):
    chunks = [event for event in events if isinstance(event, dict) and event["choices"]]
    return "".join(chunk["choices"][0]["delta"].get(field) or "" for chunk in chunks)


async def test_answer(serve_script):
    served = await serve_script(["Hello to you."])
    status, body = await served.chat()
    assert status == 200
    assert body["object"] == "chat.completion"
    assert body["id"].startswith("chatcmpl-")
    assert body["model"] == served.engine.model
    assert body["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello to you."},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    usage = body["usage"]
    assert usage["completion_tokens"] == 3
    assert usage["total_tokens"] == usage["prompt_tokens"] + 3
    assert usage["prompt_tokens_details"] == {"cached_tokens": 0}
    assert "caesura" not in body
    assert served.engine.open_sessions == 0


async def test_session_of_a_client_without_server_tools_does_not_pause(serve_script, weather):
    served = await serve_script(["Yes."])
    await served.chat(tools=[weather])
    spec = served.engine.sessions[0].spec
    assert spec.pausing is False
    function = weather["function"] | {}
    del function["strict"]
    assert spec.tools == [{"type": "function", "function": function}]


async def test_stream(serve_script):
    served = await serve_script(["Hello to you."])
    events = await served.events()
    first, *_, last, done = events
    assert first["object"] == "chat.completion.chunk"
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert joined(events) == "Hello to you."
    assert last["choices"][0] == {
        "index": 0,
        "delta": {},
        "logprobs": None,
        "finish_reason": "stop",
    }
    assert done == "[DONE]"
    assert all("usage" not in event for event in events[:-1])
    assert len({event["id"] for event in events[:-1]}) == 1


async def test_stream_with_usage(serve_script):
    served = await serve_script(["Hello to you."])
    *chunks, usage, _ = await served.events(stream_options={"include_usage": True})
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 3
    assert all(chunk["usage"] is None for chunk in chunks)


async def test_empty_answer_still_opens_the_stream(serve_script):
    served = await serve_script([""])
    first, last, done = await served.events()
    assert first["choices"][0]["delta"]["role"] == "assistant"
    assert last["choices"][0]["finish_reason"] == "stop"
    assert done == "[DONE]"


async def test_length(serve_script):
    served = await serve_script(["one two three four", "one two three four"])
    _, body = await served.chat(max_tokens=3, max_completion_tokens=2)
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["choices"][0]["message"]["content"] == "one two"
    events = await served.events(max_tokens=2)
    assert events[-2]["choices"][0]["finish_reason"] == "length"


async def test_client_tool_call(serve_script, weather):
    served = await serve_script([calls(call("weather", city="Oslo"), text="Let me look.")])
    _, body = await served.chat(tools=[weather])
    choice = body["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Let me look."
    [shown] = choice["message"]["tool_calls"]
    assert shown["type"] == "function"
    assert shown["function"] == {"name": "weather", "arguments": '{"city": "Oslo"}'}


async def test_calls_without_text_have_null_content_and_ids_of_their_own(serve_script, weather):
    served = await serve_script([calls(call("weather"), call("weather"))] * 2)
    ids = set()
    for _ in range(2):
        _, body = await served.chat(tools=[weather])
        message = body["choices"][0]["message"]
        assert message["content"] is None
        ids |= {shown["id"] for shown in message["tool_calls"]}
    assert len(ids) == 4


async def test_streamed_client_tool_calls(serve_script, weather):
    script = [calls(call("weather", city="Oslo"), call("weather", city="Bergen"))]
    served = await serve_script(script)
    events = await served.events(tools=[weather])
    deltas = [
        delta
        for event in events[:-1]
        for delta in event["choices"][0]["delta"].get("tool_calls", [])
    ]
    for index, city in enumerate(["Oslo", "Bergen"]):
        opening, *rest = [delta for delta in deltas if delta["index"] == index]
        assert opening["id"] and opening["type"] == "function"
        assert opening["function"] == {"name": "weather", "arguments": ""}
        assert len(rest) > 1, "arguments come in pieces"
        arguments = "".join(delta["function"]["arguments"] for delta in rest)
        assert arguments == f'{{"city": "{city}"}}'
        assert all("id" not in delta for delta in rest)
    assert events[-2]["choices"][0]["finish_reason"] == "tool_calls"


async def test_call_of_a_tool_that_nobody_has_is_the_clients(serve_script, weather, double):
    served = await serve_script([call("double", number=2)], [double])
    _, body = await served.chat(tools=[weather])
    choice = body["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "double"
    assert "caesura" not in body


async def test_malformed_call_goes_to_the_client_as_the_model_wrote_it(serve_script, weather):
    named = malformed("weather(Oslo", "no closing bracket", "weather")
    served = await serve_script([named, malformed("[[?", "no name")])
    _, body = await served.chat(tools=[weather])
    assert body["choices"][0]["finish_reason"] == "tool_calls"
    shown = body["choices"][0]["message"]["tool_calls"][0]
    assert shown["function"] == {"name": "weather", "arguments": "weather(Oslo"}
    _, body = await served.chat(tools=[weather])
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["choices"][0]["message"]["content"] == "[[?"


async def test_text_that_would_break_a_line_of_the_stream(serve_script):
    text = "a\n\nb\r\nc\u2028d\u0085e é 😀"
    engine = ScriptedEngine([text], model="tiny/scripted", piece_characters=3)
    served = await serve_script(engine)
    assert joined(await served.events()) == text


async def test_models(serve_script):
    served = await serve_script([])
    async with served.http.get("/v1/models") as response:
        listed = await response.json()
    [model] = listed["data"]
    assert listed["object"] == "list"
    assert model["id"] == served.engine.model
    assert model["object"] == "model"
    assert model["max_model_len"] == served.engine.context_tokens
    for path in ("tiny/scripted", "tiny%2Fscripted"):
        async with served.http.get(f"/v1/models/{path}") as response:
            assert await response.json() == model


async def test_models_have_the_fields_of_vllms_list(serve_script):
    served = await serve_script([])
    async with served.http.get("/v1/models") as response:
        [model] = (await response.json())["data"]
    assert set(model) == set(ModelCard(id="x").model_dump())
    assert ModelCard.model_validate(model).max_model_len == served.engine.context_tokens


async def test_health(serve_script):
    served = await serve_script([])
    async with served.http.get("/health") as response:
        assert (response.status, await response.json()) == (200, {"status": "ok"})
    await served.engine.close()
    async with served.http.get("/health") as response:
        assert response.status == 503
        assert (await response.json())["error"]["code"] == "engine_failed"


async def test_reasoning_stands_beside_the_content(serve_script):
    served = await serve_script([think("Two and two.", say("It is 4."))])
    _, body = await served.chat()
    assert body["choices"][0]["message"] == {
        "role": "assistant",
        "content": "It is 4.",
        "reasoning": "Two and two.",
        "reasoning_content": "Two and two.",
    }
    assert body["usage"]["completion_tokens"] == 6
    assert body["usage"]["completion_tokens_details"] == {"reasoning_tokens": 3}


async def test_reasoning_streams_before_the_content(serve_script):
    served = await serve_script([think("Two and two.", say("It is 4."))])
    events = await served.events()
    for name in ("reasoning", "reasoning_content"):
        assert joined(events, name) == "Two and two."
    assert joined(events) == "It is 4."
    deltas = [event["choices"][0]["delta"] for event in events[:-1] if event["choices"]]
    assert not any(delta.get("content") and delta.get("reasoning") for delta in deltas)


async def test_reasoning_of_several_turns_is_one_text(serve_script, double):
    script = [think("First.", call("double", number=2)), think("Then.", say("4."))]
    served = await serve_script(script, [double])
    _, body = await served.chat(server_tools=["double"])
    message = body["choices"][0]["message"]
    assert (message["reasoning"], message["content"]) == ("First.\n\nThen.", "4.")


async def test_reasoning_is_left_out_if_the_client_wants_none(serve_script):
    served = await serve_script([think("Two and two.", say("It is 4."))])
    _, body = await served.chat(include_reasoning=False)
    assert body["choices"][0]["message"] == {"role": "assistant", "content": "It is 4."}
    assert body["usage"]["completion_tokens_details"] == {"reasoning_tokens": 3}
