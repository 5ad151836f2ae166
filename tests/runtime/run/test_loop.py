"""The loop: who runs which call, when, and in which order the results go back."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

import pytest

from caesura.runtime.errors import EngineFailed
from caesura.runtime.events import (
    CallFinished,
    CallMalformed,
    RunEnded,
    RunEvent,
    TextDelta,
    ToolReported,
    ToolReturned,
    TurnEnded,
    Usage,
)
from caesura.runtime.run.context import RunContext
from caesura.runtime.run.loop import MAX_REPORTS, run
from caesura.runtime.testing import ScriptedEngine, call, calls, fail, inline, malformed, say
from caesura.scheduler.messages import SessionSpec
from caesura.tools import Dispatcher, Registry, Tool, tool
from caesura.tools.context import current

ASK = [{"role": "user", "content": "Go on."}]


@tool
async def double(n: int) -> int:
    """Double a number."""
    return 2 * n


@tool
async def broken() -> str:
    """Always fail."""
    raise RuntimeError("no such luck")


class Gate:
    """A tool that tells when it was entered and left, and stays until it is opened."""

    def __init__(self, name: str = "wait") -> None:
        self.entered, self.opened = asyncio.Event(), asyncio.Event()
        self.cancelled = False

        async def wait() -> str:
            """Wait."""
            self.entered.set()
            try:
                await self.opened.wait()
            except asyncio.CancelledError:
                self.cancelled = True
                raise
            return f"{name} is open"

        self.tool = tool(name=name)(wait)


def start(engine: ScriptedEngine, tools: Sequence[Tool], *, pausing: bool = True, **options):
    """Begin a run on a new session; `options` go to its context."""
    registry = Registry(tools)
    session = engine.open(SessionSpec(registry.specs(), pausing=pausing))
    context = RunContext(registry, pausing=pausing, **options)
    return run(session, ASK, Dispatcher(registry), context)


async def collect(engine: ScriptedEngine, tools: Sequence[Tool] = (), **options) -> list[RunEvent]:
    return [event async for event in start(engine, tools, **options)]


async def test_a_tool_may_tell_how_far_it_is():
    @tool
    async def count(to: int) -> str:
        """Count."""
        for number in range(to):
            current().report(f"at {number}")
        await asyncio.sleep(0)
        return "counted"

    events = await collect(ScriptedEngine([call("count", to=2), say("Done.")]), [count])
    told = [each for each in events if isinstance(each, ToolReported | ToolReturned)]
    assert [each.text for each in told[:-1]] == ["at 0", "at 1"]
    assert {each.call.name for each in told} == {"count"}
    flood = await collect(ScriptedEngine([call("count", to=10_000), say("Done.")]), [count])
    assert sum(isinstance(each, ToolReported) for each in flood) == MAX_REPORTS
    assert flood[-1].text == "Done."


def answers(engine: ScriptedEngine, turn: int = 1) -> list[str]:
    """What the model was told at the start of a turn."""
    return [message["content"] for message in engine.sessions[0].turns[turn]]


async def test_an_answer_streams_and_ends_the_run():
    events = await collect(ScriptedEngine([say("Good morning to you.")]))
    deltas = [event.text for event in events if isinstance(event, TextDelta)]
    assert len(deltas) > 1
    assert "".join(deltas) == "Good morning to you."
    assert isinstance(events[-2], TurnEnded)
    assert events[-1] == RunEnded("stop", "Good morning to you.", Usage(2, 4, 0, turns=1))


async def test_a_call_is_run_and_its_result_goes_to_the_model():
    engine = ScriptedEngine([call("double", n=21), say("42")])
    events = await collect(engine, [double])
    assert engine.sessions[0].turns[1] == (
        {"role": "tool", "tool_call_id": "call_1", "name": "double", "content": "42"},
    )
    assert events[-1].text == "42"
    assert [event.result.content for event in events if isinstance(event, ToolReturned)] == ["42"]


async def test_results_are_yielded_as_they_come_and_sent_in_call_order():
    slow, quick = Gate("slow"), Gate("quick")
    engine = ScriptedEngine([calls(call("slow"), call("quick")), say("done")])
    quick.opened.set()
    returned = []
    async for event in start(engine, [slow.tool, quick.tool]):
        if isinstance(event, ToolReturned):
            returned.append(event.call.name)
            slow.opened.set()
    assert returned == ["quick", "slow"]
    assert answers(engine) == ["slow is open", "quick is open"]


async def test_a_tool_runs_while_the_model_still_decodes():
    gate = Gate()

    async def pace(event):
        # The second call is not decoded before the tool of the first one is at work.
        if isinstance(event, CallFinished) and event.name == "double":
            await gate.entered.wait()

    engine = ScriptedEngine([calls(call("wait"), call("double", n=1)), say("done")], pace=pace)
    gate.opened.set()
    events = await collect(engine, [gate.tool, double])
    assert events[-1].text == "done"


async def test_a_tool_may_return_before_the_turn_ends():
    left = asyncio.Event()

    @tool
    async def quick() -> str:
        """Return at once."""
        left.set()
        return "quick"

    async def pace(event):
        if isinstance(event, TurnEnded):
            await left.wait()

    engine = ScriptedEngine([calls(call("quick"), call("double", n=2)), say("done")], pace=pace)
    kinds = [type(event) for event in await collect(engine, [quick, double])]
    assert kinds.index(TurnEnded) < kinds.index(ToolReturned)
    assert answers(engine) == ["quick", "4"]


async def test_a_malformed_call_is_answered_to_the_model():
    engine = ScriptedEngine([malformed("<call>{", "unclosed brace", "double"), say("Sorry.")])
    events = await collect(engine, [double])
    assert any(isinstance(event, CallMalformed) for event in events)
    [returned] = [event for event in events if isinstance(event, ToolReturned)]
    assert returned.result.error == "malformed_call"
    assert answers(engine) == [returned.result.content]
    assert "unclosed brace" in returned.result.content
    assert events[-1].text == "Sorry."


async def test_a_malformed_call_among_good_ones_keeps_its_place():
    turn = calls(call("double", n=1), malformed("<call>", "no name"), call("double", n=3))
    engine = ScriptedEngine([turn, say("ok")])
    events = await collect(engine, [double])
    first, second, third = answers(engine)
    assert (first, third) == ("2", "6")
    assert "no name" in second
    assert events[-1].usage.calls == 3


async def test_an_unknown_tool_is_an_error_for_the_model():
    engine = ScriptedEngine([call("treble", n=1), say("I cannot.")])
    events = await collect(engine, [double], client_tools={"other"})
    [returned] = [event for event in events if isinstance(event, ToolReturned)]
    assert returned.result.error == "unknown_tool"
    assert "double" in answers(engine)[0]
    assert events[-1].reason == "stop"


async def test_a_failing_tool_does_not_end_the_run():
    engine = ScriptedEngine([calls(call("broken"), call("double", n=2)), say("Well.")])
    events = await collect(engine, [broken, double])
    assert answers(engine) == ["error: no such luck", "4"]
    assert events[-1].text == "Well."


async def test_invalid_arguments_are_an_error_for_the_model():
    engine = ScriptedEngine([call("double", n="many"), say("Well.")])
    events = await collect(engine, [double])
    assert [e.result.error for e in events if isinstance(e, ToolReturned)] == ["invalid_arguments"]
    assert events[-1].text == "Well."


async def test_calls_of_the_callers_tools_end_the_run():
    engine = ScriptedEngine([calls(call("ask_user", q="Why?"), text="One moment.")])
    events = await collect(engine, [double], client_tools={"ask_user"})
    ended = events[-1]
    assert (ended.reason, ended.text) == ("calls", "One moment.")
    assert [(c.id, c.name, c.arguments) for c in ended.calls] == [
        ("call_1", "ask_user", '{"q": "Why?"}')
    ]
    assert ended.usage.calls == 1


async def test_own_calls_of_a_turn_with_the_callers_are_cancelled():
    gate = Gate()

    async def pace(event):
        if isinstance(event, TurnEnded):
            await gate.entered.wait()

    engine = ScriptedEngine([calls(call("wait"), call("ask_user"))], pace=pace)
    events = await collect(engine, [gate.tool], client_tools={"ask_user"})
    assert gate.cancelled
    assert not any(isinstance(event, ToolReturned) for event in events)
    assert [c.name for c in events[-1].calls] == ["ask_user"]


async def test_own_and_callers_calls_in_different_turns():
    engine = ScriptedEngine([call("double", n=4), call("ask_user")])
    events = await collect(engine, [double], client_tools={"ask_user"})
    assert events[-1].reason == "calls"
    assert events[-1].usage.turns == 2


async def test_without_pausing_every_call_is_the_callers():
    engine = ScriptedEngine([calls(call("double", n=1), call("nobodys"))])
    events = await collect(engine, [double], pausing=False)
    assert [c.name for c in events[-1].calls] == ["double", "nobodys"]


async def test_without_pausing_a_malformed_call_is_text():
    engine = ScriptedEngine([calls(malformed("<call>{", "no end"), text="So: ")])
    ended = (await collect(engine, pausing=False))[-1]
    assert (ended.reason, ended.text) == ("stop", "So: <call>{")


async def test_inline_calls_go_on_with_the_sentence():
    engine = ScriptedEngine(
        [inline("12*7 is ", "double", n=42), inline(" and then ", "double", n=1), say(" it is.")]
    )
    events = await collect(engine, [double])
    assert events[-1].text == "12*7 is  and then  it is."
    assert all(event.inline for event in events if isinstance(event, CallFinished))


async def test_text_of_a_turn_of_calls_is_not_part_of_the_answer():
    engine = ScriptedEngine([calls(call("double", n=1), text="Let me see."), say("It is 2.")])
    assert (await collect(engine, [double]))[-1].text == "It is 2."


async def test_usage_is_summed_over_turns():
    engine = ScriptedEngine([calls(call("double", n=1), text="Let me see."), say("It is 2.")])
    ended = (await collect(engine, [double]))[-1]
    # Turn 1: 2 words in, 3 words and `double {"n": 1}` out. Turn 2: "2" in, 3 words out.
    assert ended.usage == Usage(3, 3 + 3 + 3, 8, turns=2, calls=1)


async def test_leaving_early_cancels_the_tools():
    gate = Gate()
    engine = ScriptedEngine([call("wait")])
    async with aclosing(start(engine, [gate.tool])) as events:
        async for _ in events:
            if gate.entered.is_set():
                break
            await asyncio.sleep(0)
    assert gate.cancelled


async def test_cancelling_the_consumer_cancels_the_tools():
    gate = Gate()
    task = asyncio.create_task(collect(ScriptedEngine([call("wait")]), [gate.tool]))
    await gate.entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert gate.cancelled


async def test_an_engine_that_fails_raises_and_cancels_the_tools():
    gate = Gate()

    async def pace(event):
        if isinstance(event, TurnEnded):
            await gate.entered.wait()
            raise EngineFailed("out of memory")

    engine = ScriptedEngine([call("wait")], pace=pace)
    with pytest.raises(EngineFailed, match="out of memory"):
        await collect(engine, [gate.tool])
    assert gate.cancelled


async def test_the_engines_error_passes_through_after_its_text():
    seen = []
    with pytest.raises(EngineFailed):
        async for event in start(ScriptedEngine([fail(EngineFailed("gone"), "Half an ans")]), []):
            seen.append(event)
    assert "".join(event.text for event in seen) == "Half an ans"


async def test_a_turn_without_an_end_is_the_engines_failure():
    class Mute:
        async def turn(self, messages, sampling=None):
            yield TextDelta("...")

        async def close(self):
            pass

    events = run(Mute(), ASK, Dispatcher(Registry()), RunContext())
    with pytest.raises(EngineFailed, match="ended a turn without"):
        async for _ in events:
            pass


async def test_the_loop_leaves_the_session_open():
    engine = ScriptedEngine([say("Hi.")])
    await collect(engine)
    assert engine.open_sessions == 1
