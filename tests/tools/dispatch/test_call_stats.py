import asyncio

import pytest

from caesura.tools import Dispatcher, Registry, ToolCall, tool

pytestmark = pytest.mark.timeout(120)


async def test_what_is_counted_over_all_sessions():
    now = 0.0
    begun = asyncio.Event()

    @tool(retries=1, safe_to_repeat=True)
    async def work(seconds: float, fail: bool = False, hang: bool = False) -> None:
        nonlocal now
        now += seconds
        if hang:
            begun.set()
            await asyncio.Event().wait()
        if fail:
            raise OSError

    async def sleep(seconds: float) -> None:
        pass

    registry = Registry([work])
    sessions = [
        Dispatcher(each, clock=lambda: now, sleep=sleep)
        for each in (registry, registry.select(["work"]))
    ]
    for session, arguments in (
        (0, '{"seconds": 2}'),
        (1, '{"seconds": 4}'),
        (0, '{"seconds": 1, "fail": true}'),
        (1, '{"seconds": "long"}'),
    ):
        await sessions[session].run(ToolCall("c", "work", arguments))
    await sessions[0].run(ToolCall("c", "made up", "{}"))
    for way in ("by the session", "by its owner"):
        begun.clear()
        task = sessions[0].start(ToolCall("c", "work", '{"seconds": 1, "hang": true}'))
        await begun.wait()
        if way == "by its owner":
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            await sessions[0].cancel()
    assert list(registry.observed) == ["work"]
    seen = registry.observed["work"]
    assert (seen.calls, seen.ran, seen.attempts, seen.failures) == (6, 5, 6, 1)
    assert seen.errors == {"failed": 1, "invalid_arguments": 1, "cancelled": 2}
    assert (seen.seconds, seen.mean_seconds, seen.longest_seconds) == (10.0, 2.0, 4.0)


def test_nothing_was_seen_yet():
    assert Registry().observed["any"].mean_seconds is None
