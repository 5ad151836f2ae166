"""`/v1/responses` over HTTP, by OpenAI's own client and by plain requests."""

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import openai
import pytest

from caesura.runtime.errors import ContextOverflow
from caesura.runtime.server.responses.store import SqliteResponses, Stored
from caesura.runtime.testing import ScriptedEngine, call, calls, fail, say, think
from tests.kit.server import MODEL
from tests.kit.waiting import until
from tests.runtime.server.responses.asking import TOOL, events, parsed, post

MCP: Any = {"type": "mcp", "server_label": "caesura", "allowed_tools": ["double"]}


async def test_a_response_has_every_field_that_clients_require(
    serve_script: Any, specification: Any
) -> None:
    served = await serve_script([say("Hello there.")])
    status, body = await post(served, instructions="Be kind.", metadata={"a": "b"})
    assert status == 200
    specification.check(body, "ResponseResource")
    assert body["status"] == "completed"
    assert body["usage"]["input_tokens"] == 3
    assert served.engine.sessions[0].turns[0] == (
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hello"},
    )


async def test_a_stream_is_whole_and_keeps_to_the_schema(
    serve_script: Any, specification: Any, checked: Any
) -> None:
    served = await serve_script([calls(call("weather", city="Oslo"), text="I look. ")])
    found = await events(served, tools=[TOOL])
    checked(found)
    for event in found:
        specification.check_event(event)
    kinds = [item["type"] for item in found[-1]["response"]["output"]]
    assert kinds == ["message", "function_call"]


async def test_openais_client_streams(serve_script: Any) -> None:
    served = await serve_script([calls(call("weather", city="Oslo"), text="I look.")])
    seen = []
    async with served.openai.responses.stream(
        model=MODEL, input="Hello", tools=[TOOL], store=False
    ) as stream:
        seen = [event.type async for event in stream]
        final = await stream.get_final_response()
    assert final.output_text == "I look."
    assert json.loads(final.output[1].arguments) == {"city": "Oslo"}
    assert "response.function_call_arguments.delta" in seen


async def test_a_follow_up_knows_what_was_said_and_called_but_not_the_instructions(
    serve_script: Any,
) -> None:
    served = await serve_script([call("weather", city="Oslo"), say("Sunny.")])
    client = served.openai.responses
    first = await client.create(
        model=MODEL, input="Weather?", instructions="Be kind.", tools=[TOOL]
    )
    assert served.engine.sessions[0].follow_up
    made = first.output[0]
    second = await client.create(
        model=MODEL,
        input=[{"type": "function_call_output", "call_id": made.call_id, "output": "sun"}],
        previous_response_id=first.id,
        tools=[TOOL],
    )
    assert second.output_text == "Sunny."
    messages = served.engine.sessions[1].turns[0]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    assert messages[1]["tool_calls"][0]["id"] == messages[2]["tool_call_id"] == made.call_id
    assert messages[2]["name"] == "weather"


@pytest.mark.parametrize("way", ["named", "sent again", "without reasoning"])
async def test_a_follow_up_of_reasoning_continues_from_its_tokens(
    serve_script: Any, double: Any, way: str
) -> None:
    thinking = think("Ah.", calls(call("weather"), text="I look."))
    served = await serve_script([think("Hm.", call("double", number=4)), thinking, "b"], [double])
    _, body = await post(served, tools=[MCP, TOOL])
    kinds = [item["type"] for item in body["output"] if item["type"] != "mcp_list_tools"]
    assert kinds == ["reasoning", "mcp_call", "reasoning", "message", "function_call"]
    call_id = body["output"][-1]["call_id"]
    given: Any = [{"type": "function_call_output", "call_id": call_id, "output": "sun"}]
    if way == "named":
        await post(served, input=given, previous_response_id=body["id"], tools=[MCP, TOOL])
    else:
        kept = [each for each in body["output"] if "again" in way or each["type"] != "reasoning"]
        history = [{"role": "user", "content": "Hello"}, *kept, *given]
        await post(served, input=history, tools=[MCP, TOOL])
    metrics = await served.metrics()
    assert 'caesura_followups_total{field="",outcome="spliced",why="unchanged"} 1.0' in metrics


async def test_a_follow_up_continues_from_the_tokens_of_its_answer(
    serve_script: Any, double: Any
) -> None:
    script = [call("double", number=4), call("weather"), say("a"), say("b")]
    served = await serve_script(script, [double])
    previous = None
    given: Any = "Hello"
    for _ in range(3):
        _, body = await post(served, input=given, previous_response_id=previous, tools=[MCP, TOOL])
        previous = body["id"]
        given = [
            {"type": "function_call_output", "call_id": item["call_id"], "output": "sun"}
            for item in body["output"]
            if item["type"] == "function_call"
        ] or "More"
    metrics = await served.metrics()
    assert 'caesura_followups_total{field="",outcome="spliced",why="unchanged"} 2.0' in metrics


async def test_a_client_may_ask_again_as_soon_as_it_is_answered(serve_script: Any) -> None:
    served = await serve_script(ScriptedEngine(lambda *_: "Hi.", model=MODEL), max_concurrent=1)
    for _ in range(20):
        assert (await post(served))[0] == 200
        assert (await events(served))[-1]["type"] == "response.completed"


async def test_a_history_sent_again_makes_the_messages_that_the_store_has(
    serve_script: Any,
) -> None:
    script = [calls(call("weather", city="Oslo"), text="I look."), say("a"), say("a")]
    served = await serve_script(script)
    question: Any = {"role": "user", "content": "Weather?"}
    first = await served.openai.responses.create(model=MODEL, input=[question], tools=[TOOL])
    result: Any = {
        "type": "function_call_output",
        "call_id": first.output[1].call_id,
        "output": "sun",
    }
    history = [question, *(item.model_dump() for item in first.output), result]
    await served.openai.responses.create(model=MODEL, input=history, tools=[TOOL])
    await served.openai.responses.create(
        model=MODEL, input=[result], previous_response_id=first.id, tools=[TOOL]
    )
    assert served.engine.sessions[1].turns[0] == served.engine.sessions[2].turns[0]


async def test_stored_responses_are_found_listed_and_deleted(serve_script: Any) -> None:
    served = await serve_script([say("Hi.")])
    client = served.openai.responses
    made = await client.create(model=MODEL, input="Hello")
    assert (await client.retrieve(made.id)).output_text == "Hi."
    listed = await client.input_items.list(made.id)
    assert [item.content[0].text for item in listed.data] == ["Hello"]
    await client.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        await client.retrieve(made.id)


async def test_responses_outlive_the_server(serve_script: Any, tmp_path: Path) -> None:
    path = tmp_path / "responses.sqlite"
    served = await serve_script([say("Hi.")], store=SqliteResponses(path))
    _, made = await post(served)
    await served.app.close()
    again = await serve_script([say("Still here.")], store=SqliteResponses(path))
    status, body = await post(again, previous_response_id=made["id"])
    assert (status, body["previous_response_id"]) == (200, made["id"])
    assert [m["content"] for m in again.engine.sessions[0].turns[0]] == ["Hello", "Hi.", "Hello"]


async def test_a_server_ends_when_its_last_response_is_stored(
    serve_script: Any, tmp_path: Path
) -> None:
    class Slow(SqliteResponses):
        begun, goes_on = threading.Event(), threading.Event()

        def put(self, stored: Stored) -> None:
            self.begun.set()
            self.goes_on.wait()
            super().put(stored)

    store = Slow(tmp_path / "responses.sqlite")
    served = await serve_script([say("Hi.")], store=store)
    asking = asyncio.create_task(post(served))
    await asyncio.to_thread(store.begun.wait)
    closing = asyncio.create_task(served.app.close())
    await asyncio.wait([closing], timeout=0.2)
    assert not closing.done()
    store.goes_on.set()
    await closing
    _, made = await asking
    assert SqliteResponses(tmp_path / "responses.sqlite").get(made["id"], None).id == made["id"]


async def test_what_was_not_stored_cannot_be_continued(serve_script: Any) -> None:
    served = await serve_script([say("Hi.")])
    _, made = await post(served, store=False)
    assert made["store"] is False
    status, body = await post(served, previous_response_id=made["id"])
    assert (status, body["error"]["code"]) == (400, "previous_response_not_found")
    assert body["error"]["param"] == "previous_response_id"


async def test_a_conversation_holds_items_of_requests_and_answers(serve_script: Any) -> None:
    served = await serve_script([say("Hi."), say("Yes.")])
    client = served.openai.conversations
    made = await client.create(items=[{"role": "user", "content": "I am Ann."}])
    for text in ("Hello", "Who am I?"):
        answer = await served.openai.responses.create(model=MODEL, input=text, conversation=made.id)
        assert answer.conversation.id == made.id
    messages = served.engine.sessions[1].turns[0]
    assert [m["content"] for m in messages] == ["I am Ann.", "Hello", "Hi.", "Who am I?"]
    listed = await client.items.list(made.id, order="asc", limit=2)
    assert [item.content[0].text for item in listed.data] == ["I am Ann.", "Hello"]
    assert listed.has_more
    more = await client.items.list(made.id, order="asc", after=listed.data[1].id)
    assert [item.content[0].text for item in more.data] == ["Hi.", "Who am I?", "Yes."]
    await client.items.delete(more.data[0].id, conversation_id=made.id)
    found = await client.items.retrieve(more.data[2].id, conversation_id=made.id)
    assert found.content[0].text == "Yes."
    changed = await client.update(made.id, metadata={"topic": "names"})
    assert changed.metadata == {"topic": "names"}
    await client.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        await client.items.list(made.id)


async def test_items_are_named_by_reference(serve_script: Any) -> None:
    served = await serve_script([say("Hi."), say("Yes.")])
    _, made = await post(served)
    reference = {"type": "item_reference", "id": made["output"][0]["id"]}
    await post(served, input=[reference, {"role": "user", "content": "And now?"}])
    messages = served.engine.sessions[1].turns[0]
    assert [m["content"] for m in messages] == ["Hi.", "And now?"]
    status, body = await post(served, input=[{"type": "item_reference", "id": "msg_0"}])
    assert (status, body["error"]["code"]) == (404, "item_not_found")


async def test_a_background_response_is_polled_streamed_again_and_kept(
    serve_script: Any, checked: Any
) -> None:
    served = await serve_script([say("One two three.")])
    client = served.openai.responses
    made = await client.create(model=MODEL, input="Hello", background=True)
    assert made.status == "queued"
    while made.status in ("queued", "in_progress"):
        await asyncio.sleep(0.01)
        made = await client.retrieve(made.id)
    assert made.output_text == "One two three."
    url = f"/v1/responses/{made.id}?stream=true"
    async with served.http.get(url) as response:
        found = parsed(await response.text())
    checked(found)
    async with served.http.get(f"{url}&starting_after=3") as response:
        assert parsed(await response.text()) == found[4:]


@pytest.mark.parametrize(
    ("script", "fields"),
    [
        (
            [think("Hm.", calls(call("double", number=4), text="I see.")), say("Eight.")],
            {"tools": [MCP], "background": True},
        ),
        ([calls(call("weather", city="Oslo"), text="I look.")], {"tools": [TOOL]}),
        ([say("One two three four.")], {"max_output_tokens": 2}),
        ([fail(ContextOverflow("too long"), "Well.")], {}),
    ],
)
async def test_a_response_that_has_ended_is_streamed_again_after_a_restart(
    serve_script: Any, double: Any, tmp_path: Path, script: Any, fields: Any
) -> None:
    store = tmp_path / "responses.sqlite"
    whole = ScriptedEngine(script, model=MODEL, piece_characters=1_000)
    served = await serve_script(whole, [double], store=SqliteResponses(store))
    found = await events(served, **fields)
    again = await serve_script([], [double], store=SqliteResponses(store))
    url = f"/v1/responses/{found[0]['response']['id']}?stream=true"
    async with again.http.get(url) as response:
        assert parsed(await response.text()) == found
    async with again.http.get(f"{url}&starting_after=70") as response:
        assert parsed(await response.text()) == [found[-1] | {"sequence_number": 71}]


async def test_events_of_a_run_under_way_are_only_kept_with_background(
    serve_script: Any, hanging: Any
) -> None:
    served = await serve_script([call("hang"), say("Done.")], [hanging.tool])
    body = {"model": MODEL, "input": "x", "stream": True, "server_tools": ["hang"]}
    async with served.http.post("/v1/responses", json=body) as stream:
        await stream.content.readline()
        made = json.loads((await stream.content.readline()).removeprefix(b"data: "))
        async with served.http.get(
            f"/v1/responses/{made['response']['id']}?stream=true"
        ) as response:
            assert response.status == 400
            assert "cannot be told while it runs" in await response.text()
        hanging.released.set()


async def test_a_background_response_goes_on_when_its_client_leaves(
    serve_script: Any, hanging: Any
) -> None:
    served = await serve_script([call("hang"), say("Done.")], [hanging.tool])
    body = {"model": MODEL, "input": "x", "background": True, "stream": True}
    async with served.http.post("/v1/responses", json=body | {"server_tools": ["hang"]}) as left:
        line = await left.content.readline()
        assert line == b"event: response.created\n"
        data = json.loads((await left.content.readline()).removeprefix(b"data: "))
        await hanging.started.wait()
    hanging.released.set()
    await until(lambda: served.engine.open_sessions == 0)
    made = await served.openai.responses.retrieve(data["response"]["id"])
    assert made.output_text == "Done."


async def test_a_client_that_leaves_frees_its_response(serve_script: Any, hanging: Any) -> None:
    served = await serve_script([call("hang")], [hanging.tool])
    request = asyncio.create_task(post(served, server_tools=["hang"]))
    await hanging.started.wait()
    request.cancel()
    await hanging.cancelled.wait()
    await until(lambda: served.engine.open_sessions == 0)
    await until(lambda: served.app.completions == 0)


async def test_a_background_response_is_cancelled(serve_script: Any, hanging: Any) -> None:
    served = await serve_script([call("hang"), say("never")], [hanging.tool])
    client = served.openai.responses
    made = await client.create(
        model=MODEL, input="x", background=True, extra_body={"server_tools": ["hang"]}
    )
    await hanging.started.wait()
    cancelled = await client.cancel(made.id)
    assert cancelled.status == "cancelled"
    assert (await client.retrieve(made.id)).status == "cancelled"
    assert (await client.cancel(made.id)).status == "cancelled"
    assert served.engine.open_sessions == 0


async def test_only_background_responses_can_be_cancelled(serve_script: Any) -> None:
    served = await serve_script([say("Hi.")])
    _, made = await post(served)
    with pytest.raises(openai.BadRequestError, match="background"):
        await served.openai.responses.cancel(made["id"])


async def test_server_tools_run_without_showing(serve_script: Any, double: Any) -> None:
    served = await serve_script([call("double", number=4), say("8.")], [double])
    status, body = await post(served, server_tools=["double"])
    assert status == 200
    assert [item["type"] for item in body["output"]] == ["message"]
    assert body["caesura"]["calls"][0]["content"] == "8"
    status, body = await post(served, server_tools=["halve"])
    assert (status, body["error"]["code"]) == (400, "unknown_tool")


async def test_named_server_tools_show_in_openais_types(
    serve_script: Any, double: Any, checked: Any
) -> None:
    served = await serve_script([call("double", number=4), say("8.")], [double])
    found = await events(served, tools=[MCP | {"require_approval": "never"}])
    checked(found)
    listed, made, message = found[-1]["response"]["output"]
    assert (listed["type"], listed["tools"][0]["name"]) == ("mcp_list_tools", "double")
    assert (made["type"], made["output"], made["error"]) == ("mcp_call", "8", None)
    assert message["content"][0]["text"] == "8."
    kinds = [event["type"] for event in found]
    assert kinds.index("response.mcp_call.in_progress") < kinds.index("response.mcp_call.completed")
    assert "caesura" not in found[-1]["response"]


async def test_the_list_of_tools_is_shown_once_in_a_chain(serve_script: Any, double: Any) -> None:
    served = await serve_script([say("a"), say("b")], [double])
    _, first = await post(served, tools=[MCP])
    _, second = await post(served, tools=[MCP], previous_response_id=first["id"])
    assert [item["type"] for item in first["output"]] == ["mcp_list_tools", "message"]
    assert [item["type"] for item in second["output"]] == ["message"]


async def test_a_history_of_server_calls_is_the_same_stored_or_sent(
    serve_script: Any, double: Any
) -> None:
    script = [
        calls(call("double", number=1), call("double", number=2)),
        say("."),
        say("."),
        say("."),
    ]
    served = await serve_script(script, [double])
    _, first = await post(served, tools=[MCP])
    await post(served, tools=[MCP], previous_response_id=first["id"], input="More")
    again = [{"role": "user", "content": "Hello"}, *first["output"]]
    await post(served, tools=[MCP], input=[*again, {"role": "user", "content": "More"}])
    sent = [session.turns[0] for session in served.engine.sessions]
    assert sent[1] == sent[2]
    assert [m["role"] for m in sent[1]] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
        "user",
    ]


async def test_the_number_of_server_calls_is_bounded(serve_script: Any, double: Any) -> None:
    script = [call("double", number=1), call("double", number=2), say("Enough.")]
    served = await serve_script(script, [double])
    _, body = await post(served, tools=[MCP], max_tool_calls=1)
    made = [item for item in body["output"] if item["type"] == "mcp_call"]
    assert [item["status"] for item in made] == ["completed", "failed"]
    assert "at most 1" in made[1]["error"]["content"]


async def test_tools_of_a_namespace_have_flat_names_for_the_model_only(serve_script: Any) -> None:
    served = await serve_script([call("home__weather", city="Oslo"), say("Sun.")])
    tools = [{"type": "namespace", "name": "home", "description": "", "tools": [TOOL]}]
    _, first = await post(served, tools=tools)
    (made,) = first["output"]
    assert (made["namespace"], made["name"]) == ("home", "weather")
    output = {"type": "function_call_output", "call_id": made["call_id"], "output": "sun"}
    await post(served, tools=tools, input=[output], previous_response_id=first["id"])
    assert served.engine.sessions[1].turns[0][2]["name"] == "home__weather"


async def test_a_token_limit_makes_the_response_incomplete(serve_script: Any) -> None:
    served = await serve_script([say("one two three four")])
    _, body = await post(served, max_output_tokens=2)
    assert body["status"] == "incomplete"
    assert body["incomplete_details"] == {"reason": "max_output_tokens"}


async def test_a_conversation_that_is_too_long_is_refused_or_shortened(serve_script: Any) -> None:
    engine = ScriptedEngine([say("ok")], model=MODEL, context_tokens=12)
    served = await serve_script(engine)
    turns = [{"role": role, "content": "a b c"} for role in ["user", "assistant"] * 3 + ["user"]]
    status, body = await post(served, input=turns)
    assert (status, body["error"]["code"]) == (400, "context_length_exceeded")
    assert body["error"]["param"] == "input"
    status, body = await post(served, input=turns, truncation="auto")
    assert (status, body["truncation"]) == (200, "auto")
    assert len(engine.sessions[-1].turns[0]) == 3
    assert engine.open_sessions == 0


async def test_an_error_behind_the_first_event_is_the_last_event(
    serve_script: Any, checked: Any
) -> None:
    served = await serve_script([fail(RuntimeError("no"), text="I begin")])
    found = await events(served)
    checked(found)
    assert found[-1]["type"] == "response.failed"
    assert found[-1]["response"]["error"]["code"] == "server_error"
    assert served.engine.open_sessions == 0


async def test_an_error_before_the_first_event_has_a_status(serve_script: Any) -> None:
    engine = ScriptedEngine([say("x")], model=MODEL, context_tokens=1)
    served = await serve_script(engine)
    status, body = await post(served, input="a b c", stream=True)
    assert (status, body["error"]["code"]) == (400, "context_length_exceeded")


async def test_prompts_are_counted_without_a_run(serve_script: Any) -> None:
    served = await serve_script([])
    counted = await served.openai.responses.input_tokens.count(model=MODEL, input="a b c")
    assert counted.input_tokens == 3
    assert not served.engine.sessions


async def test_a_conversation_is_compacted_to_a_summary(
    serve_script: Any, specification: Any
) -> None:
    served = await serve_script([say("Launch on Tuesday."), say("Yes.")])
    history: Any = [
        {"role": "user", "content": "We launch on Tuesday."},
        {"role": "assistant", "content": "Understood."},
    ]
    status, body = await post(served, "/compact", input=history)
    assert status == 200
    specification.check(body, "CompactResource")
    assert [item["type"] for item in body["output"]] == ["message", "compaction"]
    await post(served, input=[*body["output"], {"role": "user", "content": "When?"}])
    assert "Launch on Tuesday." in served.engine.sessions[1].turns[0][1]["content"]
    assert served.engine.open_sessions == 0


async def test_a_compaction_has_the_prompt_of_its_conversation(serve_script: Any) -> None:
    served = await serve_script([say("One."), say("Short.")])
    _, first = await post(served, instructions="Be brief.", tools=[TOOL])
    fields = {
        "previous_response_id": first["id"],
        "input": ...,
        "prompt_cache_key": "k",
        "prompt_cache_options": {},
        "prompt_cache_retention": "24h",
        "service_tier": "auto",
        "image": {},
    }
    status, body = await post(served, "/compact", **fields)
    assert (status, body["caesura"]) == (200, {"left_out": ["field image"]})
    before, after = served.engine.sessions
    assert after.turns[0][:-1] == (*before.turns[0], {"role": "assistant", "content": "One."})
    assert (after.spec.tools, after.spec.template) == (before.spec.tools, before.spec.template)
    assert after.spec.tool_choice == "none"
    assert body["usage"]["output_tokens"] > 0


async def test_a_trigger_is_answered_by_a_compaction(serve_script: Any, checked: Any) -> None:
    script = [say("One."), think("Hm.", "They said One."), say("Two."), say(" ")]
    served = await serve_script(script)
    _, first = await post(served, instructions="Be brief.", tools=[TOOL])
    asked = {
        "input": [{"type": "compaction_trigger"}],
        "previous_response_id": first["id"],
        "instructions": "Be brief.",
        "tools": [TOOL],
        "text": {"format": {"type": "json_object"}},
    }
    found = await events(served, **asked)
    checked(found)
    last = found[-1]["response"]
    (item,) = last["output"]
    assert (item["type"], last["status"]) == ("compaction", "completed")
    assert [event["type"] for event in found[2:-1]] == [
        "response.output_item.added",
        "response.compaction.compacting",
        "response.output_item.done",
    ]
    assert served.engine.sessions[1].samplings[0].text is None
    async with served.http.get(f"/v1/responses/{last['id']}?stream=true") as response:
        checked(parsed(await response.text()))
    # What follows it begins with the summary, whether the client sends it or names its response.
    asked = {"role": "user", "content": "And?"}
    await post(served, input=[asked], previous_response_id=last["id"])
    turns = served.engine.sessions[2].turns[0]
    assert [message["role"] for message in turns] == ["user", "user"]
    assert turns[0]["content"].endswith("\nThey said One.")
    _, failed = await post(served, input=[asked, item, {"type": "compaction_trigger"}])
    assert served.engine.sessions[3].turns[0][1] == turns[0]
    assert (failed["status"], failed["error"]["code"]) == ("failed", "compaction_failed")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": ...}, "model"),
        ({"input": ...}, "input"),
        ({"model": "other"}, "model"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"tools": [{"type": "web_serach"}]}, "tools[0].type"),
        ({"tools": [{"type": "custom"}]}, "tools[0].name"),
        ({"tools": [TOOL | {"type": "custom"}, TOOL]}, "tools[1]"),
        ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [MCP | {"server_label": "other"}]}, "tools[0]"),
        ({"tools": [MCP | {"server_url": "https://mcp.example"}]}, "tools[0]"),
        ({"tools": [MCP]}, "tools[0].allowed_tools"),
        ({"tools": [TOOL, TOOL]}, "tools[1]"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tool_choice": {"type": "function", "name": "x"}}, "tool_choice"),
        ({"background": True, "store": False}, "background"),
        ({"previous_response_id": "resp_1", "conversation": "conv_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"include": 7}, "include"),
        ({"max_tokens": 7}, "max_tokens"),
        ({"response_format": {"type": "text"}}, "response_format"),
        ({"input": [{"type": "compaction_trigger"}]}, "input"),
    ],
)
async def test_wrong_requests_are_refused_by_their_field(
    serve_script: Any, fields: dict[str, Any], param: str
) -> None:
    served = await serve_script([])
    status, body = await post(served, **fields)
    assert status in (400, 404)
    assert body["error"]["param"] == param, body


async def test_a_named_function_is_the_only_one_shown(serve_script: Any) -> None:
    served = await serve_script([say(".")])
    other = TOOL | {"name": "news"}
    choice = {"type": "function", "name": "weather"}
    await post(served, tools=[TOOL, other], tool_choice=choice)
    shown = served.engine.sessions[0].spec.tools
    assert [tool["function"]["name"] for tool in shown] == ["weather"]


async def test_a_run_of_a_response_counts_as_a_completion(serve_script: Any) -> None:
    served = await serve_script([say("Hi.")])
    await post(served)
    metrics = await served.metrics()
    assert 'caesura_requests_total{route="/v1/responses",status="200"} 1.0' in metrics
    assert "caesura_time_to_first_token_seconds_count 1.0" in metrics


async def test_reasoning_is_encrypted_where_it_is_asked_for(
    serve_script: Any, checked: Any
) -> None:
    served = await serve_script(
        [think("Hm.", "One."), think("Hm.", "Two."), think("Hm.", "Three.")]
    )
    include = ["reasoning.encrypted_content"]
    found = await events(served, include=include)
    checked(found)
    first = found[-1]["response"]["output"][0]
    (done,) = [e for e in found if e["type"] == "response.output_item.done" and "item" in e][:1]
    assert done["item"] == first and first["encrypted_content"]
    _, body = await post(served, include=include, store=False)
    assert body["output"][0]["encrypted_content"] == first["encrypted_content"]  # equal texts
    _, body = await post(served)
    assert "encrypted_content" not in body["output"][0]
