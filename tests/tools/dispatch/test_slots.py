import asyncio
import threading
from dataclasses import replace

import pytest

from caesura.tools import Dispatcher, Registry, Tool, ToolCall, tool
from caesura.tools.limits import Slots
from caesura.tools.loops import on_loop
from tests.kit.loops import another_loop

pytestmark = pytest.mark.timeout(120)


class Gate:
    """A tool that holds its calls until it is opened, and counts them."""

    def __init__(self, **options) -> None:
        self.open = asyncio.Event()
        self.running = 0
        self.most = 0
        self.started = 0

        @tool(**options)
        async def gate() -> str:
            self.started += 1
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                await self.open.wait()
            finally:
                self.running -= 1
            return "through"

        self.tool: Tool = gate


def calls(count: int) -> list[ToolCall]:
    return [ToolCall(str(n), "gate", "{}") for n in range(count)]


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_the_limit_holds_across_two_sessions():
    gate = Gate(concurrency=2)
    registry = Registry([gate.tool])
    sessions = [Dispatcher(registry), Dispatcher(registry.select(["gate"]))]
    work = [asyncio.create_task(session.run_all(calls(3))) for session in sessions]
    await settle()
    assert gate.running == 2
    gate.open.set()
    for results in await asyncio.gather(*work):
        assert [result.content for result in results] == ["through"] * 3
    assert (gate.started, gate.most) == (6, 2)


async def test_a_tool_that_is_made_again_keeps_its_slots():
    gate = Gate(concurrency=1)
    registry = Registry([gate.tool])
    again = Registry([replace(gate.tool, description="told again")], shared=registry)
    work = [asyncio.create_task(Dispatcher(each).run_all(calls(1))) for each in (registry, again)]
    await settle()
    assert gate.running == 1
    gate.open.set()
    await asyncio.gather(*work)


async def test_registries_apart_count_apart():
    gate = Gate(concurrency=1)
    sessions = [Dispatcher(Registry([gate.tool])) for _ in range(2)]
    work = [asyncio.create_task(session.run_all(calls(1))) for session in sessions]
    await settle()
    assert gate.running == 2
    gate.open.set()
    await asyncio.gather(*work)


async def test_no_limit():
    gate = Gate()
    work = asyncio.create_task(Dispatcher(Registry([gate.tool])).run_all(calls(50)))
    await settle()
    assert gate.running == 50
    gate.open.set()
    await work


async def test_waiting_for_a_slot_does_not_count_as_running():
    for seconds in (0.15, 1.5, 15.0):  # on a busy machine the second may be stopped in its run
        gate = Gate(concurrency=1, timeout_seconds=seconds)
        session = Dispatcher(Registry([gate.tool]))
        first, second = (session.start(one) for one in calls(2))
        assert (await first).error == "timeout"
        gate.open.set()  # the second has waited for a whole time-out by now
        error = (await second).error
        if error is None:
            break
    assert error is None


async def test_a_failed_or_timed_out_call_gives_its_slot_back():
    gate = Gate(concurrency=1, timeout_seconds=0.01)
    results = await Dispatcher(Registry([gate.tool])).run_all(calls(3))
    assert [result.error for result in results] == ["timeout"] * 3


async def test_the_slot_is_free_between_attempts():
    order = []

    @tool(concurrency=1, retries=1, safe_to_repeat=True)
    async def flaky(who: str) -> str:
        order.append(who)
        if order.count("a") == 1 and who == "a":
            raise OSError("again")
        return who

    turns = asyncio.Event()

    async def pause(seconds: float) -> None:
        await turns.wait()

    session = Dispatcher(Registry([flaky]), sleep=pause)
    first = session.start(ToolCall("1", "flaky", '{"who": "a"}'))
    second = await session.run(ToolCall("2", "flaky", '{"who": "b"}'))
    turns.set()
    assert (second.content, (await first).content) == ("b", "a")
    assert order == ["a", "b", "a"]


async def test_a_session_cancelled_while_it_waits_for_a_slot():
    gate = Gate(concurrency=1)
    registry = Registry([gate.tool])
    holder = Dispatcher(registry).start(calls(1)[0])
    await settle()
    waiter = Dispatcher(registry)
    waiting = waiter.start(calls(1)[0])
    behind = Dispatcher(registry).start(calls(1)[0])
    await settle()
    await waiter.cancel()
    result = await waiting
    assert (result.error, result.attempts) == ("cancelled", 0)
    assert gate.started == 1
    gate.open.set()
    # Neither the holder nor the one behind lost anything by it.
    assert [(await holder).error, (await behind).error] == [None, None]
    assert gate.started == 2


def test_one_registry_in_two_event_loops_after_each_other():
    @tool(concurrency=1)
    async def turn() -> str:
        await asyncio.sleep(0)
        return "done"

    registry = Registry([turn])
    for _ in range(2):
        loop = asyncio.new_event_loop()
        many = [ToolCall(str(n), "turn", "{}") for n in range(3)]
        try:
            results = loop.run_until_complete(Dispatcher(registry).run_all(many))
        finally:
            loop.close()
        assert [result.error for result in results] == [None] * 3


async def test_the_slots_count_for_all_event_loops_together() -> None:
    running, most, lock = 0, 0, threading.Lock()

    @tool(concurrency=2)
    async def counted() -> str:
        """Count."""
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        await asyncio.sleep(0.001)
        with lock:
            running -= 1
        return "done"

    registry = Registry([counted])

    async def calls() -> list[str]:
        async with Dispatcher(registry) as dispatcher:
            made = [dispatcher.run(ToolCall(str(n), "counted", "{}")) for n in range(20)]
            return [result.content for result in await asyncio.gather(*made)]

    with another_loop() as first, another_loop() as second:
        loops = (first, second, asyncio.get_running_loop())
        done = await asyncio.gather(*(on_loop(loop, calls) for loop in loops))
    assert done == [["done"] * 20] * 3
    assert most == 2


async def test_a_cancelled_wait_for_a_slot_passes_it_on() -> None:
    slots = Slots()

    @tool(concurrency=1)
    async def one() -> None:
        """Do nothing."""

    async def hold() -> str:
        async with slots.slot(one):
            return "held"

    async with slots.slot(one):
        early, late = asyncio.create_task(hold()), asyncio.create_task(hold())
        await asyncio.sleep(0)
    early.cancel()  # the slot is on its way to it
    assert await late == "held"
    with pytest.raises(asyncio.CancelledError):
        await early
    assert await hold() == "held"
