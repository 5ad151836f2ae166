"""Tools that the server runs inside a request."""

import pytest

from caesura.runtime.run.limits import Limits
from caesura.runtime.testing import ScriptedEngine, call, calls, inline, malformed


def content(events):
    chunks = [event for event in events if isinstance(event, dict) and event["choices"]]
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)


async def test_server_tool_runs_inside_the_request(serve_script, double):
    served = await serve_script([call("double", number=21), "It is 42."], [double])
    _, body = await served.chat(server_tools=["double"])
    assert body["choices"][0]["message"] == {"role": "assistant", "content": "It is 42."}
    assert body["choices"][0]["finish_reason"] == "stop"
    [ran] = body["caesura"]["calls"]
    seconds = ran.pop("seconds")
    assert 0 <= seconds < 5
    assert ran == {
        "name": "double",
        "arguments": '{"number": 21}',
        "content": "42",
        "error": None,
        "artifacts": [],
    }
    [resume] = body["caesura"]["resumes"]
    assert set(resume) == {
        "handling",
        "pause_seconds",
        "queue_seconds",
        "context_tokens",
        "cached_tokens",
        "loaded_tokens",
    }
    [session] = served.engine.sessions
    assert session.spec.pausing and len(session.turns) == 2
    assert session.spec.tools == [double.spec()]
    assert served.engine.open_sessions == 0


async def test_nothing_is_kept_for_a_follow_up_of_an_answer_that_is_complete(serve_script, double):
    served = await serve_script([call("double", number=1), "2"], [double])
    await served.chat(server_tools=["double"])
    assert [one.follow_up for one in served.engine.sessions] == [False]


async def test_stream_goes_on_after_the_tool_and_shows_no_call(serve_script, double):
    script = [calls(call("double", number=21), text="Let me see."), "It is 42."]
    served = await serve_script(script * 2, [double])
    events = await served.events(server_tools=["double"])
    assert content(events) == "Let me see.\n\nIt is 42."
    assert not any("tool_calls" in event["choices"][0]["delta"] for event in events[:-1])
    assert events[-2]["choices"][0]["finish_reason"] == "stop"
    [extra] = [event["caesura"] for event in events[:-1] if "caesura" in event]
    assert extra is events[-2]["caesura"]
    _, body = await served.chat(server_tools=["double"])
    assert body["choices"][0]["message"]["content"] == content(events)
    for told in (extra, body["caesura"]):  # a stream's client learns what ran, and of the files
        [ran] = told["calls"]
        assert (ran["name"], ran["content"], ran["artifacts"]) == ("double", "42", [])
        assert len(told["resumes"]) == 1


async def test_sentence_around_an_inline_call_stays_one(serve_script, double):
    served = await serve_script([inline("It is ", "double", number=21), "42."], [double])
    assert content(await served.events(server_tools=["double"])) == "It is 42."


async def test_usage_covers_the_whole_request(serve_script, double):
    served = await serve_script([call("double", number=21), "It is 42."], [double])
    _, body = await served.chat(server_tools=["double"])
    usage = body["usage"]
    # "Hello" and the result "42"; `double {"number": 21}` and the answer.
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (2, 6)
    # The context that the resume found again is no part of the client's prompt.
    assert usage["prompt_tokens_details"]["cached_tokens"] == 0


async def test_calls_are_told_in_call_order_with_their_errors(serve_script, double, hanging):
    script = [
        calls(call("hang"), call("double", number="x"), call("nothing"), malformed("{", "broken")),
        "Done.",
    ]
    served = await serve_script(script, [double, hanging.tool])
    hanging.released.set()
    _, body = await served.chat(server_tools=["double", "hang"])
    ran = body["caesura"]["calls"]
    assert [each["name"] for each in ran][:3] == ["hang", "double", "nothing"]
    assert [each["error"] for each in ran] == [
        None,
        "invalid_arguments",
        "unknown_tool",
        "malformed_call",
    ]


async def test_tool_that_was_not_named_cannot_be_reached(serve_script, double, hanging):
    served = await serve_script([call("hang"), "Well."], [double, hanging.tool])
    _, body = await served.chat(server_tools=["double"])
    assert body["caesura"]["calls"][0]["error"] == "unknown_tool"
    assert not hanging.started.is_set()


async def test_client_and_server_tools_together(serve_script, double, weather):
    script = [call("double", number=1), calls(call("weather", city="Oslo"), text="Looking.")]
    served = await serve_script(script * 2, [double])
    _, body = await served.chat(server_tools=["double"], tools=[weather])
    choice = body["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    [shown] = choice["message"]["tool_calls"]
    assert shown["function"] == {"name": "weather", "arguments": '{"city": "Oslo"}'}
    assert [ran["name"] for ran in body["caesura"]["calls"]] == ["double"]
    events = await served.events(server_tools=["double"], tools=[weather])
    deltas = [
        delta
        for event in events[:-1]
        for delta in event["choices"][0]["delta"].get("tool_calls", [])
    ]
    assert deltas[0]["function"] == {"name": "weather", "arguments": ""}
    assert "".join(d["function"]["arguments"] for d in deltas) == '{"city": "Oslo"}'
    assert {delta["index"] for delta in deltas} == {0}
    assert [one.follow_up for one in served.engine.sessions] == [True, True]


async def test_malformed_call_of_a_client_tool_is_retried_in_the_request(
    serve_script, double, weather
):
    script = [malformed("weather(", "broken", "weather"), call("weather", city="Oslo")]
    served = await serve_script(script, [double])
    events = await served.events(server_tools=["double"], tools=[weather])
    openings = [
        delta
        for event in events[:-1]
        for delta in event["choices"][0]["delta"].get("tool_calls", [])
        if "id" in delta
    ]
    assert len(openings) == 1


async def test_unknown_server_tool(serve_script, double):
    served = await serve_script([], [double])
    status, body = await served.chat(server_tools=["dobule"])
    assert status == 400
    assert body["error"]["param"] == "server_tools"
    assert "known tools: double" in body["error"]["message"]
    assert not served.engine.sessions


async def test_name_clash(serve_script, double):
    served = await serve_script(["Fine."], [double])
    status, body = await served.chat(tools=[double.spec()], server_tools=["double"])
    assert status == 400
    assert body["error"]["param"] == "tools[0].function.name"
    status, _ = await served.chat(tools=[double.spec()])
    assert status == 200, "a server's tool that is not named is in nobody's way"
    status, body = await served.chat(tools=[double.spec()] * 2)
    assert (status, body["error"]["param"]) == (400, "tools[1].function.name")


async def test_token_limit_covers_the_whole_request(serve_script, double):
    script = [call("double", number=1), "one two three four five"]
    served = await serve_script([*script, script[0]], [double])
    _, body = await served.chat(server_tools=["double"], max_tokens=5)
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["choices"][0]["message"]["content"] == "one two"
    # The call alone uses the limit up: nothing is left to go on with after it.
    _, body = await served.chat(server_tools=["double"], max_tokens=3)
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"]["completion_tokens"] == 3


async def test_turn_limit_is_an_error(serve_script, double):
    looping = [call("double", number=1)] * 3
    served = await serve_script(looping, [double], limits=Limits(max_turns=2))
    status, body = await served.chat(server_tools=["double"])
    assert status == 422
    assert body["error"]["type"] == "limit_reached"
    assert body["error"]["code"] == "max_turns"


async def test_time_limit_cancels_the_tool(serve_script, hanging):
    for seconds in (0.05, 0.5, 5.0, 30.0):
        limits = Limits(max_seconds=seconds)
        served = await serve_script([call("hang")], [hanging.tool], limits=limits)
        status, body = await served.chat(server_tools=["hang"])
        assert (status, body["error"]["code"]) == (422, "max_seconds")
        if hanging.started.is_set():
            break  # on a busy machine the time may be over before the tool begins
    assert hanging.cancelled.is_set()
    assert served.engine.open_sessions == 0


async def test_stream_is_kept_alive_while_a_tool_runs(serve_script, hanging):
    served = await serve_script([call("hang"), "Done."], [hanging.tool], keep_alive_seconds=0.02)
    body = served.body(stream=True, server_tools=["hang"])
    async with served.http.post("/v1/chat/completions", json=body) as response:
        for _ in range(2):
            assert await response.content.readuntil(b"\n\n") == b": keep-alive\n\n"
        hanging.released.set()
        rest = await response.text()
    assert '"content":"Done."' in rest
    assert rest.endswith("data: [DONE]\n\n")


async def test_tool_choice(serve_script, double, weather):
    turns = [call("weather", city="Oslo"), "Fine.", call("weather", city="Oslo")]
    turns += [call("double", number=1), "Fine."]
    served = await serve_script(turns, [double])
    both = {"tools": [weather], "server_tools": ["double"]}

    async def spec(choice):
        status, _ = await served.chat(tool_choice=choice, parallel_tool_calls=False, **both)
        assert status == 200
        spec = served.engine.sessions[-1].spec
        names = [shown["function"]["name"] for shown in spec.tools]
        return names, spec.tool_choice, spec.pausing

    def named(name):
        return {"type": "function", "function": {"name": name}}

    assert await spec("required") == (["weather", "double"], "auto", True)
    assert await spec("none") == (["weather", "double"], "none", False)
    assert await spec(named("weather")) == (["weather"], "auto", False)
    assert await spec(named("double")) == (["double"], "auto", True)
    status, body = await served.chat(tool_choice=named("other"), **both)
    assert (status, body["error"]["param"]) == (400, "tool_choice")


@pytest.mark.parametrize("asked", [None, 40])
async def test_the_operators_bound_holds_for_all_turns_of_a_run(serve_script, double, asked):
    script = [call("double", number=21), "one two three four five six"]
    engine = ScriptedEngine(script * 4, model="tiny/scripted", max_answer_tokens=5)
    served = await serve_script(engine, [double])
    limit = {} if asked is None else {"max_tokens": asked}
    _, body = await served.chat(server_tools=["double"], **limit)
    assert body["usage"]["completion_tokens"] == 5
    assert body["choices"][0]["finish_reason"] == "length"
    said = {"model": "tiny/scripted", "server_tools": ["double"]}
    hello = [{"role": "user", "content": "Hello"}]
    others = {
        "/v1/responses": {"input": "Hello", "max_output_tokens": asked},
        "/v1/messages": {"messages": hello, "max_tokens": asked or 40},
    }
    for path, fields in others.items():
        async with served.http.post(path, json=said | fields) as response:
            body = await response.json()
            assert response.status == 200, body
            assert body["usage"]["output_tokens"] == 5


async def test_an_adapter_answers_by_its_name_on_all_routes(serve_script, double):
    engine = ScriptedEngine(["Yes."] * 5, model="tiny/scripted", adapters=["law"])
    served = await serve_script(engine, [double])
    hello = [{"role": "user", "content": "Hello"}]
    asked = {
        "/v1/chat/completions": {"messages": hello},
        "/v1/messages": {"messages": hello, "max_tokens": 9},
        "/v1/responses": {"input": "Hello"},
        "/v1/responses/compact": {"input": "Hello"},
    }
    for path, fields in asked.items():
        body = {"model": "law", "server_tools": ["double"], **fields}
        if path.endswith("compact"):
            del body["server_tools"]
        async with served.http.post(path, json=body) as response:
            answer = await response.json()
            assert response.status == 200, answer
            assert answer.get("model", "law") == "law"
    assert [each.spec.adapter for each in engine.sessions] == ["law"] * 4
    await served.chat()
    assert engine.sessions[-1].spec.adapter is None
    async with served.http.get("/v1/models/law") as response:
        card = await response.json()
        assert (card["id"], card["parent"]) == ("law", "tiny/scripted")
    async with served.http.get("/v1/models") as response:
        listed = (await response.json())["data"]
        assert [each["id"] for each in listed] == ["tiny/scripted", "law"]
    status, body = await served.chat(model="medicine")
    assert (status, body["error"]["code"]) == (404, "model_not_found")
    assert "'tiny/scripted', 'law' are" in body["error"]["message"]


async def test_a_model_of_several_names_answers_by_each(serve_script, double):
    engine = ScriptedEngine(["Yes."] * 6, model="first", aliases=["second"])
    served = await serve_script(engine, [double])
    hello = [{"role": "user", "content": "Hello"}]
    asked = {
        "/v1/chat/completions": {"messages": hello, "server_tools": ["double"]},
        "/v1/messages": {"messages": hello, "max_tokens": 9},
        "/v1/responses": {"input": "Hello"},
    }
    for path, fields in asked.items():
        for name in ("first", "second"):
            async with served.http.post(path, json={"model": name, **fields}) as response:
                answer = await response.json()
                assert (response.status, answer["model"]) == (200, name)
    assert [each.spec.adapter for each in engine.sessions] == [None] * 6
    async with served.http.get("/v1/models") as response:
        listed = (await response.json())["data"]
    assert [(each["id"], each["parent"]) for each in listed] == [("first", None), ("second", None)]
    status, body = await served.chat(model="third")
    assert (status, body["error"]["code"]) == (404, "model_not_found")
    assert "'first', 'second' are" in body["error"]["message"]
