"""What constrains an answer beside server tools: tool choices, formats, log probabilities."""

import pytest

from caesura.runtime.errors import EngineFailed
from caesura.runtime.testing import ScriptedEngine, call, calls, fail
from caesura.scheduler.messages import CallRule, TextFormat
from tests.kit.waiting import until

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "one", "schema": SCHEMA, "strict": True}}


def named(name):
    return {"type": "function", "function": {"name": name}}


def allowed(mode, *names):
    tools = [named(name) for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def choice(body):
    [only] = body["choices"]
    return only


async def rules(served, **fields):
    """The rule of the calls of each turn of a request."""
    status, body = await served.chat(**fields)
    assert status == 200, body
    return [sampling.calls for sampling in served.engine.sessions[-1].samplings]


async def test_a_call_is_required_until_one_was_made(serve_script, double):
    served = await serve_script([call("double", number=1), "Two."], [double])
    first, second = await rules(served, server_tools=["double"], tool_choice="required")
    assert first == CallRule(required=True)
    assert second == CallRule()


async def test_a_named_server_tool_is_forced_once(serve_script, double):
    served = await serve_script([call("double", number=1), "Two."], [double])
    first, second = await rules(served, server_tools=["double"], tool_choice=named("double"))
    assert (first.required, second.required) == (True, False)


async def test_allowed_tools_stay_allowed(serve_script, double, weather):
    served = await serve_script([call("double", number=1), "Two."], [double])
    fields = {"tools": [weather], "server_tools": ["double"]}
    turns = await rules(served, tool_choice=allowed("required", "double"), **fields)
    assert [turn.names for turn in turns] == [("double",)] * 2
    assert [turn.required for turn in turns] == [True, False]
    shown = served.engine.sessions[-1].spec.tools
    assert [tool["function"]["name"] for tool in shown] == ["weather", "double"]


async def test_strict_tools_and_single_calls(serve_script, double, weather):
    loose = {"type": "function", "function": {"name": "loose"}}
    served = await serve_script(["Fine."] * 2, [double])
    fields = {"tools": [weather, loose], "server_tools": ["double"]}
    [rule] = await rules(served, parallel_tool_calls=False, **fields)
    assert rule == CallRule(single=True, strict=frozenset({"weather"}))
    [rule] = await rules(served, server_tools=["double"], parallel_tool_calls=True)
    assert rule is None


@pytest.mark.parametrize(
    "fields",
    [
        {"tool_choice": "required"},
        {"tool_choice": allowed("auto", "other"), "server_tools": ["double"]},
        {"tool_choice": {"type": "custom", "custom": {"name": "x"}}, "server_tools": ["double"]},
    ],
)
async def test_choices_that_cannot_be_kept(serve_script, double, fields):
    served = await serve_script([], [double])
    status, body = await served.chat(**fields)
    assert (status, body["error"]["param"]) == (400, "tool_choice")


async def test_a_format_holds_on_every_turn(serve_script, double):
    served = await serve_script([call("double", number=1), '{"a": 2}'], [double])
    status, body = await served.chat(server_tools=["double"], response_format=FORMAT)
    assert (status, choice(body)["message"]["content"]) == (200, '{"a": 2}')
    texts = [sampling.text for sampling in served.engine.sessions[0].samplings]
    assert texts == [TextFormat("json_schema", SCHEMA)] * 2


async def test_finish_reasons(serve_script, weather):
    turns = [call("weather", city="Oslo")] * 3 + ["Fine."]
    served = await serve_script(turns)

    async def reason(**fields):
        _, body = await served.chat(tools=[weather], **fields)
        return choice(body)["finish_reason"]

    assert await reason() == "tool_calls"
    assert await reason(tool_choice="required") == "tool_calls"
    assert await reason(tool_choice=named("weather")) == "stop"
    assert await reason() == "stop"


async def test_logprobs_of_the_whole_answer(serve_script, double):
    served = await serve_script([call("double", number=1), "It is two."], [double])
    fields = {"server_tools": ["double"], "logprobs": True, "top_logprobs": 1}
    _, body = await served.chat(**fields)
    content = choice(body)["logprobs"]["content"]
    assert "".join(token["token"] for token in content) == "It is two."
    token = content[0]
    bare = {"token": "It is ", "logprob": 0.0, "bytes": list(b"It is ")}
    assert token == bare | {"top_logprobs": [bare]}


async def test_logprobs_beside_the_deltas_of_a_stream(serve_script):
    served = await serve_script(["It is two."] * 2)
    chunks = (await served.events(logprobs=True))[:-1]
    pieces = [
        (chunk["choices"][0]["delta"]["content"], chunk["choices"][0]["logprobs"])
        for chunk in chunks
        if chunk["choices"][0]["delta"].get("content")
    ]
    assert "".join(text for text, _ in pieces) == "It is two."
    for text, logprobs in pieces:
        [token] = logprobs["content"]
        assert (token["token"], token["top_logprobs"]) == (text, [])
    _, body = await served.chat()
    assert choice(body)["logprobs"] is None


async def test_logprobs_through_the_openai_client(serve_script):
    served = await serve_script(["Fine."])
    answer = await served.openai.chat.completions.create(
        model=served.engine.model,
        messages=[{"role": "user", "content": "Hello"}],
        logprobs=True,
    )
    assert [token.token for token in answer.choices[0].logprobs.content] == ["Fine."]


async def test_settings_of_the_session(serve_script):
    served = await serve_script(["lo."])
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hel"}]
    status, body = await served.chat(
        messages=messages,
        continue_final_message=True,
        add_generation_prompt=False,
        cache_salt="mine",
        priority=2,
        reasoning_effort="low",
    )
    assert (status, choice(body)["message"]["content"]) == (200, "lo.")
    spec = served.engine.sessions[0].spec
    assert (spec.prefill, spec.cache_salt, spec.priority) == (True, "mine", 2)
    assert spec.template == {"reasoning_effort": "low", "enable_thinking": True}


async def test_a_script_keeps_to_the_rule_of_its_turn(serve_script, double):
    """The scripted engine refuses what a real one could not write."""
    script = [calls(call("double", number=1), call("double", number=2))]
    served = await serve_script(script, [double])
    status, _ = await served.chat(server_tools=["double"], parallel_tool_calls=False)
    assert status == 500


async def test_several_choices(serve_script, double):
    """Each choice has a session, a seed and calls of its own; the prompt counts once."""
    scripts = [[call("double", number=2), "Four."], ["Maybe five."]]
    engine = ScriptedEngine(sessions=scripts, model="m")
    served = await serve_script(engine, [double])
    fields = {"n": 2, "seed": 7, "server_tools": ["double"], "model": "m"}
    status, body = await served.chat(**fields)
    assert status == 200
    said = [(one["index"], one["message"]["content"]) for one in body["choices"]]
    assert said == [(0, "Four."), (1, "Maybe five.")]
    first, second = body["choices"]
    assert [one["name"] for one in first["caesura"]["calls"]] == ["double"]
    assert "caesura" not in second and "caesura" not in body
    assert [session.samplings[0].seed for session in engine.sessions] == [7, 8]
    await until(lambda: not engine.open_sessions)
    # "Hello" is one scripted token, and the tool's result another; the call has three.
    assert body["usage"]["prompt_tokens"] == 1 + 1
    assert body["usage"]["completion_tokens"] == 3 + 1 + 2


async def test_choices_of_a_stream_are_interleaved_by_index(serve_script):
    served = await serve_script(
        ScriptedEngine(sessions=[["One two three."], ["Four five six."]], model="m")
    )
    chunks = (await served.events(n=2, model="m", stream_options={"include_usage": True}))[:-1]
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["prompt_tokens"] == 1
    texts, roles, reasons = ["", ""], [0, 0], [None, None]
    for chunk in chunks[:-1]:
        [one] = chunk["choices"]
        texts[one["index"]] += one["delta"].get("content") or ""
        roles[one["index"]] += "role" in one["delta"]
        reasons[one["index"]] = one["finish_reason"] or reasons[one["index"]]
    assert texts == ["One two three.", "Four five six."]
    assert roles == [1, 1]
    assert reasons == ["stop", "stop"]


async def test_an_error_of_one_choice_ends_the_request(serve_script):
    engine = ScriptedEngine(sessions=[["Fine."], [fail(EngineFailed("dead"))]], model="m")
    served = await serve_script(engine)
    status, body = await served.chat(n=2, model="m")
    assert (status, body["error"]["code"]) == (503, "engine_failed")
    assert engine.open_sessions == 0


async def test_the_first_choice_fails_before_the_others_begin(serve_script):
    engine = ScriptedEngine(sessions=[[fail(EngineFailed("dead"))], ["Fine."]], model="m")
    served = await serve_script(engine)
    status, _ = await served.chat(n=2, model="m")
    assert status == 503
    assert engine.open_sessions == 0
