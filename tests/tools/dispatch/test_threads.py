import asyncio
import subprocess
import sys
import threading

import pytest

from caesura.tools import Dispatcher, Registry, ToolCall, tool
from caesura.tools.context import ToolRun
from caesura.tools.result import ResultLimits
from caesura.tools.tool import in_thread

pytestmark = pytest.mark.timeout(120)


async def test_threads_that_hang_do_not_take_the_place_of_others():
    release = threading.Event()

    @tool(timeout_seconds=0.2)
    def hang() -> None:
        release.wait(60)

    @tool
    def work() -> str:
        return "word " * 3000

    session = Dispatcher(
        Registry([hang, work]), ToolRun(results=ResultLimits(lambda text: len(text.split())))
    )
    try:
        results = await session.run_all(ToolCall(str(n), "hang", "{}") for n in range(100))
        assert {result.error for result in results} == {"timeout"}
        result = await session.run(ToolCall("w", "work", "{}"))
        assert (result.error, result.content[:10]) == (None, "word word ")
    finally:
        release.set()


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyError("k")])
async def test_what_the_function_raises(error):
    def fail() -> None:
        raise error

    with pytest.raises(type(error)):
        await in_thread(fail)


async def test_one_that_ends_after_its_loop_does_no_harm(capfd):
    release = threading.Event()

    def wait() -> None:
        release.wait(60)

    def another_loop() -> None:
        async def leave() -> None:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(in_thread(wait), 0.05)

        asyncio.run(leave())

    await asyncio.to_thread(another_loop)
    left = [each for each in threading.enumerate() if each.name == "tool wait"]
    release.set()
    for each in left:
        await asyncio.to_thread(each.join, 60)
    assert capfd.readouterr().err == ""


def test_one_that_hangs_does_not_keep_the_process_from_ending():
    code = (
        "import asyncio, time\n"
        "from caesura.tools import *\n"
        "@tool(timeout_seconds=0.1)\n"
        "def hang() -> None:\n    time.sleep(600)\n"
        "print(asyncio.run(Dispatcher(Registry([hang])).run(ToolCall('c', 'hang', '{}'))).error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.stdout, done.stderr) == ("timeout\n", "")
