"""Starting an engine that somebody interrupts."""

import asyncio
import multiprocessing
import threading
import time

import pytest

from caesura.runtime import launch
from caesura.runtime.cli import engine
from caesura.runtime.errors import EngineFailed, UsageError
from caesura.runtime.testing import ScriptedEngine
from caesura.scheduler.engine_options import EngineOptions


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


async def test_a_start_while_the_program_is_imported_again_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = multiprocessing.current_process()
    monkeypatch.setattr(process, "_inheriting", True, raising=False)
    with pytest.raises(UsageError, match=r'put the call under `if __name__ == "__main__":`'):
        await launch.start_engine()


async def slow_start() -> ScriptedEngine:
    await asyncio.sleep(0.05)
    return ScriptedEngine()


async def test_the_log_tells_of_a_start(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "NEWS_SECONDS", 0.01)
    caplog.set_level("INFO", logger=launch.LOG.name)
    await launch._told("Qwen3-8B", slow_start())
    first, *between, last = [record.getMessage() for record in caplog.records]
    assert first == "starting vLLM with Qwen3-8B"
    assert "Qwen3-8B is still loading after 0 s" in between
    assert last.startswith("Qwen3-8B is loaded after ")


@pytest.mark.parametrize("fails", [False, True])
async def test_a_command_tells_of_the_start_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    async def start(options: EngineOptions) -> ScriptedEngine:
        if fails:
            raise EngineFailed("no memory")
        return await launch._told(str(options.model), slow_start())

    monkeypatch.setattr(engine, "start", start)
    if fails:
        with pytest.raises(EngineFailed):
            await engine.engine_on(EngineOptions("Qwen3-8B")).__aenter__()
    else:
        async with engine.engine_on(EngineOptions("Qwen3-8B")):
            pass
        told = capsys.readouterr().err
        first, last = told.splitlines()
        assert first == "starting vLLM with Qwen3-8B"
        assert last.startswith("Qwen3-8B is loaded after ")
    assert launch.LOG.handlers == []
    assert launch.LOG.propagate


async def test_an_address_is_no_model() -> None:
    with pytest.raises(UsageError, match="'http://host/v1' is an address, and a model is asked"):
        await launch.start_engine("http://host/v1")
