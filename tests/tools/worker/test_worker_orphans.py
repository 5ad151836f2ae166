"""What becomes of workers when their parent goes without a word."""

import asyncio
import os
import signal
import subprocess
import sys

import psutil
import pytest

from tests.kit.processes import gone, lives
from tests.tools.working import HERE

pytestmark = pytest.mark.timeout(120)

PARENT = """
import asyncio, os, sys, threading
from caesura.tools.worker import Worker

async def start():
    worker = await Worker.spawn("worker_module", environment={environment!r})
    pids = [worker.pid, await worker.call("pid"), await worker.call("leave_an_orphan")]
    pids.append(await worker.call("leave_a_child"))
    print(*pids, flush=True)
    {then}

{how}
"""
BUSY = 'asyncio.ensure_future(worker.call("hold_the_lock")); await asyncio.sleep(600)'


def parent(then: str, how: str = "asyncio.run(start())") -> tuple[subprocess.Popen[str], list[int]]:
    code = PARENT.format(environment=HERE, then=then, how=how)
    command = [sys.executable, "-c", code]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pids = [int(pid) for pid in process.stdout.readline().split()]
    assert len(pids) == 4
    assert all(map(lives, pids))
    return process, pids


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
async def test_a_parent_that_is_killed_takes_its_workers_along(number):
    process, pids = await asyncio.to_thread(parent, BUSY)
    process.send_signal(number)
    await asyncio.to_thread(process.communicate)
    assert await gone(pids)


async def test_a_parent_that_exits_without_closing():
    process, pids = await asyncio.to_thread(parent, "os._exit(0)")
    await asyncio.to_thread(process.communicate)
    assert await gone(pids)


async def test_a_parent_whose_pipes_were_inherited_by_another_process():
    # As by a process that was forked without an exec: the pipe to the worker does not close.
    then = "os.fork(); await asyncio.sleep(600)"
    process, pids = await asyncio.to_thread(parent, then)
    heirs = {child.pid for child in psutil.Process(process.pid).children()} - set(pids)
    process.send_signal(signal.SIGKILL)
    assert await gone(pids)
    for pid in heirs:
        os.kill(pid, signal.SIGKILL)
    await asyncio.to_thread(process.communicate)


async def test_the_thread_of_the_event_loop_ends():
    # PR_SET_PDEATHSIG is about the thread that forked: here the one whose loop is over anyway.
    how = (
        "thread = threading.Thread(target=asyncio.run, args=(start(),)); thread.start(); "
        "thread.join(); sys.stdin.read()"
    )
    process, pids = await asyncio.to_thread(parent, "pass", how)
    assert await gone(pids)
    await asyncio.to_thread(process.communicate)
    assert process.returncode == 0


async def test_workers_of_a_loop_in_a_background_thread_live_on_with_it():
    how = (
        "loop = asyncio.new_event_loop(); "
        "threading.Thread(target=loop.run_forever, daemon=True).start(); "
        "asyncio.run_coroutine_threadsafe(start(), loop).result(); sys.stdin.read()"
    )
    process, pids = await asyncio.to_thread(parent, "globals().update(kept=worker)", how)
    await asyncio.sleep(0.3)
    assert all(map(lives, pids))
    await asyncio.to_thread(process.communicate)
    assert await gone(pids)
