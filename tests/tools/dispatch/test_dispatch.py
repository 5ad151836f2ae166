import asyncio
import threading
import traceback

import pytest

from caesura.tools import Dispatcher, Registry, Tool, ToolCall, tool
from caesura.tools.calculator.tool import calculator
from caesura.tools.context import ToolRun
from caesura.tools.errors import Permanent, ToolError, Unavailable
from caesura.tools.result import ResultLimits

pytestmark = pytest.mark.timeout(120)


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def dispatcher(*tools: Tool, **options) -> Dispatcher:
    return Dispatcher(Registry(tools), **options)


def call(name: str, arguments: str = "{}", id: str = "c1") -> ToolCall:
    return ToolCall(id, name, arguments)


async def test_a_result_in_full():
    clock = Clock()

    @tool
    async def work(hours: int) -> dict[str, int]:
        clock.now += hours
        return {"hours": hours}

    result = await dispatcher(work, clock=clock).run(call("work", '{"hours": 3}', "c7"))
    assert (result.call_id, result.name, result.content) == ("c7", "work", '{"hours":3}')
    assert result.error is None
    assert (result.started_at, result.seconds, result.attempts) == (100.0, 3.0, 1)


async def test_a_plain_function_and_a_built_in():
    result = await dispatcher(calculator).run(call("calculator", '{"expression": "6*7"}'))
    assert (result.content, result.error) == ("42", None)


async def test_an_unknown_tool_is_told_the_known_ones():
    result = await dispatcher(calculator).run(call("calculater"))
    assert result.error == "unknown_tool"
    assert result.content == (
        "error: unknown tool 'calculater'; did you mean 'calculator'? known tools: calculator"
    )
    assert result.attempts == 0


async def test_invalid_arguments_never_reach_the_tool():
    reached = []

    @tool
    async def touch(x: int) -> None:
        reached.append(x)

    result = await dispatcher(touch).run(call("touch", '{"y": 1}'))
    assert result.error == "invalid_arguments"
    assert result.content == (
        "error: argument 'x': field required; unknown argument 'y' (accepted: x)"
    )
    assert (reached, result.attempts) == ([], 0)


class Panic(BaseException):
    """As a Rust extension raises it."""


@pytest.mark.parametrize(
    ("error", "content"),
    [
        (ZeroDivisionError("division by zero"), "error: division by zero"),
        (RuntimeError(), "error: RuntimeError"),
        (TimeoutError("the database is slow"), "error: the database is slow"),
        (SystemExit(3), "error: 3"),
        (SystemExit(), "error: SystemExit"),
        (Panic("rust"), "error: rust"),
    ],
)
async def test_what_a_tool_raises_is_data(error, content):
    @tool
    async def later() -> None:
        raise error

    @tool
    def threaded() -> None:
        raise error

    for result in await dispatcher(later, threaded).run_all([call("later"), call("threaded")]):
        assert (result.error, result.content, result.attempts) == ("failed", content, 1)


async def test_where_a_tool_failed_is_in_the_log_and_nowhere_else(caplog):
    def deep(secret):
        raise KeyError(secret)

    @tool
    async def buggy(secret: str) -> None:
        deep(secret)

    @tool
    def threaded(secret: str) -> None:
        deep(secret)

    calls = [call("buggy", '{"secret": "s"}', "call_7"), call("threaded", '{"secret": "s"}')]
    for made, result in zip(calls, await dispatcher(buggy, threaded).run_all(calls), strict=True):
        assert result.content == "error: 's'"
        [record] = [each for each in caplog.records if each.args[0] == made.name]
        assert record.args[1] == made.id
        assert record.exc_info is not None
        functions = [frame.name for frame in traceback.extract_tb(record.exc_info[2])]
        assert functions[-1] == "deep"
    assert len(caplog.records) == 2


@pytest.mark.parametrize("error", [ToolError("full"), Permanent("no"), Unavailable("later")])
async def test_what_a_tool_tells_the_model_has_no_stack_trace(caplog, error):
    @tool
    async def refuses() -> None:
        raise error

    @tool(timeout_seconds=0.01)
    async def slow() -> None:
        await asyncio.sleep(60)

    await dispatcher(refuses, slow).run_all([call("refuses"), call("slow")])
    assert caplog.records == []


def test_keyboard_interrupt_is_the_operators():
    @tool
    async def interrupted() -> None:
        raise KeyboardInterrupt

    loop = asyncio.new_event_loop()
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(dispatcher(interrupted).run(call("interrupted")))
    finally:
        loop.close()


async def test_a_validator_that_breaks_is_a_failure():
    def broken(arguments):
        raise KeyError("oops")

    made = Tool("t", "", {"type": "object"}, asyncio.sleep, validate=broken)
    result = await dispatcher(made).run(call("t"))
    assert (result.error, result.content) == ("failed", "error: 'oops'")


async def test_a_value_that_cannot_be_told_is_a_failure():
    class Mute:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    @tool
    async def mute() -> object:
        return Mute()

    result = await dispatcher(mute).run(call("mute"))
    assert (result.error, result.content) == ("failed", "error: no text")


async def test_a_long_result_is_cut():
    @tool
    async def long() -> str:
        return "x" * 50

    result = await dispatcher(long, run=ToolRun(results=ResultLimits(max_characters=10))).run(
        call("long")
    )
    assert result.content == "x" * 10 + " [cut: 50 characters in all]"


async def test_run_all_is_parallel_and_in_call_order():
    order = []
    everyone = asyncio.Barrier(3)

    @tool
    async def wait(steps: int) -> int:
        await everyone.wait()  # passes only when all three run at once
        for _ in range(steps):
            await asyncio.sleep(0)
        order.append(steps)
        return steps

    calls = [call("wait", f'{{"steps": {n}}}', f"c{n}") for n in (9, 1, 5)]
    results = await dispatcher(wait).run_all(calls)
    assert [(r.call_id, r.content) for r in results] == [("c9", "9"), ("c1", "1"), ("c5", "5")]
    assert order == [1, 5, 9]


async def test_run_all_of_nothing():
    assert await dispatcher().run_all([]) == []


async def test_an_early_start_runs_before_it_is_awaited():
    done = asyncio.Event()

    @tool
    async def early() -> str:
        done.set()
        return "early"

    session = dispatcher(early)
    task = session.start(call("early"))
    assert session.in_flight == 1
    await done.wait()
    assert (await task).content == "early"
    await asyncio.sleep(0)
    assert session.in_flight == 0


async def test_an_async_tool_that_times_out_is_cancelled():
    ended = []

    @tool(timeout_seconds=0.02)
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cleaned up")

    result = await dispatcher(slow).run(call("slow"))
    assert (result.error, result.content) == ("timeout", "error: no answer within 0.02 seconds")
    assert (ended, result.attempts) == (["cleaned up"], 1)


async def test_a_tool_that_breaks_on_its_time_out_has_timed_out():
    @tool(timeout_seconds=0.02)
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("in the clean-up")

    assert (await dispatcher(slow).run(call("slow"))).error == "timeout"


async def test_a_plain_tool_that_times_out_is_abandoned():
    begun, release, ended = threading.Event(), threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        release.wait(60)
        ended.set()

    # On a busy machine a thread may begin late; one that has not begun in time never does.
    for seconds in (0.02, 0.2, 2.0, 20.0):
        limited = tool(timeout_seconds=seconds)(slow)
        assert (await dispatcher(limited).run(call("slow"))).error == "timeout"
        if begun.is_set():
            break
    assert begun.is_set()
    assert not ended.is_set()  # the result did not wait for the thread
    release.set()
    assert await asyncio.to_thread(ended.wait, 60)  # which ran on to its own end


async def test_no_time_limit():
    @tool(timeout_seconds=None)
    async def free() -> str:
        await asyncio.sleep(0)
        return "free"

    assert (await dispatcher(free).run(call("free"))).content == "free"


class Sleep:
    """Remembers the pauses, and makes none."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.pauses.append(seconds)


def flaky(failures: int, retries: int) -> Tool:
    runs = []

    @tool(retries=retries, safe_to_repeat=True)
    async def flaky() -> int:
        runs.append(1)
        if len(runs) <= failures:
            raise OSError("connection reset")
        return len(runs)

    return flaky


async def test_retries_until_it_succeeds():
    sleep = Sleep()
    result = await dispatcher(flaky(2, retries=5), sleep=sleep, random=lambda: 1.0).run(
        call("flaky")
    )
    assert (result.error, result.content, result.attempts) == (None, "3", 3)
    assert sleep.pauses == [0.1, 0.2]


async def test_retries_run_out():
    sleep = Sleep()
    result = await dispatcher(flaky(99, retries=3), sleep=sleep, random=lambda: 1.0).run(
        call("flaky")
    )
    assert (result.error, result.content) == ("failed", "error: connection reset")
    assert (result.attempts, sleep.pauses) == (4, [0.1, 0.2, 0.4])


async def test_the_pauses_have_a_ceiling():
    sleep = Sleep()
    await dispatcher(flaky(99, retries=9), sleep=sleep, random=lambda: 1.0).run(call("flaky"))
    assert sleep.pauses[-3:] == [6.4, 10.0, 10.0]


async def test_a_time_out_is_retried_too():
    @tool(timeout_seconds=0.01, retries=1, safe_to_repeat=True)
    async def slow() -> None:
        await asyncio.Event().wait()

    result = await dispatcher(slow, sleep=Sleep()).run(call("slow"))
    assert (result.error, result.attempts) == ("timeout", 2)


async def test_invalid_arguments_are_not_retried():
    sleep = Sleep()
    result = await dispatcher(flaky(0, retries=3), sleep=sleep, random=lambda: 1.0).run(
        call("flaky", '{"x": 1}')
    )
    assert (result.error, result.attempts, sleep.pauses) == ("invalid_arguments", 0, [])
