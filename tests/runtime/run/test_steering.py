"""What is said to a run that is under way reaches the model behind what it has said."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from caesura.runtime.errors import UsageError
from caesura.runtime.events import (
    RunEnded,
    RunEvent,
    Steered,
    TextDelta,
    ToolReturned,
    TurnEnded,
)
from caesura.runtime.run.context import RunContext
from caesura.runtime.run.fold import Transcript
from caesura.runtime.run.loop import run
from caesura.runtime.run.steering import MAX_WORDS, Steering
from caesura.runtime.testing import ScriptedEngine, call, say
from caesura.scheduler.messages import SessionSpec
from caesura.tools import Dispatcher, Registry, Tool, tool
from caesura.tools.context import ToolRun

ASK = [{"role": "user", "content": "Tell me a story."}]
WORDS = {"role": "user", "content": "Make it short."}


@tool
async def double(n: int) -> int:
    """Double a number."""
    return 2 * n


class Live:
    """A run that something is said to at its events."""

    def __init__(self, engine: ScriptedEngine, tools: Sequence[Tool] = (), log: Any = None) -> None:
        self.steering, registry = Steering(), Registry(tools)
        self.session = engine.open(SessionSpec(registry.specs()))
        made = ToolRun(log=log)
        context = RunContext(registry, tools=made, steering=self.steering)
        self.stream = run(self.session, ASK, Dispatcher(registry, made), context)
        self.events: list[RunEvent] = []
        self.transcript = Transcript(ASK)

    async def end(self, at: Any = None, act: Any = None) -> RunEnded:
        """Read to the end; `act` once at the first event for which `at` holds."""
        async for event in self.stream:
            self.events.append(event)
            self.transcript.take(event)
            if act is not None and at(event):
                act()
                act = None
        await self.session.close()
        assert isinstance(self.events[-1], RunEnded)
        return self.events[-1]


def is_text(event: Any) -> bool:
    return isinstance(event, TextDelta)


async def test_a_running_turn_is_cut_and_the_same_session_goes_on() -> None:
    live = Live(ScriptedEngine([say("Once upon a time there was a king."), say("The end.")]))
    told: list[asyncio.Future[bool]] = []
    ended = await live.end(is_text, lambda: told.append(live.steering.say("Make it short.")))
    assert await told[0] and ended.reason == "stop" and ended.text == "The end."
    ends = [each.reason for each in live.events if isinstance(each, TurnEnded)]
    assert ends == ["cut", "stop"]
    assert live.session.turns[1] == (WORDS,)
    messages = live.transcript.messages
    assert [each["role"] for each in messages] == ["user", "assistant", "user", "assistant"]
    assert "Once upon a time there was a king.".startswith(messages[1]["content"])
    assert len(messages[1]["content"]) < 30
    assert messages == live.session.messages
    assert [each.message for each in live.events if isinstance(each, Steered)] == [WORDS]


async def test_words_behind_a_turn_of_calls_follow_their_results() -> None:
    live = Live(ScriptedEngine([call("double", n=2), say("Four.")]), [double])
    ended = await live.end(
        lambda event: isinstance(event, TurnEnded), lambda: live.steering.say("Make it short.")
    )
    assert ended.text == "Four."
    assert [each["role"] for each in live.session.turns[1]] == ["tool", "user"]
    assert live.transcript.messages == live.session.messages


async def test_words_that_come_while_a_turn_waits_for_a_late_result_wake_it() -> None:
    opened = asyncio.Event()

    @tool(background=True)
    async def look() -> str:
        """Look."""
        await opened.wait()
        return "seen"

    script = [call("look"), say("I wait."), say("I am short."), say("Seen.")]
    engine = ScriptedEngine(script)

    async def pace(event: Any) -> None:
        if len(engine.sessions[0].turns) == 3:
            opened.set()

    engine.pace = pace
    live = Live(engine, [look])
    ended = await live.end(
        lambda event: isinstance(event, TurnEnded) and event.reason == "stop",
        lambda: live.steering.say("Make it short."),
    )
    assert ended.text in ("Seen.", "I am short.")
    assert live.session.turns[2] == (WORDS,)
    assert live.transcript.messages == live.session.messages


async def test_words_of_before_do_not_end_a_later_wait() -> None:
    """They came while a call was waited for, and were told then."""
    opened = asyncio.Event()

    @tool(background=True)
    async def look() -> str:
        """Look."""
        await opened.wait()
        return "seen"

    async def pace(event: Any) -> None:
        if isinstance(event, TurnEnded) and event.reason == "stop":
            asyncio.get_running_loop().call_later(0.01, opened.set)

    script = [call("look"), call("double", n=2), say("Four, and I wait."), say("Seen.")]
    live = Live(ScriptedEngine(script, pace=pace), [look, double])
    ended = await live.end(
        lambda event: isinstance(event, ToolReturned), lambda: live.steering.say("Make it short.")
    )
    assert ended.text == "Seen."
    assert [each["role"] for each in live.session.turns[2]] == ["tool", "user"]


async def test_a_late_result_may_cut_the_text() -> None:
    opened, written = asyncio.Event(), asyncio.Event()

    @tool(background=True, cuts=True)
    async def look() -> str:
        """Look."""
        await opened.wait()
        return "seen"

    async def pace(event: Any) -> None:
        if written.is_set() and not opened.is_set():
            opened.set()
            for _ in range(50):  # the result comes before the text goes on
                await asyncio.sleep(0)
        if is_text(event):
            written.set()

    story = "Once upon a time there was a king who had no name at all."
    engine = ScriptedEngine([call("look"), say(story), say("Seen.")], pace=pace)
    live = Live(engine, [look])
    ended = await live.end()
    assert ended.text == "Seen." and ended.reason == "stop"
    ends = [each.reason for each in live.events if isinstance(each, TurnEnded)]
    assert ends == ["call", "cut", "stop"]
    assert live.session.turns[2][0]["late"] is True
    assert live.transcript.messages == live.session.messages


async def test_a_run_is_interrupted_and_its_session_goes_on() -> None:
    engine = ScriptedEngine([say("Once upon a time there was a king."), say("Hello.")])
    live = Live(engine)
    live.session.close = _nothing  # type: ignore[method-assign]
    ended = await live.end(is_text, live.steering.stop)
    assert ended.reason == "interrupted"
    assert "Once upon a time there was a king.".startswith(ended.text)
    assert not live.transcript.settle()
    events = [each async for each in live.session.turn([WORDS])]
    assert events[-1].reason == "stop"


async def _nothing(**_: Any) -> None:
    pass


async def test_what_is_said_too_late_is_told_to_nobody() -> None:
    live = Live(ScriptedEngine([say("Hello.")]))
    told: list[asyncio.Future[bool]] = []
    at_the_end = lambda event: isinstance(event, RunEnded)  # noqa: E731
    await live.end(at_the_end, lambda: told.append(live.steering.say("Make it short.")))
    assert not await told[0]
    with pytest.raises(UsageError, match="has ended"):
        live.steering.say("Hello?")


async def test_only_so_much_waits_to_be_told() -> None:
    steering = Steering()
    for _ in range(MAX_WORDS):
        steering.say("Make it short.")
    with pytest.raises(UsageError, match="wait to be told"):
        steering.say("Make it short.")
    assert len(steering.take()) == MAX_WORDS


class Log:
    """What a run did before."""

    def __init__(self, said: dict[int, list[Any]], turns: int) -> None:
        self.said, self.turns, self.now = said, turns, []

    def result_of(self, call: Any) -> None:
        return None

    def notice(self, call: Any, tool: Any) -> str:
        return ""

    async def starts(self, call: Any, tool: Any) -> None:
        pass

    def ended(self, result: Any) -> None:
        pass

    def said_before(self, turn: int) -> Sequence[Any] | None:
        return self.said.get(turn, () if turn < self.turns else None)

    def says(self, turn: int, messages: Sequence[Any]) -> None:
        self.now.append((turn, list(messages)))


async def test_what_was_said_is_said_again_in_the_same_place() -> None:
    script = [say("Once."), say("Twice."), say("The end.")]
    live = Live(ScriptedEngine(script), log=Log({1: [WORDS], 2: [WORDS]}, 3))
    ended = await live.end()
    assert ended.text == "The end."
    assert [each["content"] for each in live.transcript.messages] == [
        *("Tell me a story.", "Once.", "Make it short.", "Twice.", "Make it short.", "The end."),
    ]


async def test_what_is_said_is_written_down() -> None:
    log = Log({}, 0)
    live = Live(ScriptedEngine([say("Once upon a time."), say("The end.")]), log=log)
    await live.end(is_text, lambda: live.steering.say("Make it short."))
    assert log.now == [(1, [WORDS])]
