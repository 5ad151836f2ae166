import asyncio
import logging

import pytest

from caesura.tools import Dispatcher, Registry, ToolCall, tool
from caesura.tools.artifacts import Artifact
from caesura.tools.context import Scope, ToolRun, current
from caesura.tools.result import Output
from tests.kit.processes import nothing_left

pytestmark = pytest.mark.timeout(120)


def call(name: str, id: str = "c1") -> ToolCall:
    return ToolCall(id, name, "{}")


class Maker:
    """Makes numbers, and remembers which were closed."""

    def __init__(self) -> None:
        self.made = 0
        self.cancelled = 0
        self.closed: list[int] = []
        self.gate = asyncio.Event()

    async def make(self) -> int:
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.made += 1
        return self.made

    async def close(self, number: int) -> None:
        await asyncio.sleep(0)
        self.closed.append(number)


@pytest.fixture
def maker():
    return Maker()


async def steps(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_tool_sees_its_call():
    seen = []

    @tool
    async def later() -> None:
        await asyncio.sleep(0)
        seen.append(current())

    @tool
    def threaded() -> None:
        seen.append(current())

    scope = Scope("session-7")
    session = Dispatcher(Registry([later, threaded]), ToolRun(scope, "digest"))
    await session.run_all([call("later", "c1"), call("threaded", "c2")])
    assert {each.call.id for each in seen} == {"c1", "c2"}
    assert {(each.scope.session_id, each.conversation) for each in seen} == {
        ("session-7", "digest")
    }
    with pytest.raises(LookupError):
        current()


async def test_each_session_has_a_scope_of_its_own():
    registry = Registry()
    sessions = [Dispatcher(registry) for _ in range(3)]
    assert len({session.scope.session_id for session in sessions}) == 3


async def test_a_tools_files_are_in_its_result(tmp_path):
    artifact = Artifact("0" * 24 + ".png", "image/png", 3, tmp_path / "x.png")

    @tool
    async def draw() -> Output:
        return Output("Saved.", (artifact,))

    result = await Dispatcher(Registry([draw])).run(call("draw"))
    assert (result.content, result.artifacts, result.error) == ("Saved.", (artifact,), None)


async def test_what_is_kept_is_made_once_and_closed_at_the_end(maker):
    maker.gate.set()
    scope = Scope("s")
    kept = await asyncio.gather(*(scope.keep("k", maker.make, maker.close) for _ in range(3)))
    assert kept == [1, 1, 1]
    assert await scope.keep("other", maker.make, maker.close) == 2
    await scope.drop("k")
    await scope.drop("k")
    assert maker.closed == [1]
    assert await scope.keep("k", maker.make, maker.close) == 3
    await scope.aclose()
    await scope.aclose()
    assert sorted(maker.closed) == [1, 2, 3]
    with pytest.raises(RuntimeError, match="the session has ended"):
        await scope.keep("k", maker.make, maker.close)


async def test_a_caller_that_gives_up_leaves_the_making_to_the_others(maker):
    scope = Scope("s")
    callers = [asyncio.create_task(scope.keep("k", maker.make, maker.close)) for _ in range(2)]
    await steps()
    callers[0].cancel()
    await steps()
    maker.gate.set()
    assert await callers[1] == 1
    assert callers[0].cancelled()
    await scope.aclose()


async def test_the_last_caller_that_gives_up_ends_the_making(maker):
    async with nothing_left():
        scope = Scope("s")
        callers = [asyncio.create_task(scope.keep("k", maker.make, maker.close)) for _ in range(2)]
        await steps()
        for caller in callers:
            caller.cancel()
        await asyncio.wait(callers)
        assert maker.cancelled == 1
        maker.gate.set()
        assert await scope.keep("k", maker.make, maker.close) == 1
        await scope.aclose()
        assert maker.closed == [1]


async def test_a_making_that_fails_is_forgotten():
    attempts = []

    async def make() -> str:
        attempts.append(1)
        await asyncio.sleep(0)
        if len(attempts) == 1:
            raise OSError("no")
        return "made"

    async def close(what: str) -> None:
        pass

    scope = Scope("s")
    both = [scope.keep("k", make, close) for _ in range(2)]
    ended = await asyncio.gather(*both, return_exceptions=True)
    assert [type(each) for each in ended] == [OSError, OSError]
    assert await scope.keep("k", make, close) == "made"


async def test_ending_ends_what_is_being_made(maker):
    async with nothing_left():
        scope = Scope("s")
        caller = asyncio.create_task(scope.keep("k", maker.make, maker.close))
        await steps()
        await scope.aclose()
        assert maker.cancelled == 1
        with pytest.raises(asyncio.CancelledError):
            await caller


async def test_what_is_made_in_spite_of_its_cancellation_is_closed(maker):
    async def make() -> int:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return 77
        return 0

    scope = Scope("s")
    caller = asyncio.create_task(scope.keep("k", make, maker.close))
    await steps()
    caller.cancel()
    await asyncio.wait([caller])
    assert maker.closed == [77]


async def test_one_failure_to_close_does_not_keep_the_rest_open(maker):
    async def bad(number: int) -> None:
        raise OSError("stuck")

    maker.gate.set()
    scope = Scope("s")
    await scope.keep("a", maker.make, bad)
    await scope.keep("b", maker.make, maker.close)
    with pytest.raises(OSError, match="stuck"):
        await scope.aclose()
    assert maker.closed == [2]


async def test_an_impatient_end_still_ends(maker):
    maker.gate.set()
    released = asyncio.Event()

    async def slow(number: int) -> None:
        await released.wait()
        maker.closed.append(number)

    scope = Scope("s")
    await scope.keep("k", maker.make, slow)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(scope.aclose(), 0.01)
    released.set()
    await scope.aclose()
    assert maker.closed == [1]


async def test_the_dispatcher_ends_the_scope_after_the_calls(caplog):
    order = []

    async def make() -> str:
        return "kept"

    async def close(what: str) -> None:
        order.append("closed")
        raise OSError("stuck")

    begun = asyncio.Event()

    @tool
    async def work() -> None:
        await current().scope.keep("k", make, close)
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            order.append("cancelled")

    session = Dispatcher(Registry([work]))
    task = session.start(call("work"))
    await begun.wait()
    with caplog.at_level(logging.WARNING):
        await session.aclose()
        await session.aclose()
    assert (await task).error == "cancelled"
    assert order == ["cancelled", "closed"]
    assert "did not close: error: stuck" in caplog.text


async def test_what_was_made_stays_although_its_caller_is_cancelled(maker):
    scope = Scope("s")
    making = asyncio.ensure_future(scope.keep("a", maker.make, maker.close))
    await steps()
    maker.gate.set()
    kept = scope._kept["a"].made
    kept.add_done_callback(lambda made: making.cancel())  # made, and before the caller hears of it
    await asyncio.gather(making, return_exceptions=True)
    assert making.cancelled()
    assert maker.closed == []
    assert await scope.keep("a", maker.make, maker.close) == 1
    await scope.aclose()
    assert maker.closed == [1]
