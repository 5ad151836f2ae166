import asyncio

import pytest

from caesura.tools import Dispatcher, Registry, Tool, ToolCall, tool
from caesura.tools.errors import Permanent
from caesura.tools.limits import REST_CEILING_SECONDS, REST_SECONDS, Breaker, Resting

pytestmark = pytest.mark.timeout(120)


def fails(breaker: Breaker, now: float, times: int = 1) -> None:
    for _ in range(times):
        breaker.end(breaker.begin(now), now, failed=True)


def test_it_rests_after_so_many_failures_in_a_row():
    breaker = Breaker("t", 3)
    fails(breaker, 0.0, 2)
    breaker.end(breaker.begin(0.0), 0.0, failed=False)
    fails(breaker, 0.0, 2)
    breaker.check(0.0)
    fails(breaker, 1.0)
    with pytest.raises(Resting, match="'t' has failed 3 times in a row and rests for 5 seconds"):
        breaker.begin(1.0)
    with pytest.raises(Resting, match="for 2 seconds"):
        breaker.check(4.0)


def test_one_call_tries_it_then():
    breaker = Breaker("t", 1)
    fails(breaker, 0.0)
    trial = breaker.begin(REST_SECONDS)
    with pytest.raises(Resting, match="being tried again"):
        breaker.begin(REST_SECONDS + 100)
    breaker.end(trial, 200.0, failed=False)
    breaker.begin(200.0)
    breaker.begin(200.0)


def test_failed_trials_double_the_rest_to_a_ceiling():
    breaker, now, rests = Breaker("t", 1), 0.0, []
    fails(breaker, now)
    for _ in range(9):
        begun = now
        while True:
            try:
                breaker.check(now)
                break
            except Resting:
                now += 0.5
        rests.append(now - begun)
        fails(breaker, now)
    assert rests[:3] == [REST_SECONDS, 2 * REST_SECONDS, 4 * REST_SECONDS]
    assert rests[-2:] == [REST_CEILING_SECONDS] * 2
    now += REST_CEILING_SECONDS
    breaker.end(breaker.begin(now), now, failed=False)
    fails(breaker, now)
    breaker.check(now + REST_SECONDS)  # a success resets it


def test_a_trial_that_tells_nothing_leaves_room_for_the_next():
    breaker = Breaker("t", 1)
    fails(breaker, 0.0)
    breaker.end(breaker.begin(6.0), 6.0, failed=None)
    breaker.begin(6.0)


def test_calls_from_before_the_rest_say_nothing():
    breaker = Breaker("t", 1)
    early, late = breaker.begin(0.0), breaker.begin(0.0)
    fails(breaker, 0.0)
    breaker.end(early, 1.0, failed=True)
    with pytest.raises(Resting, match="1 times in a row and rests for 4 seconds"):
        breaker.check(1.0)
    breaker.end(late, 2.0, failed=False)
    with pytest.raises(Resting):
        breaker.check(2.0)


class Broken:
    """A tool that fails until it is mended, and a clock."""

    def __init__(self, **options) -> None:
        self.now = 0.0
        self.calls = 0
        self.error: BaseException | None = OSError("connection refused")

        @tool(**options)
        async def broken(x: int = 0) -> str:
            self.calls += 1
            if self.error is not None:
                raise self.error
            return "well"

        self.tool: Tool = broken
        self.registry = Registry([broken])

    def session(self, **options) -> Dispatcher:
        return Dispatcher(self.registry, clock=lambda: self.now, **options)

    async def call(self, arguments: str = "{}", **options) -> tuple[str | None, str]:
        result = await self.session(**options).run(ToolCall("c", "broken", arguments))
        return result.error, result.content


async def test_sessions_share_it():
    broken = Broken(breaker=2)
    for _ in range(2):
        assert await broken.call() == ("failed", "error: connection refused")
    error, content = await broken.call()
    assert (error, broken.calls) == ("resting", 2)
    assert content == (
        "error: the tool 'broken' has failed 2 times in a row and rests for 5 seconds: "
        "go on without it, or try later"
    )
    broken.now += REST_SECONDS
    broken.error = None
    assert await broken.call() == (None, "well")
    assert await broken.call() == (None, "well")
    selection = Dispatcher(broken.registry.select(["broken"]), clock=lambda: broken.now)
    broken.error = OSError("again")
    for _ in range(2):
        await broken.call()
    assert (await selection.run(ToolCall("c", "broken", "{}"))).error == "resting"


async def test_a_resting_tool_still_checks_arguments():
    broken = Broken(breaker=1)
    await broken.call()
    assert (await broken.call('{"x": "many"}'))[0] == "invalid_arguments"


async def test_what_does_not_count():
    broken = Broken(breaker=1)
    for _ in range(3):
        assert (await broken.call('{"x": "many"}'))[0] == "invalid_arguments"
    broken.error = Permanent("there is no such page")
    for _ in range(3):
        assert await broken.call() == ("failed", "error: there is no such page")
    assert broken.calls == 3


async def test_cancellations_do_not_count_and_a_cancelled_trial_gives_way():
    begun = asyncio.Event()
    hang = False
    now = 0.0

    @tool(breaker=1)
    async def moody() -> str:
        if hang:
            begun.set()
            await asyncio.Event().wait()
        raise OSError("no")

    registry = Registry([moody])
    call = ToolCall("c", "moody", "{}")

    async def cancelled() -> None:
        begun.clear()
        session = Dispatcher(registry, clock=lambda: now)
        task = session.start(call)
        await begun.wait()
        await session.aclose()
        assert (await task).error == "cancelled"

    hang = True
    await cancelled()
    await cancelled()
    hang = False
    assert (await Dispatcher(registry, clock=lambda: now).run(call)).error == "failed"
    now += REST_SECONDS
    hang = True
    await cancelled()  # the trial
    hang = False
    assert (await Dispatcher(registry, clock=lambda: now).run(call)).error == "failed"


async def test_time_outs_count():
    @tool(breaker=2, timeout_seconds=0.01)
    async def slow() -> None:
        await asyncio.Event().wait()

    session = Dispatcher(Registry([slow]))
    errors = [(await session.run(ToolCall("c", "slow", "{}"))).error for _ in range(3)]
    assert errors == ["timeout", "timeout", "resting"]


async def test_retries_stop_when_the_tool_rests():
    async def sleep(seconds: float) -> None:
        pass

    broken = Broken(breaker=2, retries=9, safe_to_repeat=True)
    assert await broken.call(sleep=sleep) == ("failed", "error: connection refused")
    assert broken.calls == 2


async def test_calls_that_wait_for_a_slot_of_a_tool_that_breaks_fail_at_once():
    release = asyncio.Event()
    calls = 0

    @tool(breaker=1, concurrency=1)
    async def stuck() -> None:
        nonlocal calls
        calls += 1
        await release.wait()
        raise OSError("broken")

    session = Dispatcher(Registry([stuck]))
    tasks = [session.start(ToolCall(str(n), "stuck", "{}")) for n in range(4)]
    await asyncio.sleep(0.01)
    release.set()
    assert [(await task).error for task in tasks] == ["failed", "resting", "resting", "resting"]
    assert calls == 1
