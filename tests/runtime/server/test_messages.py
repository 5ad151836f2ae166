"""`/v1/messages`, as the wire shows it: shapes, blocks, events, server tools and follow-ups."""

import asyncio
import base64
import json
from typing import Any

import pytest
from starlette.responses import JSONResponse

from caesura.runtime.errors import ContextOverflow, EngineFailed
from caesura.runtime.testing import (
    Calls,
    ScriptedEngine,
    call,
    calls,
    fail,
    inline,
    malformed,
    say,
    think,
)
from caesura.scheduler.messages import CallRule, TextFormat
from caesura.scheduler.vllm_server import VllmServer
from caesura.tools.people import People, with_approval
from tests.kit.server import MODEL, counted
from tests.kit.waiting import until
from tests.runtime.server.said import HELLO, WEATHER


def body(**fields: Any) -> dict[str, Any]:
    """A valid request, with `fields` over it; a field that is ... is left out."""
    whole = {"model": MODEL, "max_tokens": 100, "messages": [HELLO]} | fields
    return {name: value for name, value in whole.items() if value is not ...}


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "citations": None}


async def ask(served: Any, headers: Any = None, **fields: Any) -> tuple[int, dict[str, Any]]:
    """POST a request; the status and the parsed answer."""
    async with served.http.post("/v1/messages", json=body(**fields), headers=headers) as response:
        return response.status, await response.json()


async def stream(served: Any, **fields: Any) -> list[dict[str, Any]]:
    """POST a streamed request; its events, whose names are their types."""
    async with served.http.post("/v1/messages", json=body(stream=True, **fields)) as response:
        assert response.status == 200, await response.text()
        assert response.content_type == "text/event-stream"
        blocks = (await response.text()).removesuffix("\n\n").split("\n\n")
    events = []
    for block in blocks:
        name, data = block.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


def put_together(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that a client makes of a stream, which must be well-formed."""
    first, *middle, delta, last = [event for event in events if event["type"] != "ping"]
    assert (first["type"], delta["type"]) == ("message_start", "message_delta")
    assert last == {"type": "message_stop"}
    usage = first["message"]["usage"] | delta["usage"]
    message = first["message"] | delta["delta"] | {"usage": usage}
    content, texts = message["content"], []
    for event in middle:
        kind = event["type"].removeprefix("content_block_")
        assert event["index"] == len(content) - (kind != "start")
        if kind == "start":
            texts = []
            content.append(event["content_block"])
        elif kind == "delta":
            delta_ = event["delta"]
            if delta_["type"] == "signature_delta":
                content[-1]["signature"] = delta_["signature"]
                continue
            kinds = ("text", "thinking", "partial_json")
            texts.append(next(delta_[name] for name in kinds if name in delta_))
        elif content[-1]["type"] in ("text", "thinking"):
            content[-1][content[-1]["type"]] = "".join(texts)
        else:
            content[-1]["input"] = json.loads("".join(texts))
    if "caesura" in delta:
        message["caesura"] = delta["caesura"]
    return message


async def test_tokens_are_counted_where_the_messages_stand(serve_script):
    served = await serve_script([])
    body = {"model": served.body()["model"], "messages": [{"role": "user", "content": "Hello"}]}
    counts = []
    late = [{"role": "user", "content": "Hello"}, {"role": "system", "content": "Be brief."}]
    for fields in ({}, {"messages": late}, {"max_tokens": 7}):
        async with served.http.post("/v1/messages/count_tokens", json=body | fields) as response:
            assert response.status == 200, await response.text()
            counts.append((await response.json())["input_tokens"])
    assert counts[1] > counts[0] == counts[2] > 0
    for wrong, words in (({"messages": 7}, "messages: "), ({"thread": {}}, "thread is not")):
        async with served.http.post("/v1/messages/count_tokens", json=body | wrong) as response:
            error = (await response.json())["error"]
            assert (response.status, error["type"]) == (400, "invalid_request_error")
            assert error["message"].startswith(words)


async def test_a_whole_answer(serve_script):
    served = await serve_script(["Hello to you."])
    status, answer = await ask(served)
    assert status == 200
    assert answer.pop("id").startswith("msg_")
    assert answer == {
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [text_block("Hello to you.")],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 1,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 3,
            "output_tokens_details": {"thinking_tokens": 0},
            "cache_creation": None,
            "inference_geo": None,
            "server_tool_use": None,
            "service_tier": None,
        },
        "container": None,
        "stop_details": None,
    }
    assert served.engine.open_sessions == 0


SCRIPTS = {
    "text": (["one two three"], {}),
    "nothing": ([""], {}),
    "calls": ([calls(call("weather", city="Ulm"), call("weather"), text="Well. ")], {}),
    "length": (["one two three"], {"max_tokens": 2}),
    "stop text": (["one two three"], {"stop_sequences": ["three", " two"]}),
    "malformed": ([malformed("weather(", "no bracket", "weather")], {}),
    "server tool": (
        [calls(call("double", number=2), text="Let me see."), "It is 4."],
        {"server_tools": ["double"]},
    ),
    "both": (
        [call("double", number=2), call("weather", city="Ulm")],
        {"server_tools": ["double"]},
    ),
    "in mid sentence": (
        [inline("It is ", "double", number=2), "4."],
        {"server_tools": ["double"]},
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
async def test_a_stream_says_the_same_as_a_whole_answer(serve_script, double, name):
    script, fields = SCRIPTS[name]
    served = await serve_script([*script, *script], [double])
    _, whole = await ask(served, tools=[WEATHER], **fields)
    streamed = put_together(await stream(served, tools=[WEATHER], **fields))
    for answer in (whole, streamed):
        del answer["id"]
        for block in answer["content"]:
            block.pop("id", None)
        for made in answer.get("caesura", {}).get("calls", ()):
            del made["seconds"]
    assert streamed == whole


async def test_calls_of_the_clients_tools(serve_script):
    made = calls(call("weather", city="Ulm"), call("weather", city="Bonn"), text="Let me look.")
    served = await serve_script([made])
    _, answer = await ask(served, tools=[WEATHER])
    text, *used = answer["content"]
    assert text == text_block("Let me look.")
    assert [block["input"] for block in used] == [{"city": "Ulm"}, {"city": "Bonn"}]
    assert {(block["type"], block["name"]) for block in used} == {("tool_use", "weather")}
    assert len({block["id"] for block in used}) == 2
    assert answer["stop_reason"] == "tool_use"
    assert served.engine.sessions[0].follow_up
    [shown] = served.engine.sessions[0].spec.tools
    assert shown["function"]["parameters"] == WEATHER["input_schema"]


async def test_a_stop_text_and_a_limit(serve_script):
    served = await serve_script(["one two three", "one two three"])
    _, answer = await ask(served, stop_sequences=["three", " two"])
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("stop_sequence", " two")
    assert answer["content"] == [text_block("one")]
    _, answer = await ask(served, max_tokens=2)
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("max_tokens", None)


async def test_server_tools_run_within_the_request(serve_script, double):
    script = [calls(call("double", number=2), text="Let me see."), "It is 4."]
    served = await serve_script(script, [double])
    _, answer = await ask(served, server_tools=["double"])
    assert answer["content"] == [text_block("Let me see.\n\nIt is 4.")]
    assert answer["stop_reason"] == "end_turn"
    [made] = answer["caesura"]["calls"]
    assert (made["name"], made["content"]) == ("double", "4")
    assert len(answer["caesura"]["resumes"]) == 1


async def test_a_limit_between_two_turns_cuts_the_answer(serve_script, double):
    served = await serve_script([call("double", number=2)], [double])
    _, answer = await ask(served, server_tools=["double"], max_tokens=3)
    assert answer["stop_reason"] == "max_tokens"


async def test_a_history_of_blocks(serve_script):
    served = await serve_script(["Fine."])
    use = {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Köln"}}
    parts = [{"type": "text", "text": "rain", "cache_control": {"type": "ephemeral"}}] * 2
    results = [
        {"type": "text", "text": "So?"},
        {"type": "tool_result", "tool_use_id": "a", "content": parts},
        {"type": "tool_result", "tool_use_id": "b", "content": "no such city", "is_error": True},
        {"type": "tool_result", "tool_use_id": "c"},
    ]
    said = [
        {"type": "thinking", "thinking": "Hm.", "signature": "x"},
        {"type": "text", "text": "Let "},
        {"type": "text", "text": "me look."},
        use,
    ]
    system = [
        {"type": "text", "text": "x-anthropic-billing-header: cch=123"},
        {"type": "text", "text": "Be brief."},
        {"type": "text", "text": "Be kind."},
    ]
    messages = [
        HELLO,
        {"role": "assistant", "content": said},
        {"role": "user", "content": results},
        {"role": "system", "content": "Hurry."},
    ]
    status, answer = await ask(served, system=system, messages=messages, tools=[WEATHER])
    assert status == 200, answer
    function = {"name": "weather", "arguments": '{"city": "Köln"}'}
    assert served.engine.sessions[0].turns[0] == (
        {"role": "system", "content": "Be brief.\nBe kind."},
        {"role": "user", "content": "Hello"},
        {
            "role": "assistant",
            "content": "Let me look.",
            "reasoning": "Hm.",
            "tool_calls": [{"id": "a", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "a", "name": "weather", "content": "rain\nrain"},
        {"role": "tool", "tool_call_id": "b", "content": "error: no such city"},
        {"role": "tool", "tool_call_id": "c", "content": ""},
        {"role": "user", "content": "So?"},
        {"role": "system", "content": "Hurry."},
    )


def base64_of(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("block", "told"),
    [
        (
            {"source": {"type": "text", "media_type": "text/plain", "data": "One.\nTwo."}},
            "One.\nTwo.",
        ),
        ({"title": "a.md", "source": {"type": "content", "content": "One."}}, "a.md:\nOne."),
        (
            {"context": "Old.", "title": "a.md", "source": {"type": "content", "content": [
                {"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]}},
            "a.md (Old.):\nOne.\nTwo.",
        ),
        (
            {"source": {"type": "base64", "media_type": "text/csv", "data": base64_of("é,1")}},
            "é,1",
        ),
        (
            {"type": "search_result", "source": "https://x.example", "title": "X",
             "content": [{"type": "text", "text": "One."}]},
            "X (https://x.example):\nOne.",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("in_result", [False, True])
async def test_documents_of_text_are_text(serve_script, block, told, in_result):
    served = await serve_script(["Hi."])
    block = {"type": "document", "citations": {"enabled": False}} | block
    use = {"type": "tool_use", "id": "a", "name": "weather", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": [block]}
    messages = [HELLO, {"role": "assistant", "content": [use]}, {"role": "user", "content": [
        result if in_result else block]}]  # fmt: skip
    status, answer = await ask(served, tools=[WEATHER], messages=messages)
    assert status == 200, answer
    assert served.engine.sessions[0].turns[0][-1]["content"] == told


async def test_blocks_of_hosted_tools_are_left_out_with_a_note(serve_script):
    served = await serve_script(["Hi."])
    blocks = [
        {"type": "text", "text": "I look."},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"type": "x"}]},
        {"type": "text", "text": " Found."},
    ]
    messages = [HELLO, {"role": "assistant", "content": blocks}, HELLO]
    status, answer = await ask(served, messages=messages)
    left = ["block server_tool_use", "block web_search_tool_result"]
    assert (status, answer["caesura"]["left_out"]) == (200, left)
    assert served.engine.sessions[0].turns[0][1]["content"] == "I look. Found."


async def test_a_last_answer_is_continued(serve_script):
    served = await serve_script(["re."])
    status, _ = await ask(served, messages=[HELLO, {"role": "assistant", "content": "He"}])
    assert status == 200
    assert served.engine.sessions[0].spec.prefill


async def test_settings_reach_the_engine(serve_script):
    served = await serve_script([call("weather")])
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    await ask(
        served,
        tools=[WEATHER | {"strict": True}],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
        thinking={"type": "disabled"},
        output_config={"effort": "low", "format": {"type": "json_schema", "schema": schema}},
        cache_salt="salt",
        service_tier="auto",
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    )
    session = served.engine.sessions[0]
    [sampling] = session.samplings
    assert sampling.text == TextFormat("json_schema", schema)
    assert sampling.calls == CallRule(required=True, single=True, strict=frozenset({"weather"}))
    assert session.spec.template == {"reasoning_effort": "low", "enable_thinking": False}
    assert session.spec.cache_salt == "salt"


@pytest.mark.parametrize("choice", ["none", "auto", "tool"])
async def test_tool_choices(serve_script, double, choice):
    forced = choice == "tool"
    served = await serve_script([call("weather") if forced else "No."], [double])
    named = {"name": "weather"} if forced else {}
    fields = {"tools": [WEATHER], "server_tools": ["double"]}
    _, answer = await ask(served, tool_choice={"type": choice} | named, **fields)
    assert answer["stop_reason"] == ("tool_use" if forced else "end_turn")
    spec = served.engine.sessions[0].spec
    assert spec.tool_choice == ("none" if choice == "none" else "auto")
    assert spec.pausing is (choice == "auto")
    assert len(spec.tools) == (1 if forced else 2)


@pytest.mark.parametrize("streams", [False, True])
async def test_a_follow_up_with_the_answer_is_spliced(serve_script, streams):
    made = Calls("Let me look.", [("weather", '{"b":1.50,  "city":"K\\u00f6ln"}')])
    served = await serve_script([made, "Rain."])
    if streams:
        answer = put_together(await stream(served, tools=[WEATHER]))
    else:
        _, answer = await ask(served, tools=[WEATHER])
    [use] = [block for block in answer["content"] if block["type"] == "tool_use"]
    result = {"type": "tool_result", "tool_use_id": use["id"], "content": "rain"}
    history = [
        HELLO,
        {"role": "assistant", "content": answer["content"]},
        {"role": "user", "content": [result]},
    ]
    _, after = await ask(served, messages=history, tools=[WEATHER])
    assert await counted(served) == {("spliced", "unchanged"): 1}
    assert after["usage"]["cache_read_input_tokens"] > 0
    assert after["usage"]["input_tokens"] < after["usage"]["cache_read_input_tokens"]


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("sends_back", [False, True])
async def test_thinking_is_a_block_that_may_come_back(serve_script, streams, sends_back):
    served = await serve_script([think("Two and two.", say("It is 4.")), "Yes."])
    answer = put_together(await stream(served)) if streams else (await ask(served))[1]
    thought, said = answer["content"]
    assert (thought["type"], thought["thinking"]) == ("thinking", "Two and two.")
    assert thought["signature"]
    assert said == text_block("It is 4.")
    content = answer["content"] if sends_back else [said]
    history = [HELLO, {"role": "assistant", "content": content}, {"role": "user", "content": "?"}]
    await ask(served, messages=history)
    assert await counted(served) == {("spliced", "unchanged"): 1}
    sent = served.engine.sessions[1].turns[0][1]
    assert sent.get("reasoning") == ("Two and two." if sends_back else None)


@pytest.mark.parametrize("streams", [False, True])
async def test_thinking_stands_between_text_and_calls(serve_script, double, streams):
    made = think("Ah.", calls(call("weather", city="Ulm"), text="So."))
    served = await serve_script([think("Hm.", call("double", number=1)), made], [double])
    fields = {"tools": [WEATHER], "server_tools": ["double"]}
    answer = put_together(await stream(served, **fields)) if streams else None
    answer = answer or (await ask(served, **fields))[1]
    shown = [(block["type"], block.get("thinking")) for block in answer["content"]]
    kinds = [("thinking", "Hm."), ("thinking", "Ah."), ("text", None), ("tool_use", None)]
    assert shown == kinds


async def test_thinking_that_is_switched_off_is_not_shown(serve_script):
    served = await serve_script([think("Two and two.", say("It is 4."))])
    _, answer = await ask(served, thinking={"type": "disabled"})
    assert answer["content"] == [text_block("It is 4.")]


async def test_a_follow_up_belongs_to_its_asker(serve_script):
    served = await serve_script(["Hi.", "Fine.", "Fine."])
    me, you = {"user_id": "me"}, {"user_id": "you"}
    await ask(served, metadata=me)
    history = [HELLO, {"role": "assistant", "content": "Hi."}, HELLO]
    await ask(served, messages=history, metadata=you)
    await ask(served, messages=history, metadata=me)
    assert await counted(served) == {("rendered", "unknown"): 1, ("spliced", "unchanged"): 1}


async def test_silence_is_broken_by_pings(serve_script, hanging):
    script = [call("hang"), "Done."]
    served = await serve_script(script, [hanging.tool], keep_alive_seconds=0.02)
    fields = body(server_tools=["hang"], stream=True)
    async with served.http.post("/v1/messages", json=fields) as response:
        ping = await response.content.readuntil(b"\n\n")
        assert ping == b'event: ping\ndata: {"type":"ping"}\n\n'
        hanging.released.set()
        assert b"message_stop" in await response.read()


async def test_a_stream_tells_what_waits_for_a_person(serve_script, tmp_path, double):
    people = People(tmp_path / "people.sqlite")
    script = [call("double", number=2), "It is 4."]
    served = await serve_script(script, [with_approval(double, people)], people=people)
    streaming = asyncio.create_task(stream(served, server_tools=["double"]))
    await until(lambda: people.waited_for)
    [waiting] = people.waited_for
    async with served.http.post(f"/v1/pending/{waiting.id}", json={"approve": True}) as response:
        assert response.status == 200
    events = await streaming
    pings = [event for event in events if event["type"] == "ping"]
    assert [ping["caesura"]["pending"]["id"] for ping in pings] == [waiting.id]
    assert put_together(events)["content"] == [text_block("It is 4.")]
    await people.aclose()


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"max_tokens": ...}, "max_tokens is missing."),
        ({"messages": []}, "messages must not be empty."),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0]: role must be one of"),
        (
            {"system": [{"type": "image", "source": {"type": "url", "url": "http://x"}}]},
            "system: a system prompt may hold text, not image",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
            "messages[0].content[0].source: an image's source must be of type base64",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "a",
              "name": "x", "input": {}}]}]},
            "messages[0]: content[0]: a message of role user may not hold tool_use",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]},
            "must have the field tool_use_id",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result",
              "tool_use_id": ""}]}]},
            "messages[0].content[0].tool_use_id must not be empty.",
        ),
        (
            {"messages": [HELLO, {"role": "assistant", "content": [{"type": "tool_use", "id": "a",
              "name": "x", "input": {}}]}]},
            "send their results behind it",
        ),
        ({"tools": [{"type": "wand_20250124", "name": "wand"}]}, "tools[0]: a tool of type 'wand_"),
        ({"tools": [{"type": "bash_20250124"}]}, "tools[0]: name is missing"),
        (
            {"messages": [{"role": "user", "content": [{"type": "document",
              "source": {"type": "base64", "media_type": "application/pdf",
                         "data": "JVBERg=="}}]}]},
            "messages[0].content[0]: only documents of text",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "document",
              "source": {"type": "url", "url": "https://x.example/a.txt"}}]}]},
            "messages[0].content[0]: a document's source",
        ),
        ({"tools": [WEATHER, WEATHER]}, "tools[1].name: there is already a tool"),
        ({"tool_choice": {"type": "any"}}, "the request has no tools"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice: name is missing"),
        ({"tool_choice": {"type": "tool", "name": "x"}}, "tool_choice names 'x'"),
        ({"thinking": {"type": "enabled", "budget_tokens": -1}}, "thinking.budget_tokens"),
        ({"container": "x"}, "container is not supported here"),
        ({"context_management": {"edits": [{"type": "clear_tool_uses"}]}}, "'clear_tool_uses'"),
        ({"context_management": {"edits": 5}}, "context_management.edits"),
        ({"context_management": {"edits": True}}, "context_management.edits"),
        ({"context_management": {"edits": {"type": "x"}}}, "context_management.edits"),
        ({"context_management": {"edits": [None]}}, "context_management.edits[0]"),
        ({"context_management": {"edits": ["x"]}}, "context_management.edits[0]"),
        ({"context_management": 5}, "context_management"),
        ({"server_tools": ["nothing"]}, "server_tools: "),
    ],
)  # fmt: skip
async def test_wrong_requests(serve_script, fields, told):
    served = await serve_script([])
    status, answer = await ask(served, **fields)
    assert status == 400
    assert answer["type"] == "error"
    assert set(answer["error"]) == {"type", "message"}
    assert answer["error"]["type"] == "invalid_request_error"
    assert told in answer["error"]["message"]
    assert served.engine.sessions == []


async def test_errors_of_every_status_have_anthropics_form(serve_script):
    served = await serve_script([fail(ContextOverflow("too much")), fail(EngineFailed("gone"))])
    status, answer = await ask(served)
    assert (status, answer["error"]["type"]) == (400, "invalid_request_error")
    assert answer["error"]["message"] == "prompt is too long: too much"
    status, answer = await ask(served)
    assert (status, answer["error"]["type"]) == (503, "api_error")
    status, answer = await ask(served, model="other")
    assert (status, answer["error"]["type"]) == (404, "not_found_error")
    for send, expected in (
        (served.http.get("/v1/messages"), (405, "invalid_request_error")),
        (served.http.get("/v1/messages/batches"), (404, "not_found_error")),
        (served.http.post("/v1/messages", data=b"x"), (415, "invalid_request_error")),
        (served.http.post("/v1/messages", json=[]), (400, "invalid_request_error")),
        (
            served.http.post("/v1/messages", json={}, headers={"Host": "evil.example"}),
            (403, "permission_error"),
        ),
    ):
        async with send as response:
            told = await response.json()
            assert (response.status, told["error"]["type"]) == expected
            assert told["type"] == "error"


async def test_an_error_within_a_stream(serve_script):
    served = await serve_script([fail(EngineFailed("gone"), text="one two")])
    *_, last = await stream(served)
    message = "The engine has failed: restart it."
    assert last == {"type": "error", "error": {"type": "api_error", "message": message}}


async def test_the_key_may_come_as_x_api_key(serve_script):
    served = await serve_script(["Hi.", "Fine.", "Fine."], api_key="secret")
    for headers in ({}, {"x-api-key": "wrong"}, {"x-api-key": "secret ish"}):
        status, answer = await ask(served, headers)
        assert (status, answer["error"]["type"]) == (401, "authentication_error")
    assert (await ask(served, {"x-api-key": "secret"}))[0] == 200
    history = [HELLO, {"role": "assistant", "content": "Hi."}, HELLO]
    assert (await ask(served, {"Authorization": "Bearer secret"}, messages=history))[0] == 200
    headers = {"Authorization": "Bearer secret"}
    async with served.http.get("/metrics", headers=headers) as response:
        assert 'outcome="spliced",why="unchanged"} 1.0' in await response.text()


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize(
    ("fields", "is_ours"),
    [
        ({}, True),
        ({"tools": [WEATHER]}, True),
        ({"messages": [HELLO, {"role": "assistant", "content": "It is"}]}, True),
        ({"model": "an-adapter"}, False),
        ({"messages": [HELLO | {"content": [{"type": "image", "source": {}}]}]}, False),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, True),
    ],
    ids=["text", "tools", "prefill", "adapter", "image", "thinking"],
)
async def test_vllm_answers_what_only_it_can(serve_script, fields, is_ours, alone):
    async def behind(scope: Any, receive: Any, send: Any) -> None:
        await JSONResponse({"behind": True})(scope, receive, send)

    served = await serve_script(["Ours."], vllm=VllmServer(behind, None, parses_alone=alone))
    status, answer = await ask(served, **fields)
    assert status == 200
    assert ("behind" in answer) == (alone or not is_ours)


BUDGET = {"thinking": {"type": "enabled", "budget_tokens": 1024}}


@pytest.mark.parametrize("kept", [False, True])
async def test_a_budget_of_thinking_is_vllms_where_it_keeps_one_and_else_left_out(
    serve_script, double, kept
):
    async def behind(scope: Any, receive: Any, send: Any) -> None:
        await JSONResponse({"behind": True})(scope, receive, send)

    vllm = VllmServer(behind, None, keeps_budgets=kept)
    served = await serve_script(["Ours."] * 3, [double], vllm=vllm)
    noted = {"left_out": ["field thinking.budget_tokens"]}
    status, answer = await ask(served, **BUDGET)
    assert status == 200
    assert answer == {"behind": True} if kept else answer["caesura"] == noted
    status, answer = await ask(served, **BUDGET, server_tools=["double"])
    assert (status, answer["caesura"]["left_out"]) == (200, noted["left_out"])
    status, answer = await ask(served, thinking={"type": "adaptive"})
    assert (status, answer["content"][0]["text"]) == (200, "Ours.")


async def test_what_is_not_done_here_goes_on_to_vllm(serve_script, double):
    async def behind(scope: Any, receive: Any, send: Any) -> None:
        error = {"type": "BadRequestError", "message": "This model's maximum context length is 5"}
        answer = JSONResponse({"type": "error", "error": error}, 400)
        await answer(scope, receive, send)

    served = await serve_script(["Ours."], [double], vllm=VllmServer(behind, None))
    status, answer = await ask(served, container="c_1")
    assert (status, answer["type"]) == (400, "error")
    assert answer["error"]["type"] == "invalid_request_error"
    assert answer["error"]["message"].startswith("prompt is too long: This model's maximum")
    status, answer = await ask(served, server_tools=["double"])
    assert (status, answer["content"][0]["text"]) == (200, "Ours.")


async def test_an_unknown_field_is_left_out_with_a_note(serve_script):
    served = await serve_script(["One.", "Two."])
    status, answer = await ask(served, new_in_2027=1)
    assert (status, answer["caesura"]) == (200, {"left_out": ["field new_in_2027"]})
    *_, last, _ = await stream(served, new_in_2027=1)
    assert last["caesura"] == {"left_out": ["field new_in_2027"]}


async def test_pieces_of_text_come_as_they_are_decoded(serve_script):
    engine = ScriptedEngine(["one two three"], model=MODEL, piece_characters=3)
    served = await serve_script(engine)
    events = await stream(served)
    deltas = [event["delta"]["text"] for event in events if event["type"] == "content_block_delta"]
    assert len(deltas) == 5 and "".join(deltas) == "one two three"
