"""The scripted engine: it plays its script, keeps the contract, and holds its caller to it."""

import asyncio

import pytest

from caesura.runtime.errors import ContextOverflow, EngineFailed, UsageError
from caesura.runtime.events import (
    ArgumentsDelta,
    CallFinished,
    CallMalformed,
    CallStarted,
    TextDelta,
    TurnEnded,
)
from caesura.runtime.testing import (
    Calls,
    Malformed,
    ScriptedEngine,
    ScriptError,
    call,
    calls,
    fail,
    inline,
    malformed,
    say,
)
from caesura.scheduler.messages import Sampling, SessionSpec

USER = {"role": "user", "content": "Go on then."}


def answer(call_id: str, content: str = "ok"):
    return {"role": "tool", "tool_call_id": call_id, "name": "t", "content": content}


async def turn(session, *messages, sampling=None):
    return [event async for event in session.turn(messages or (USER,), sampling)]


async def test_text_streams_in_pieces():
    engine = ScriptedEngine([say("one two")], piece_characters=3)
    events = await turn(engine.open(SessionSpec()))
    assert events[:-1] == [TextDelta("one"), TextDelta(" tw"), TextDelta("o")]
    assert events[-1] == TurnEnded("stop", 3, 2, 0)


async def test_a_stop_text_ends_the_turn_before_its_calls():
    engine = ScriptedEngine([calls(call("add", a=1), text="one two three")])
    events = await turn(engine.open(SessionSpec()), sampling=Sampling(stop=("three", " two")))
    assert events == [TextDelta("one"), TurnEnded("stop", 3, 1, 0, stop_text=" two")]


async def test_a_call_streams_its_arguments():
    engine = ScriptedEngine([call("add", a=1, b=[2])], piece_characters=8)
    events = await turn(engine.open(SessionSpec()))
    assert events[0] == CallStarted("call_1", "add")
    text = "".join(event.text for event in events if isinstance(event, ArgumentsDelta))
    assert text == '{"a": 1, "b": [2]}'
    assert events[-2] == CallFinished("call_1", "add", text)
    assert events[-1].reason == "call"


async def test_arguments_may_be_text_as_written():
    engine = ScriptedEngine([Calls(calls=[("add", "[1]")])])
    events = await turn(engine.open(SessionSpec()))
    assert events[-2] == CallFinished("call_1", "add", "[1]")


async def test_inline_calls_say_so():
    events = await turn(ScriptedEngine([inline("It is ", "add", a=1)]).open(SessionSpec()))
    assert events[-2].inline
    assert all(event.inline for event in events if isinstance(event, CallStarted))


async def test_a_malformed_call_with_and_without_a_name():
    turns = calls(malformed("<x", "cut off", "add"), Malformed("<y", "no name"))
    events = await turn(ScriptedEngine([turns]).open(SessionSpec()))
    assert events[:-1] == [
        CallStarted("call_1", "add"),
        CallMalformed("call_1", "add", "<x", "cut off"),
        CallMalformed("call_2", None, "<y", "no name"),
    ]


async def test_results_resume_the_turn():
    session = ScriptedEngine([call("t"), say("Done.")]).open(SessionSpec())
    await turn(session)
    [*_, ended] = await turn(session, answer("call_1"))
    assert (ended.prompt_tokens, ended.cached_tokens) == (1, 5)
    assert ended.resume.handling == "preserve"


async def test_results_must_answer_the_calls_in_order():
    session = ScriptedEngine([calls(call("a"), call("b")), say("Done.")]).open(SessionSpec())
    await turn(session)
    with pytest.raises(ScriptError, match=r"turn 2 of session 1 must answer.*call_1.*call_2"):
        await turn(session, answer("call_2"), answer("call_1"))


async def test_a_new_message_does_not_answer_a_call():
    session = ScriptedEngine([call("a"), say("Done.")]).open(SessionSpec())
    await turn(session)
    with pytest.raises(ScriptError, match="must answer"):
        await turn(session, USER)


async def test_without_pausing_nothing_follows_calls():
    session = ScriptedEngine([call("a"), say("Done.")]).open(SessionSpec(pausing=False))
    assert (await turn(session))[-1].reason == "call"
    with pytest.raises(ScriptError, match="pausing=False"):
        await turn(session, answer("call_1"))


async def test_calls_are_refused_where_tool_choice_is_none():
    session = ScriptedEngine([call("a")]).open(SessionSpec(tool_choice="none"))
    with pytest.raises(ScriptError, match="tool_choice"):
        await turn(session)


async def test_past_the_end_of_the_script():
    session = ScriptedEngine([say("Only this.")]).open(SessionSpec())
    await turn(session)
    with pytest.raises(ScriptError, match=r"turn 2 of session 1 is past the end.*Go on then"):
        await turn(session)


async def test_a_script_that_was_not_finished():
    engine = ScriptedEngine([say("a"), say("b")])
    session = engine.open(SessionSpec())
    await turn(session)
    await session.close()
    with pytest.raises(ScriptError, match=r"1 item\(s\) were never asked for.*'b'"):
        engine.assert_finished()


async def test_a_session_that_was_not_closed():
    engine = ScriptedEngine()
    session = engine.open(SessionSpec())
    assert engine.open_sessions == 1
    with pytest.raises(ScriptError, match="never closed"):
        engine.assert_finished()
    await session.close()
    engine.assert_finished()


async def test_the_block_asserts_unless_it_failed():
    with pytest.raises(ScriptError, match="never asked for"):
        async with ScriptedEngine([say("a")]) as engine:
            pass
    assert engine.closed
    with pytest.raises(KeyError):
        async with ScriptedEngine([say("a")]):
            raise KeyError


async def test_max_tokens_cuts_text():
    session = ScriptedEngine([say("one two three")]).open(SessionSpec())
    events = await turn(session, sampling=Sampling(max_tokens=2))
    assert "".join(event.text for event in events[:-1]) == "one two"
    assert (events[-1].reason, events[-1].completion_tokens) == ("length", 2)


async def test_max_tokens_leaves_out_a_call_that_does_not_fit():
    session = ScriptedEngine([calls(call("a"), call("b", x=1), text="Hm")]).open(SessionSpec())
    events = await turn(session, sampling=Sampling(max_tokens=4))
    assert [event.name for event in events if isinstance(event, CallFinished)] == ["a"]
    assert events[-1].reason == "length"


async def test_a_prompt_longer_than_the_context():
    session = ScriptedEngine([say("x")], context_tokens=2).open(SessionSpec())
    with pytest.raises(ContextOverflow):
        await turn(session)


async def test_fail_raises_after_its_text_and_the_engine_stays_unhealthy():
    engine = ScriptedEngine([fail(EngineFailed("gone"), "Half")])
    await engine.check_health()
    with pytest.raises(EngineFailed, match="gone"):
        await turn(engine.open(SessionSpec()))
    with pytest.raises(EngineFailed, match="gone"):
        await engine.check_health()


async def test_a_function_as_script_sees_conversation_and_tools():
    def script(messages, tools):
        return say(f"{len(messages)} messages, {len(tools)} tools")

    session = ScriptedEngine(script).open(SessionSpec(tools=[{"type": "function"}]))
    await turn(session)
    await turn(session)
    said = [m["content"] for m in session.messages if m["role"] == "assistant"]
    assert said == ["1 messages, 1 tools", "3 messages, 1 tools"]


async def test_an_async_function_as_script():
    async def script(messages, tools):
        await asyncio.sleep(0)
        return call("t")

    assert (await turn(ScriptedEngine(script).open(SessionSpec())))[-1].reason == "call"


async def test_a_script_per_session():
    engine = ScriptedEngine(sessions=[[say("a1"), say("a2")], [say("b1")]])
    first, second = engine.open(SessionSpec()), engine.open(SessionSpec())
    await asyncio.gather(turn(first), turn(second))
    await turn(first)
    assert [m["content"] for m in first.messages if m["role"] == "assistant"] == ["a1", "a2"]
    with pytest.raises(ScriptError, match="session 3 was opened; only 2"):
        engine.open(SessionSpec())


async def test_one_script_shared_by_sessions():
    engine = ScriptedEngine([say("a"), say("b")])
    await turn(engine.open(SessionSpec()))
    events = await turn(engine.open(SessionSpec()))
    assert events[0] == TextDelta("b")


def test_one_kind_of_script_only():
    with pytest.raises(UsageError, match="either"):
        ScriptedEngine([say("a")], sessions=[[say("b")]])


async def test_turns_at_the_same_time_are_refused():
    session = ScriptedEngine([say("one two three")]).open(SessionSpec())
    first = session.turn([USER])
    await anext(first)
    with pytest.raises(ScriptError, match="while another turn decodes"):
        await turn(session)
    await first.aclose()


async def test_a_turn_after_one_that_was_broken_off_is_refused():
    session = ScriptedEngine([say("one two three"), say("x")]).open(SessionSpec())
    first = session.turn([USER])
    await anext(first)
    await first.aclose()
    with pytest.raises(ScriptError, match="open a new session"):
        await turn(session)


async def test_closing_the_engine_closes_its_sessions():
    engine = ScriptedEngine([say("x")])
    session = engine.open(SessionSpec())
    await engine.close()
    assert session.closed
    with pytest.raises(ScriptError, match="closed"):
        await turn(session)
    with pytest.raises(EngineFailed):
        await engine.check_health()


async def test_what_was_sent_is_on_record():
    engine = ScriptedEngine([call("t"), say("x")])
    session = engine.open(SessionSpec(sampling=Sampling(seed=1)))
    await turn(session)
    await turn(session, answer("call_1"), sampling=Sampling(seed=2))
    assert engine.sessions == [session]
    assert session.turns == [(USER,), (answer("call_1"),)]
    assert session.samplings == [Sampling(seed=1), Sampling(seed=2)]
    assert [m["role"] for m in session.messages] == ["user", "assistant", "tool", "assistant"]


async def test_pace_is_awaited_before_every_event():
    seen = []

    async def pace(event):
        seen.append(event)

    events = await turn(ScriptedEngine([say("a b c")], pace=pace).open(SessionSpec()))
    assert seen == events


def test_reprs():
    engine = ScriptedEngine([say("a")])
    session = engine.open(SessionSpec())
    assert repr(engine) == "<ScriptedEngine 'scripted': 1 open session(s)>"
    assert repr(session) == "<ScriptedSession 1: 0 turn(s), open>"
