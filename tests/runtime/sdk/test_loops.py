"""One agent on several event loops and threads: what it shares, and what each of them frees."""

import asyncio
import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Any

import pytest

from caesura.runtime.errors import EngineFailed, RequestFailed, UsageError
from caesura.runtime.sdk import across
from caesura.runtime.sdk import engines as shared
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.sdk.background import BACKGROUND
from caesura.runtime.testing import Item, ScriptedEngine, call, fail, say
from caesura.scheduler.messages import SessionSpec
from caesura.tools import Tool, tool
from caesura.tools.context import current
from caesura.tools.people import Pending
from tests.kit.loops import another_loop
from tests.kit.waiting import wait_until


class Here(ScriptedEngine):
    """A scripted engine that refuses every event loop but the one that made it."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.loop = asyncio.get_running_loop()
        self.pace = self._check

    async def _check(self, event: Any) -> None:
        assert asyncio.get_running_loop() is self.loop

    async def close(self) -> None:
        assert asyncio.get_running_loop() is self.loop
        await super().close()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Here]:
    """The engines that agents start by name: each calls `where` once, and then says "Hi."."""
    engines: list[Here] = []

    async def start(model: str | None) -> Here:
        def script(messages: Any, tools: Any) -> Any:
            asked = tools and messages[-1]["role"] == "user"
            return call(tools[0]["function"]["name"]) if asked else say("Hi.")

        engines.append(Here(script, model=str(model)))
        return engines[-1]

    monkeypatch.setattr(shared.ENGINES, "_launch", start)
    return engines


def where() -> Tool:
    """Return a tool that tells on which event loop it runs."""

    @tool
    async def where() -> str:
        """Tell."""
        return str(id(asyncio.get_running_loop()))

    return where


async def asked(agent: Agent[Any]) -> bool:
    """Run the agent; return whether its function ran on this event loop."""
    answer = await agent.run("Hi.")
    assert answer.text == "Hi."
    return answer.calls[0][1].content == str(id(asyncio.get_running_loop()))


def test_one_engine_serves_all_loops_and_threads(started: list[Here]) -> None:
    agent = Agent("tiny", [where()])
    assert agent.run_sync("Hi.").text == "Hi."
    for _ in range(2):
        assert asyncio.run(asked(agent))
    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(lambda _: asyncio.run(asked(agent)), range(6))) == [True] * 6
        said = threads.map(lambda _: agent.run_sync("Hi.").text, range(6))
        assert list(said) == ["Hi."] * 6
    with another_loop() as loop:
        assert asyncio.run_coroutine_threadsafe(asked(agent), loop).result()
    [engine] = started
    assert engine.open_sessions == 0
    asyncio.run(agent.aclose())
    assert engine.closed


def test_a_session_goes_on_in_another_loop(started: list[Here]) -> None:
    agent = Agent("tiny")
    session = agent.session()
    for _ in range(2):
        assert asyncio.run(session.run("Hi.")).text == "Hi."
    assert len(started[0].sessions) == 1
    assert len(session.messages) == 4
    asyncio.run(session.aclose())
    assert started[0].open_sessions == 0
    agent.close()


async def test_events_and_errors_are_those_of_the_same_loop() -> None:
    script: list[Item] = [call("look"), fail(RequestFailed("refused"), "It is")]

    async def look() -> str:
        """Look."""
        return "blue"

    async def read(engine: Any) -> list[Any]:
        events: list[Any] = []
        with pytest.raises(RequestFailed, match="refused"):
            async for event in Agent(engine, [look]).stream("Hi."):
                events.append(event)
        return events

    async def made() -> Here:
        return Here(script)

    direct = await read(ScriptedEngine(script))
    with another_loop() as loop:
        engine = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(made(), loop))
        assert list(map(type, await read(engine))) == list(map(type, direct))
        assert engine.open_sessions == 0
        engine.assert_finished()


async def test_on_its_own_loop_an_engine_is_used_directly() -> None:
    engine = Here([say("Hi.")])
    session = across.on_any_loop(engine).open(SessionSpec(()))
    turn = session.turn([{"role": "user", "content": "Hi."}])
    assert "Scripted" in turn.__qualname__  # type: ignore[attr-defined]
    async for _ in turn:
        pass
    await session.close()


async def test_leaving_a_stream_frees_the_session(started: list[Here]) -> None:
    async with Agent("tiny") as agent:
        async with aclosing(agent.stream("Hi.")) as events:
            await anext(events)
        assert started[0].open_sessions == 0


async def test_a_cancelled_run_frees_the_session(started: list[Here]) -> None:
    reached = asyncio.Event()

    async def wait() -> None:
        """Wait."""
        reached.set()
        await asyncio.Event().wait()

    async with Agent("tiny", [wait]) as agent:
        run = asyncio.create_task(agent.run("Hi."))
        await reached.wait()
        assert started[0].open_sessions == 1
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert started[0].open_sessions == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_session_is_freed_with_the_loop_of_its_run(
    started: list[Here], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(across, "WATCH_SECONDS", 0.05)
    reached: list[asyncio.Task[Any]] = []

    async def wait() -> None:
        """Wait."""
        reached.extend(asyncio.all_tasks())
        asyncio.get_running_loop().stop()
        await asyncio.Event().wait()

    agent = Agent("tiny", [wait])
    loop = asyncio.new_event_loop()
    run = loop.create_task(agent.run("Hi."))
    loop.run_forever()
    assert started[0].open_sessions == 1  # it is paused, and holds its KV
    for task in reached:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()  # without what `asyncio.run` does at its end
    wait_until(lambda: started[0].open_sessions == 0)
    del run
    reached.clear()
    gc.collect()  # what is left of the run has no loop to end on, and says so here
    agent.close()


def test_a_session_is_freed_when_it_is_collected(started: list[Here]) -> None:
    agent = Agent("tiny")
    session = agent.session()
    asyncio.run(session.run("Hi."))
    assert started[0].open_sessions == 1
    del session
    gc.collect()
    wait_until(lambda: started[0].open_sessions == 0)
    agent.close()


def test_an_engine_of_the_user_needs_its_loop_to_run() -> None:
    async def made() -> Here:
        return Here(lambda messages, tools: say("Hi."))

    with another_loop() as loop:
        engine = asyncio.run_coroutine_threadsafe(made(), loop).result()
        agent = Agent(engine)
        assert agent.run_sync("Hi.").text == "Hi."
        assert asyncio.run(agent.run("Hi.")).text == "Hi."
    closed = "the event loop that started it, which is closed"
    with pytest.raises(UsageError, match=closed):
        agent.run_sync("Hi.")
    with pytest.raises(UsageError, match=closed):
        asyncio.run(agent.run("Hi."))


async def test_an_engine_whose_loop_ends_within_a_turn_has_failed() -> None:
    hang = threading.Event()

    async def made() -> Here:
        async def script(messages: Any, tools: Any) -> Any:
            hang.set()
            await asyncio.Event().wait()

        return Here(script)

    with another_loop() as loop:
        engine = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(made(), loop))
        run = asyncio.create_task(Agent(engine).run("Hi."))
        await asyncio.to_thread(hang.wait)
    with pytest.raises(EngineFailed, match="within a turn"):
        await run


# -- tools, sources and people -------------------------------------------------------------------


class Source:
    """A source whose tool must run on the event loop that started it."""

    name, prefix = "files", False

    def __init__(self) -> None:
        self.tools: tuple[Tool, ...] = ()
        self.opened: list[asyncio.AbstractEventLoop] = []
        self.kept: list[tuple[str, asyncio.AbstractEventLoop]] = []
        self.starts = 0

    async def start(self) -> list[Tool]:
        loop = asyncio.get_running_loop()
        self.opened.append(loop)
        self.starts += 1

        async def close(kept: str) -> None:
            self.kept.append((kept, asyncio.get_running_loop()))

        async def make() -> str:
            return "kept"

        async def read() -> str:
            assert asyncio.get_running_loop() is loop
            current().report("half way")
            return await current().scope.keep("files", make, close)

        self.tools = (Tool.from_schema("read", "Read.", {"type": "object"}, read),)
        return list(self.tools)

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        return lambda: None

    async def aclose(self) -> None:
        self.opened.remove(asyncio.get_running_loop())


def test_a_source_is_started_once_and_its_tools_report_across(started: list[Here]) -> None:
    source = Source()
    agent = Agent("tiny", [source])

    async def read() -> list[str]:
        kinds = [type(event).__name__ async for event in agent.stream("Hi.")]
        return [kind for kind in kinds if kind.startswith("Tool")]

    for _ in range(2):
        assert asyncio.run(read()) == ["ToolReported", "ToolReturned"]
    agent.run_sync("Hi.")
    assert (source.starts, source.opened) == (1, [BACKGROUND.loop])
    assert source.kept == [("kept", BACKGROUND.loop)] * 3  # each session's resource, closed there
    asyncio.run(agent.aclose())
    assert source.opened == []


def test_people_are_asked_on_the_loop_of_the_run(started: list[Here]) -> None:
    loops: list[object] = []

    async def approve(item: Pending) -> bool:
        loops.append(asyncio.get_running_loop())
        return True

    async def ask() -> object:
        assert (await agent.run("Hi.")).text == "Hi."
        return asyncio.get_running_loop()

    @tool(approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    agent = Agent("tiny", [pay], on_approval=approve)
    asked = [asyncio.run(ask()) for _ in range(2)]
    assert [loops[0] is asked[0], loops[1] is asked[1]] == [True, True]
    agent.run_sync("Hi.")
    assert loops[2] is BACKGROUND.loop
    agent.close()


def test_an_approval_may_come_from_another_loop(started: list[Here]) -> None:
    @tool(approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    agent = Agent("tiny", [pay])
    session = agent.session()
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(lambda: asyncio.run(session.run("Hi.")))
        wait_until(lambda: bool(session.pending))
        asyncio.run(session.approve(session.pending[0].id))
        assert running.result().calls[0][1].content == "paid"
    asyncio.run(session.aclose())
    agent.close()
