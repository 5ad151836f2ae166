"""A session that is closed in the middle of calls of every kind leaves nothing behind."""

import asyncio
import threading
from contextlib import suppress
from dataclasses import replace

import pytest

from caesura.runtime.errors import UsageError
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.testing import ScriptedEngine, call, calls
from caesura.tools import Dispatcher, Registry, Tool, ToolCall, tool
from caesura.tools.context import current
from caesura.tools.worker import Worker, WorkerPool
from tests.kit.processes import nothing_left, started
from tests.kit.waiting import until
from tests.tools.working import HERE, MODULE

pytestmark = pytest.mark.timeout(120)


class Busy:
    """Tools of every kind, all of which hang; `begun` tells how many do."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.release = threading.Event()
        self.pool = WorkerPool(MODULE, 2, environment=HERE)
        self.tools: list[Tool] = [self._later(), self._threaded(), self._kept()]
        self.tools += [
            self._worker("sleeping", "sleep", seconds=600),
            self._worker("spinning", "spin", seconds=600),
            self._own_worker("breeding", "leave_a_child", then_hang=True),
            self._own_worker("estranged", "leave_a_child", own_session=True, then_hang=True),
            self._own_worker("starting", "sleep", seconds=600),
        ]

    def _later(self) -> Tool:
        @tool
        async def later() -> None:
            """Hang in the event loop."""
            self.begun.append("later")
            await asyncio.Event().wait()

        return later

    def _threaded(self) -> Tool:
        @tool
        def threaded() -> None:
            """Hang in a thread."""
            self.begun.append("threaded")
            self.release.wait(60)

        return threaded

    def _kept(self) -> Tool:
        @tool
        async def kept() -> None:
            """Hang in a worker that is kept for the session."""
            worker = await current().scope.keep(
                "worker", lambda: Worker.spawn(MODULE, environment=HERE), Worker.kill
            )
            await worker.call("leave_an_orphan")
            self.begun.append("kept")
            await worker.call("sleep", seconds=600)

        return kept

    def _worker(self, name: str, function: str, **arguments) -> Tool:
        @tool(name=name)
        async def work() -> None:
            """Hang in a worker of the pool."""
            self.begun.append(name)
            await self.pool.call(function, **arguments)

        return work

    def _own_worker(self, name: str, function: str, **arguments) -> Tool:
        @tool(name=name)
        async def work() -> None:
            """Hang in a worker of the call's own."""
            worker = await Worker.spawn(MODULE, environment=HERE)
            await worker.call("pid")
            self.begun.append(name)
            try:
                await worker.call(function, **arguments)
            finally:
                await worker.kill()

        return work

    async def all_begun(self) -> None:
        await until(lambda: len(self.begun) == len(self.tools))

    async def aclose(self) -> None:
        self.release.set()
        await self.pool.aclose()


@pytest.fixture
async def busy():
    async with nothing_left():
        made = Busy()
        yield made
        await made.aclose()


async def test_a_dispatcher_that_is_closed(busy):
    before = started()
    session = Dispatcher(Registry(busy.tools))
    tasks = [session.start(ToolCall(each.name, each.name, "{}")) for each in busy.tools]
    await busy.all_begun()
    assert len(started() - before) >= 10
    async with nothing_left():
        await session.aclose()
        assert {task.result().error for task in tasks} == {"cancelled"}
    assert started() - before == set()


@pytest.mark.parametrize("way", ["close", "cancel"])
async def test_an_agents_session(busy, way):
    before = started()
    async with ScriptedEngine([calls(*(call(each.name) for each in busy.tools))]) as engine:
        session = Agent(engine, busy.tools).session()
        run = asyncio.create_task(session.run("Do it all."))
        await busy.all_begun()
        if way == "cancel":
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
        await session.aclose()
        with suppress(UsageError, asyncio.CancelledError):
            await run
        assert started() - before == set()


@pytest.mark.parametrize("milliseconds", [0, 5, 20, 60, 150, 400])
async def test_a_session_that_is_closed_at_any_moment(busy, milliseconds):
    before = started()
    async with Dispatcher(Registry(busy.tools)) as session:
        for each in busy.tools:
            session.start(ToolCall(each.name, each.name, "{}"))
        await asyncio.sleep(milliseconds / 1000)
    # The pool is the process's, not the session's: an idle worker of it may be left.
    await busy.pool.aclose()
    assert started() - before == set()


async def test_calls_that_time_out(busy):
    before = started()
    limited = [replace(each, timeout_seconds=0.3) for each in busy.tools]
    async with Dispatcher(Registry(limited)) as session:
        results = await session.run_all(ToolCall(each.name, each.name, "{}") for each in limited)
        assert {result.error for result in results} == {"timeout"}
    await busy.pool.aclose()
    assert started() - before == set()
