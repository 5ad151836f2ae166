"""A session's history: kept over runs, and clear after a run that was broken off."""

import asyncio
from contextlib import aclosing

import pytest

from caesura.runtime.errors import ContextOverflow, EngineFailed, LimitReached, UsageError
from caesura.runtime.events import RunEnded, TextDelta, TurnEnded
from caesura.runtime.run.fold import CANCELLED
from caesura.runtime.run.limits import Limits
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.testing import (
    ScriptedEngine,
    call,
    calls,
    fail,
    inline,
    malformed,
    say,
)
from caesura.tools import tool


@tool
async def double(n: int) -> int:
    """Double a number."""
    return 2 * n


def roles(messages) -> list[str]:
    return [message["role"] for message in messages]


def make_gate():
    """A tool that never returns, and the event that tells that it was entered."""
    entered = asyncio.Event()

    @tool
    async def wait() -> None:
        """Wait for ever."""
        entered.set()
        await asyncio.Event().wait()

    return wait, entered


async def broken_off(session, entered) -> None:
    """Start a run, and cancel it when the tool is at work."""
    task = asyncio.create_task(session.run("Wait."))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_history_is_kept_over_runs_in_one_engine_session():
    async with ScriptedEngine([say("Hello."), call("double", n=2), say("4")]) as engine:
        async with Agent(engine, [double], instructions="Be brief.").session() as session:
            await session.run("Hi.")
            answer = await session.run("Double 2.")
        assert len(engine.sessions) == 1
        assert roles(answer.messages) == (
            ["system", "user", "assistant", "user", "assistant", "tool", "assistant"]
        )
        assert [len(messages) for messages in engine.sessions[0].turns] == [2, 1, 1]


async def test_history_is_what_the_engine_holds():
    script = [calls(call("double", n=1), malformed("<", "no name"), text="So:"), say("a")]
    engine = ScriptedEngine([*script, inline("b ", "double", n=2), say("c")])
    async with engine, Agent(engine, [double]).session() as session:
        await session.run("One.")
        await session.run("Two.")
        assert session.messages == engine.sessions[0].messages


async def test_usage_adds_up_over_runs():
    engine = ScriptedEngine([say("a b"), say("c")])
    async with engine, Agent(engine).session() as session:
        first = await session.run("x y z")
        second = await session.run("w")
        assert session.usage == first.usage + second.usage
        assert session.usage.completion_tokens == 3


async def test_calls_are_told_in_call_order():
    turn = calls(call("double", n=1), malformed("<call>", "no name"), call("double", n=3))
    async with ScriptedEngine([turn, say("ok")]) as engine:
        answer = await Agent(engine, [double]).run("Go.")
    assert [result.content[:6] for _, result in answer.calls] == ["2", "error:", "6"]
    assert [made.id for made, _ in answer.calls] == ["call_1", "call_2", "call_3"]


async def test_stream_ends_with_run_ended():
    engine = ScriptedEngine([say("one two three")])
    async with engine, Agent(engine).session() as session:
        events = [event async for event in session.stream("Go.")]
    assert isinstance(events[-1], RunEnded)
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "one two three"


async def test_two_runs_at_once_are_refused_and_the_first_goes_on():
    engine = ScriptedEngine([say("first"), say("third")])
    async with engine, Agent(engine).session() as session:
        async with aclosing(session.stream("1")) as first:
            await anext(first)
            with pytest.raises(UsageError, match="run under way"):
                await session.run("2")
            async for event in first:
                ended = event
        assert ended.text == "first"
        assert (await session.run("3")).text == "third"


async def test_a_closed_session_refuses_runs():
    session = Agent(ScriptedEngine()).session()
    await session.aclose()
    await session.aclose()
    with pytest.raises(UsageError, match="closed"):
        await session.run("Hi.")


async def test_history_after_a_run_cancelled_in_a_tool():
    wait, entered = make_gate()
    engine = ScriptedEngine([calls(call("double", n=1), call("wait"), text="Hm."), say("Back.")])
    async with engine, Agent(engine, [double, wait]).session() as session:
        await broken_off(session, entered)
        assert engine.open_sessions == 0
        assert roles(session.messages) == ["user", "assistant", "tool", "tool"]
        assert session.messages[-1]["content"] == CANCELLED
        answer = await session.run("And now?")
        assert answer.text == "Back."
        assert roles(engine.sessions[1].turns[0]) == ["user", "assistant", "tool", "tool", "user"]


async def test_results_that_came_before_the_cancel_are_kept():
    wait, entered = make_gate()
    engine = ScriptedEngine([calls(call("double", n=1), call("wait")), say("Back.")])
    async with engine, Agent(engine, [double, wait]).session() as session:
        async with aclosing(session.stream("Go.")) as events:
            async for event in events:
                if not isinstance(event, TextDelta) and hasattr(event, "result"):
                    break
        assert entered.is_set()
        assert [m["content"] for m in session.messages[-2:]] == ["2", CANCELLED]
        await session.run("And now?")


async def test_history_after_a_run_left_in_the_middle_of_its_text():
    engine = ScriptedEngine([say("one two three"), say("four")], piece_characters=4)
    async with engine, Agent(engine).session() as session:
        async with aclosing(session.stream("Count.")) as events:
            await anext(events)
        assert session.messages[-1] == {"role": "assistant", "content": "one "}
        await session.run("Go on.")
        assert roles(engine.sessions[1].turns[0]) == ["user", "assistant", "user"]


async def test_a_run_that_was_cancelled_before_a_word_leaves_no_trace():
    reached = asyncio.Event()

    async def script(messages, tools):
        if len(messages) == 1 and not reached.is_set():
            reached.set()
            await asyncio.Event().wait()
        return "Here."

    engine = ScriptedEngine(script)
    async with engine, Agent(engine).session() as session:
        await broken_off(session, reached)
        assert session.messages == ()
        assert (await session.run("Again.")).text == "Here."
        assert roles(session.messages) == ["user", "assistant"]


async def test_a_session_goes_on_after_a_limit():
    engine = ScriptedEngine([call("double", n=1), call("double", n=2), say("Fine.")])
    async with engine, Agent(engine, [double], limits=Limits(max_turns=2)).session() as session:
        with pytest.raises(LimitReached):
            await session.run("Double for ever.")
        assert engine.open_sessions == 0
        assert session.messages[-1]["content"] == "4"
        assert session.usage.turns == 2
        assert (await session.run("Stop.")).text == "Fine."
        assert len(engine.sessions) == 2


async def test_a_session_survives_a_failing_tool():
    @tool
    async def broken() -> None:
        """Fail."""
        raise ValueError("bad luck")

    async with ScriptedEngine([call("broken"), say("Oh."), say("Yes.")]) as engine:
        async with Agent(engine, [broken]).session() as session:
            answer = await session.run("Try.")
            assert answer.calls[0][1].error == "failed"
            assert (await session.run("Still there?")).text == "Yes."
        assert len(engine.sessions) == 1


async def test_a_call_finished_in_a_turn_that_was_cut_is_answered_as_cancelled():
    turn = calls(call("double", n=1), call("double", n=2))
    engine = ScriptedEngine([turn, say("a b c")])
    async with engine, Agent(engine, [double], limits=Limits(max_tokens=5)).session() as session:
        answer = await session.run("Go.")
        assert (answer.reason, answer.calls) == ("length", ())
        assert roles(session.messages) == ["user", "assistant", "tool"]
        assert session.messages[-1]["content"] == CANCELLED
        await session.run("Go on.")
        assert len(engine.sessions) == 2


async def test_length_keeps_the_engine_session():
    engine = ScriptedEngine([say("a b c"), say("d")])
    async with engine, Agent(engine, limits=Limits(max_tokens=2)).session() as session:
        assert (await session.run("Go.")).reason == "length"
        await session.run("Go on.")
        assert len(engine.sessions) == 1


async def test_a_prompt_that_overflows_the_context_is_taken_back():
    engine = ScriptedEngine([say("Short.")], context_tokens=20)
    async with engine, Agent(engine).session() as session:
        with pytest.raises(ContextOverflow):
            await session.run("word " * 30)
        assert session.messages == ()
        assert (await session.run("word")).text == "Short."


async def test_an_engine_failure_keeps_what_was_said():
    engine = ScriptedEngine([fail(EngineFailed("gone"), "Half an")])
    async with Agent(engine).session() as session:
        with pytest.raises(EngineFailed):
            await session.run("Go.")
        assert session.messages[-1]["content"] == "Half an"
    assert engine.open_sessions == 0
    with pytest.raises(EngineFailed):
        await engine.check_health()


async def test_a_session_goes_on_from_a_history():
    async with ScriptedEngine([say("Hello."), say("You said hi.")]) as engine:
        agent = Agent(engine, instructions="Be brief.")
        answer = await agent.run("Hi.")
        async with agent.session(answer.messages) as session:
            await session.run("What did I say?")
        assert roles(engine.sessions[1].turns[0]) == ["system", "user", "assistant", "user"]


async def test_closing_a_session_under_a_run_ends_its_tools():
    wait, entered = make_gate()
    engine = ScriptedEngine([call("wait")])
    session = Agent(engine, [wait]).session()
    run = asyncio.create_task(session.run("Wait."))
    await entered.wait()
    await session.aclose()
    with pytest.raises(UsageError, match="closed while"):
        await run
    assert engine.open_sessions == 0


async def test_reprs():
    async with ScriptedEngine([say("Hi.")]) as engine, Agent(engine).session() as session:
        answer = await session.run("Hi.")
        assert repr(answer) == "<Answer 'Hi.': stop, 0 call(s), 1 tokens>"
        assert str(answer) == "Hi."
        assert repr(session) == "<Session: 2 messages, 1 turns, idle>"


async def test_events_of_a_session_carry_the_resume_report():
    async with ScriptedEngine([call("double", n=1), say("2")]) as engine:
        events = [event async for event in Agent(engine, [double]).stream("Go.")]
    first, second = [event for event in events if isinstance(event, TurnEnded)]
    assert first.resume is None
    assert second.resume is not None
    assert second.resume.context_tokens == second.cached_tokens


async def test_another_session_continues_from_the_answers_of_a_closed_one():
    script = [call("double", n=2), say("4"), say("Bye."), say("Yes.")]
    async with ScriptedEngine(script) as engine:
        agent = Agent(engine, [double])
        async with agent.session() as first:
            await first.run("Double 2.")
            await first.run("Bye.")
        async with agent.session(first.messages) as second:
            events = [event async for event in second.stream("Again?")]
    (ended,) = [event for event in events if isinstance(event, TurnEnded)]
    assert ended.follow_up is not None
    assert (ended.follow_up.outcome, ended.follow_up.why) == ("spliced", "unchanged")


async def test_a_session_with_another_history_is_rendered():
    async with ScriptedEngine([say("Hello."), say("Yes.")]) as engine:
        agent = Agent(engine, [double])
        async with agent.session() as first:
            await first.run("Hi.")
        question, answer = first.messages
        changed = {**answer, "content": "Hello!"}
        async with agent.session([question, changed]) as second:
            events = [event async for event in second.stream("Again?")]
    (ended,) = [event for event in events if isinstance(event, TurnEnded)]
    assert ended.follow_up is not None and ended.follow_up.outcome == "rendered"


async def test_the_engines_bound_on_an_answer_holds_for_a_run():
    engine = ScriptedEngine([call("double", n=1), say("a b c")], max_answer_tokens=4)
    async with engine, Agent(engine, [double]).session() as session:
        answer = await session.run("Go.")
        assert (answer.reason, answer.usage.completion_tokens) == ("length", 4)
