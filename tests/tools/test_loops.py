"""Work that runs on another event loop than where it is awaited."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing
from contextvars import ContextVar

import pytest

from caesura.tools.loops import LoopEnded, asking_loop, items_of, on_loop
from tests.kit.loops import another_loop

WHO: ContextVar[str] = ContextVar("who", default="nobody")


async def where() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


async def test_work_runs_there_and_in_this_context() -> None:
    async def told() -> tuple[asyncio.AbstractEventLoop, str, asyncio.AbstractEventLoop]:
        return asyncio.get_running_loop(), WHO.get(), asking_loop()

    here = asyncio.get_running_loop()
    token = WHO.set("me")
    with another_loop() as there:
        assert await on_loop(there, told) == (there, "me", here)
        assert await on_loop(here, told) == (here, "me", here)
        assert await on_loop(there, lambda: on_loop(asking_loop(), where)) is here
    WHO.reset(token)
    assert asking_loop() is here


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyError("k")])
async def test_an_error_is_the_same_here_and_ends_no_loop(error: BaseException) -> None:
    async def fail() -> None:
        raise error

    with another_loop() as there:
        with pytest.raises(type(error)) as caught:
            await on_loop(there, fail)
        assert caught.value is error
        assert await on_loop(there, where) is there


async def test_a_cancellation_reaches_the_work_and_waits_for_its_end() -> None:
    began, ended = threading.Event(), threading.Event()

    async def work() -> None:
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.set()

    with another_loop() as there:
        task = asyncio.create_task(on_loop(there, work))
        await asyncio.to_thread(began.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()


async def test_work_that_answers_its_cancellation_has_ended_with_that() -> None:
    began = threading.Event()

    async def stubborn() -> str:
        try:
            began.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "no"
        return "yes"

    with another_loop() as there:
        task = asyncio.create_task(on_loop(there, stubborn))
        await asyncio.to_thread(began.wait)
        task.cancel()
        assert await task == "no"


async def test_a_loop_that_does_not_run_is_told_at_once() -> None:
    loop = asyncio.new_event_loop()
    with pytest.raises(LoopEnded, match="does not run"):
        await on_loop(loop, where)
    loop.close()
    with pytest.raises(LoopEnded, match="does not run"):
        await on_loop(loop, where)


async def test_a_loop_that_ends_within_the_work_is_told() -> None:
    began = threading.Event()

    async def work() -> None:
        began.set()
        await asyncio.Event().wait()

    with another_loop() as there:
        task = asyncio.create_task(on_loop(there, work))
        await asyncio.to_thread(began.wait)
    with pytest.raises(LoopEnded):
        await task


class Counting:
    """A generator that counts, and notes how far it came and how it ended."""

    def __init__(self, count: int, error: Exception | None = None) -> None:
        self.count, self.error = count, error
        self.made = 0
        self.ended = threading.Event()

    async def items(self) -> AsyncGenerator[int, None]:
        try:
            for number in range(self.count):
                self.made = number + 1
                yield number
            if self.error is not None:
                raise self.error
        finally:
            self.ended.set()


async def test_items_cross_in_order_and_the_error_comes_last() -> None:
    counting = Counting(1000, ValueError("the end"))
    got = []
    with another_loop() as there, pytest.raises(ValueError, match="the end"):
        async for item in items_of(there, counting.items):
            got.append(item)
    assert got == list(range(1000))


async def test_the_generator_waits_for_a_slow_reader() -> None:
    counting = Counting(10_000)
    with another_loop() as there:
        async with aclosing(items_of(there, counting.items, most=8)) as items:
            for expected in range(50):
                assert await anext(items) == expected
                # What has been read, one batch in the reader's hands, and one on its way.
                assert counting.made <= expected + 1 + 2 * 8
                await on_loop(there, where)
        assert counting.ended.is_set()
    assert counting.made < 200


async def test_a_reader_that_leaves_closes_the_generator() -> None:
    counting = Counting(10_000)
    with another_loop() as there:
        async with aclosing(items_of(there, counting.items)) as items:
            async for item in items:
                if item == 3:
                    break
        assert counting.ended.is_set()


async def test_a_reader_that_is_cancelled_closes_the_generator() -> None:
    closed = threading.Event()

    async def silent() -> AsyncGenerator[int, None]:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            closed.set()

    async def read() -> None:
        async with aclosing(items_of(there, silent)) as items:
            async for _ in items:
                got.set()

    got = asyncio.Event()
    with another_loop() as there:
        task = asyncio.create_task(read())
        await got.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert closed.is_set()


async def test_a_generator_whose_readers_loop_has_vanished_is_closed() -> None:
    counting = Counting(1_000_000)

    async def begin() -> None:
        items = items_of(there, counting.items, most=4)
        kept.append(items)
        assert await anext(items) == 0

    kept: list[AsyncGenerator[int, None]] = []
    with another_loop() as there:
        loop = asyncio.new_event_loop()
        await asyncio.to_thread(loop.run_until_complete, begin())
        left = asyncio.all_tasks(loop)
        for task in left:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()  # without what `asyncio.run` does at its end
        assert await asyncio.to_thread(counting.ended.wait, 60)
    assert counting.made < 1_000_000
