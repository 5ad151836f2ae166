"""Calls in the background: the model goes on, and is told their results between its turns."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from caesura.runtime.errors import EngineFailed, UsageError
from caesura.runtime.events import (
    CallGoesOn,
    RunEnded,
    RunEvent,
    TextDelta,
    ToolReported,
    ToolReturned,
    TurnEnded,
)
from caesura.runtime.run.context import RunContext, pauses_of
from caesura.runtime.run.fold import CANCELLED, Transcript, acknowledgement, late_message
from caesura.runtime.run.limits import Limits
from caesura.runtime.run.loop import run
from caesura.runtime.testing import ScriptedEngine, call, calls, inline, say
from caesura.scheduler.messages import LATE, Message, SessionSpec, late_as_user
from caesura.tools import Dispatcher, Registry, Tool, tool
from caesura.tools.context import ToolRun, current
from caesura.tools.result import ToolCall, ToolResult
from tests.kit.waiting import until

ASK = [{"role": "user", "content": "Go on."}]


@tool
async def double(n: int) -> int:
    """Double a number."""
    return 2 * n


class Gate:
    """A tool in the background, which stays until it is opened."""

    def __init__(self, name: str = "look", **options: Any) -> None:
        self.opened, self.cancelled = asyncio.Event(), False
        self.made = 0

        async def look() -> str:
            """Look."""
            self.made += 1
            try:
                await self.opened.wait()
            except asyncio.CancelledError:
                self.cancelled = True
                raise
            return f"{name} saw it"

        self.tool = tool(name=name, background=True, **options)(look)


async def collect(
    engine: ScriptedEngine, tools: Sequence[Tool], log: Any = None, **options: Any
) -> list[RunEvent]:
    registry = Registry(tools)
    session = engine.open(SessionSpec(registry.specs()))
    made = ToolRun(log=log)
    context = RunContext(registry, tools=made, **options)
    events = [each async for each in run(session, ASK, Dispatcher(registry, made), context)]
    await session.close()
    return events


def told(events: Sequence[RunEvent]) -> Transcript:
    transcript = Transcript(ASK)
    for event in events:
        transcript.take(event)
    return transcript


def texts(messages: Sequence[Message]) -> list[str]:
    return [each["content"] for each in messages]


async def test_the_model_goes_on_while_a_call_runs_and_is_told_its_result_later():
    gate = Gate()

    def write(messages: Sequence[Message], tools: Any) -> Any:
        match len(messages):
            case 1:
                return call("look")
            case 3:  # the call and its acknowledgement
                gate.opened.set()
                return say("I go on.")
            case _:
                return say("It saw it.")

    engine = ScriptedEngine(write)
    events = await collect(engine, [gate.tool])
    (session,) = engine.sessions
    assert [len(turn) for turn in session.turns] == [1, 1, 1]
    assert session.turns[1][0]["content"] == acknowledgement("call_1", "look")
    assert session.turns[2] == (late_message("call_1", "look", "look saw it"),)
    assert session.held_turns == [2]  # the turn that waits at its end, and no other
    kinds = [type(each) for each in events if not isinstance(each, TurnEnded)]
    assert kinds.index(CallGoesOn) < kinds.index(ToolReturned)
    assert events[-1] == RunEnded("stop", "It saw it.", events[-1].usage)
    assert told(events).messages == session.messages


async def test_a_result_that_comes_while_the_model_writes_is_told_at_the_end_of_the_turn():
    gate = Gate()

    async def pace(event: object) -> None:
        if isinstance(event, TextDelta):
            gate.opened.set()

    engine = ScriptedEngine(
        [call("look"), calls(call("double", n=1), text="Meanwhile."), say("Done.")], pace=pace
    )
    await collect(engine, [gate.tool, double])
    assert texts(engine.sessions[0].turns[2]) == [
        "2",
        late_message("call_1", "look", "look saw it")["content"],
    ]


async def test_a_turn_waits_for_the_calls_that_are_not_in_the_background_alone():
    gate = Gate()
    engine = ScriptedEngine(
        [calls(call("look"), call("double", n=4)), say("Eight."), say("And it saw it.")]
    )

    async def pace(event: object) -> None:
        if isinstance(event, TurnEnded) and event.reason == "stop":
            gate.opened.set()

    engine.pace = pace
    events = await collect(engine, [gate.tool, double])
    (session,) = engine.sessions
    assert texts(session.turns[1]) == [acknowledgement("call_1", "look"), "8"]
    assert texts(session.turns[2]) == [late_message("call_1", "look", "look saw it")["content"]]
    assert told(events).messages == session.messages


async def test_late_results_follow_those_of_a_later_turns_calls():
    gate = Gate()

    @tool
    async def open_it() -> str:
        """Open the gate, and wait for what it lets through."""
        gate.opened.set()
        for _ in range(50):  # its result comes first
            await asyncio.sleep(0)
        return "open"

    engine = ScriptedEngine([call("look"), call("open_it"), say("Done.")])
    events = await collect(engine, [gate.tool, open_it])
    (session,) = engine.sessions
    assert texts(session.turns[2]) == [
        "open",
        late_message("call_1", "look", "look saw it")["content"],
    ]
    assert session.turns[2][1][LATE] is True
    returned = [each.call.name for each in events if isinstance(each, ToolReturned)]
    assert returned == ["open_it", "look"]
    assert told(events).messages == session.messages


async def test_a_result_that_is_there_when_its_turn_ends_is_no_late_one():
    gate = Gate()
    gate.opened.set()
    engine = ScriptedEngine([calls(call("look"), call("double", n=1)), say("Done.")])

    async def pace(event: object) -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    engine.pace = pace
    events = await collect(engine, [gate.tool, double])
    (session,) = engine.sessions
    assert texts(session.turns[1]) == ["look saw it", "2"]
    assert not any(isinstance(each, CallGoesOn) for each in events)
    assert session.held_turns == []


async def test_a_call_in_the_middle_of_a_sentence_is_waited_for():
    gate, engine = Gate(), ScriptedEngine([inline("I see ", "look"), say("!")])
    gate.opened.set()
    events = await collect(engine, [gate.tool])
    assert texts(engine.sessions[0].turns[1]) == ["look saw it"]
    assert not any(isinstance(each, CallGoesOn) for each in events)


async def test_a_bound_ends_the_wait_with_the_answer_that_there_is():
    gate, engine = Gate(), ScriptedEngine([call("look"), say("I can't wait.")])
    events = await collect(engine, [gate.tool], limits=Limits(max_wait_seconds=0))
    assert events[-1].text == "I can't wait." and gate.cancelled
    history = told(events)
    assert history.settle()
    assert history.messages[-1] == late_message("call_1", "look", CANCELLED)


async def test_a_wait_that_is_too_long_ends_too():
    gate, engine = Gate(), ScriptedEngine([call("look"), say("Enough.")])
    events = await collect(engine, [gate.tool], limits=Limits(max_wait_seconds=0.01))
    assert events[-1].text == "Enough." and gate.cancelled


async def test_leaving_the_run_cancels_the_calls_in_the_background():
    gate, engine = Gate(), ScriptedEngine([call("look"), say("I go on.")])
    registry = Registry([gate.tool])
    session = engine.open(SessionSpec(registry.specs()))
    events = run(session, ASK, Dispatcher(registry), RunContext(registry))
    async for event in events:
        if isinstance(event, TurnEnded) and event.reason == "stop":
            break
    await events.aclose()
    assert gate.cancelled


async def test_the_engine_is_told_how_long_the_first_result_will_take():
    gate = Gate(expected_seconds=40)
    engine = ScriptedEngine([call("look"), say("I go on."), say("Done.")])

    opening = asyncio.create_task(
        until(lambda: bool(engine.sessions and engine.sessions[0].expected_pauses))
    )
    opening.add_done_callback(lambda _: gate.opened.set())
    await collect(engine, [gate.tool])
    (seconds,) = engine.sessions[0].expected_pauses
    assert 0 < seconds <= 40


async def test_a_tool_in_the_background_reports_while_a_turn_waits():
    opened = asyncio.Event()

    @tool(background=True)
    async def count() -> str:
        """Count."""
        await opened.wait()
        current().report("half of it")
        return "all of it"

    engine = ScriptedEngine([call("count"), say("I go on."), say("Done.")])

    async def pace(event: object) -> None:
        if isinstance(event, TurnEnded) and event.reason == "stop":
            opened.set()

    engine.pace = pace
    events = await collect(engine, [count])
    assert [each.text for each in events if isinstance(each, ToolReported)] == ["half of it"]


class Log:
    """A log of calls that were made before."""

    def __init__(self, results: dict[str, str], late: list[list[str]]) -> None:
        self.results, self.late, self.told = results, late, []

    def result_of(self, call: ToolCall) -> ToolResult | None:
        content = self.results.get(call.id)
        if content is None:
            return None
        return ToolResult(call.id, call.name, content, None, 0.0, 0.0, 1)

    def notice(self, call: ToolCall, tool: Tool) -> str:
        return ""

    async def starts(self, call: ToolCall, tool: Tool) -> None:
        pass

    def ended(self, result: ToolResult) -> None:
        pass

    def said_before(self, turn: int) -> None:
        return None

    def told_before(self) -> Sequence[str] | None:
        return self.late.pop(0) if self.late else None

    def tells(self, calls: Sequence[str]) -> None:
        self.told.append(list(calls))


async def test_a_run_that_is_driven_again_tells_results_where_it_told_them_before():
    gate = Gate()
    script = [call("look"), call("double", n=1), call("double", n=2), say("Done.")]
    log = Log({"call_1": "seen"}, [[], [], ["call_1"]])
    engine = ScriptedEngine(script)
    events = await collect(engine, [gate.tool, double], log)
    (session,) = engine.sessions
    # Its result was there from the begin, but was told behind the third turn.
    assert [texts(each) for each in session.turns[1:]] == [
        [acknowledgement("call_1", "look")],
        ["2"],
        ["4", late_message("call_1", "look", "seen")["content"]],
    ]
    assert gate.made == 0 and log.told == []
    assert told(events).messages == session.messages


async def test_a_log_of_another_run_is_told():
    log = Log({}, [["call_7"]])
    with pytest.raises(EngineFailed, match="call_7"):
        await collect(ScriptedEngine([call("look")]), [Gate().tool], log)


async def test_what_is_told_where_is_written_down():
    gate = Gate()
    gate.opened.set()
    log, engine = Log({}, []), ScriptedEngine([call("look"), say("Hm."), say("Done.")])
    await collect(engine, [gate.tool], log)
    assert [each for each in log.told if each] == [["call_1"]]


async def test_a_results_place_is_known_without_a_template_that_takes_it():
    late = late_message("call_1", "look", "seen")
    assert late_as_user([*ASK, late]) == [*ASK, {"role": "user", "content": late["content"]}]


def test_a_pause_at_a_call_in_the_background_is_expected_to_be_short():
    @tool(background=True, expected_seconds=600)
    async def slow() -> str:
        """Be slow."""
        return ""

    assert pauses_of([slow])["slow"].seconds < 1


def test_only_a_late_result_can_cut_a_text():
    with pytest.raises(ValueError, match="needs background=True"):

        @tool(cuts=True)
        async def look() -> str:
            """Look."""
            return ""


def test_a_bound_of_the_wait_is_a_number_from_0():
    with pytest.raises(UsageError, match="max_wait_seconds"):
        Limits(max_wait_seconds=-1)
