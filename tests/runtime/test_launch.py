"""Starting an engine that somebody interrupts."""

import asyncio
import multiprocessing
import signal
import subprocess
import sys
import threading
import time

import pytest

from caesura.runtime import launch
from caesura.runtime.errors import EngineFailed
from caesura.runtime.testing import ScriptedEngine
from caesura.scheduler.vllm.client.launch import _deaf_to_ctrl_c

MASK = "import signal; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))"


def ask_mask() -> bool:
    shown = subprocess.run([sys.executable, "-c", MASK], capture_output=True, check=True)
    return shown.stdout.strip() == b"True"


def test_processes_of_the_engine_do_not_hear_ctrl_c() -> None:
    with _deaf_to_ctrl_c():
        assert ask_mask()
    assert not ask_mask()
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


async def test_a_start_that_is_cancelled_takes_its_processes_along() -> None:
    begun = threading.Event()
    before = set(multiprocessing.active_children())

    def start() -> ScriptedEngine:
        child = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
        child.start()
        begun.set()
        child.join()
        raise EngineFailed(f"its process ended with {child.exitcode}")

    task = asyncio.create_task(launch._in_thread(start))
    await asyncio.to_thread(begun.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 60)
    assert set(multiprocessing.active_children()) == before
    assert not launch._STARTING


async def test_an_engine_that_is_up_when_nobody_waits_any_more_is_closed() -> None:
    begun, go = threading.Event(), threading.Event()
    engine = ScriptedEngine()

    def start() -> ScriptedEngine:
        begun.set()
        go.wait()
        return engine

    task = asyncio.create_task(launch._in_thread(start))
    await asyncio.to_thread(begun.wait)
    task.cancel()
    await asyncio.sleep(0.05)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert engine.closed
