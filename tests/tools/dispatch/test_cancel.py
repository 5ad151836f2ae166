import asyncio
import contextlib
import threading

import pytest

from caesura.tools import Dispatcher, Registry, Tool, ToolCall, tool

pytestmark = pytest.mark.timeout(120)


class Endless:
    """A tool that runs until it is cancelled, and remembers how it went."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.log: list[str] = []

        @tool
        async def endless() -> None:
            self.log.append("begun")
            self.begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)  # a clean-up that takes a moment
                self.log.append("ended")

        self.tool: Tool = endless


def call(name: str) -> ToolCall:
    return ToolCall("c1", name, "{}")


async def test_cancel_ends_the_tool_and_gives_a_result():
    endless = Endless()
    session = Dispatcher(Registry([endless.tool]))
    task = session.start(call("endless"))
    await endless.begun.wait()
    await session.cancel()
    assert endless.log == ["begun", "ended"]
    assert task.done()
    result = await task
    assert (result.error, result.content, result.attempts) == ("cancelled", "error: cancelled", 1)
    assert session.in_flight == 0


async def test_a_call_cancelled_before_its_first_step_has_a_result_too():
    endless = Endless()
    session = Dispatcher(Registry([endless.tool]))
    task = session.start(call("endless"))
    await session.cancel()
    assert ((await task).error, (await task).attempts) == ("cancelled", 0)
    assert endless.log == []


async def test_those_who_await_get_the_cancelled_results():
    endless = Endless()
    session = Dispatcher(Registry([endless.tool]))
    waiting = asyncio.create_task(session.run_all([call("endless"), call("nothing")]))
    await endless.begun.wait()
    await session.cancel()
    assert [result.error for result in await waiting] == ["cancelled", "unknown_tool"]


async def test_after_cancel_the_session_goes_on_after_aclose_it_does_not():
    runs = []

    @tool
    async def count() -> int:
        runs.append(1)
        return len(runs)

    session = Dispatcher(Registry([count]))
    await session.cancel()
    assert (await session.run(call("count"))).content == "1"
    await session.aclose()
    await session.aclose()
    result = await session.run(call("count"))
    assert (result.error, result.attempts, runs) == ("cancelled", 0, [1])


async def test_leaving_the_block_cancels_what_was_started():
    endless = Endless()
    async with Dispatcher(Registry([endless.tool])) as session:
        session.start(call("endless"))
        await endless.begun.wait()
    assert endless.log == ["begun", "ended"]


@pytest.mark.parametrize("way", ["run", "run_all", "start"])
async def test_cancelling_the_session_raises_there_and_ends_the_tool(way):
    endless = Endless()
    dispatcher = Dispatcher(Registry([endless.tool]))
    after = []

    async def session() -> None:
        if way == "run":
            await dispatcher.run(call("endless"))
        elif way == "run_all":
            await dispatcher.run_all([call("endless")])
        else:
            await dispatcher.start(call("endless"))
        after.append("went on")

    task = asyncio.create_task(session())
    await endless.begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert after == []
    assert endless.log == ["begun", "ended"]


async def test_a_tool_that_swallows_its_cancellation_does_not_swallow_the_sessions():
    begun = asyncio.Event()

    @tool
    async def stubborn() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "not me"
        return "never"

    task = asyncio.create_task(Dispatcher(Registry([stubborn])).run(call("stubborn")))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_sessions_own_cancellation_wins_over_the_dispatchers():
    endless = Endless()
    dispatcher = Dispatcher(Registry([endless.tool]))
    session = asyncio.create_task(dispatcher.run(call("endless")))
    await endless.begun.wait()
    closing = asyncio.create_task(dispatcher.cancel())
    await asyncio.sleep(0)
    session.cancel()
    with pytest.raises(asyncio.CancelledError):
        await session
    await closing


async def test_a_tool_that_answers_cancellation_with_an_error_is_not_retried():
    begun = asyncio.Event()
    runs = []

    @tool(retries=5, safe_to_repeat=True)
    async def grumpy() -> None:
        runs.append(1)
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError("leave me alone") from None

    session = Dispatcher(Registry([grumpy]))
    task = session.start(call("grumpy"))
    await begun.wait()
    await session.cancel()
    assert ((await task).error, runs) == ("cancelled", [1])


async def test_cancel_during_the_pause_before_a_retry():
    paused = asyncio.Event()

    async def pause(seconds: float) -> None:
        paused.set()
        await asyncio.Event().wait()

    @tool(retries=1, safe_to_repeat=True)
    async def flaky() -> None:
        raise OSError

    session = Dispatcher(Registry([flaky]), sleep=pause)
    task = session.start(call("flaky"))
    await paused.wait()
    await session.cancel()
    assert ((await task).error, (await task).attempts) == ("cancelled", 1)


async def test_a_tool_that_cancels_itself_does_not_harm_others():
    @tool
    async def quitter() -> None:
        raise asyncio.CancelledError

    result = await Dispatcher(Registry([quitter])).run(call("quitter"))
    assert result.error == "cancelled"


async def test_a_tool_may_end_its_own_session():
    endless = Endless()
    sessions: list[Dispatcher] = []

    @tool
    async def finish() -> str:
        await sessions[0].aclose()
        return "finished"

    session = Dispatcher(Registry([endless.tool, finish]))
    sessions.append(session)
    other = session.start(call("endless"))
    await endless.begun.wait()
    assert (await session.run(call("finish"))).content == "finished"
    assert (await other).error == "cancelled"


async def test_a_cancelled_plain_tool_is_abandoned():
    begun, release = threading.Event(), threading.Event()

    @tool
    def blocking() -> None:
        begun.set()
        release.wait(60)

    session = Dispatcher(Registry([blocking]))
    task = session.start(call("blocking"))
    assert await asyncio.to_thread(begun.wait, 10)
    await session.aclose()
    assert not release.is_set()
    assert (await task).error == "cancelled"
    release.set()


async def test_cancelling_twice_at_once_waits_twice():
    endless = Endless()
    session = Dispatcher(Registry([endless.tool]))
    task = session.start(call("endless"))
    await endless.begun.wait()
    await asyncio.gather(session.cancel(), session.aclose())
    assert (await task).error == "cancelled"
    assert endless.log == ["begun", "ended"]


class Stubborn:
    """A tool that swallows every cancellation, until the test releases it."""

    def __init__(self, **options) -> None:
        self.begun = asyncio.Event()
        self.released = asyncio.Event()

        @tool(**options)
        async def stubborn() -> str:
            self.begun.set()
            while not self.released.is_set():
                with contextlib.suppress(BaseException):
                    await self.released.wait()
            return "at last"

        self.tool: Tool = stubborn


async def test_a_tool_that_swallows_its_time_out_is_given_up(caplog):
    stubborn = Stubborn(timeout_seconds=0.01, retries=3, safe_to_repeat=True)
    registry = Registry([stubborn.tool])
    result = await Dispatcher(registry, grace_seconds=0.01).run(call("stubborn"))
    assert (result.error, result.content) == ("timeout", "error: no answer within 0.01 seconds")
    assert result.attempts == 1  # a second run would run beside the first
    assert registry.observed["stubborn"].given_up == 1
    assert "the tool stubborn was cancelled and still runs" in caplog.text
    stubborn.released.set()


async def test_a_tool_that_swallows_its_cancellation_is_given_up():
    stubborn = Stubborn()
    registry = Registry([stubborn.tool])
    dispatcher = Dispatcher(registry, grace_seconds=0.01)
    running = dispatcher.start(call("stubborn"))
    await stubborn.begun.wait()
    await dispatcher.aclose()
    assert (await running).error == "cancelled"
    assert registry.observed["stubborn"].given_up == 1
    stubborn.released.set()


async def test_a_tool_that_is_given_up_leaves_its_slot_to_others():
    stubborn = Stubborn(timeout_seconds=0.01, concurrency=1)
    dispatcher = Dispatcher(Registry([stubborn.tool]), grace_seconds=0.01)
    results = await dispatcher.run_all([call("stubborn"), call("stubborn")])
    assert [result.error for result in results] == ["timeout", "timeout"]
    stubborn.released.set()


def test_a_tool_that_is_given_up_does_not_hold_the_end_of_the_loop():
    async def main() -> None:
        dispatcher = Dispatcher(Registry([Stubborn(timeout_seconds=0.01).tool]), grace_seconds=0.01)
        assert (await dispatcher.run(call("stubborn"))).error == "timeout"

    asyncio.run(main())


async def test_a_tool_that_cancels_its_own_task_gets_a_result():
    @tool
    async def quitter() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    result = await Dispatcher(Registry([quitter])).run(call("quitter"))
    assert result.error == "cancelled"


async def test_a_tool_that_raises_generator_exit_gets_a_result():
    @tool
    async def leaver() -> None:
        raise GeneratorExit

    result = await Dispatcher(Registry([leaver])).run(call("leaver"))
    assert (result.error, result.content) == ("failed", "error: the tool raised GeneratorExit")


async def test_broken_off_calls_raise_the_reason():
    endless = Endless()
    dispatcher = Dispatcher(Registry([endless.tool]))
    running = dispatcher.start(call("endless"))
    await endless.begun.wait()
    await dispatcher.break_off(LookupError("nobody can use it"))
    with pytest.raises(LookupError, match="nobody can use it"):
        await running
    assert endless.log == ["begun", "ended"]
    assert dispatcher.in_flight == 0
