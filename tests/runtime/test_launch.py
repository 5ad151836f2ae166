"""Starting an engine that somebody interrupts."""

import asyncio
import multiprocessing
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from caesura.runtime import launch
from caesura.runtime.cli import engine
from caesura.runtime.errors import EngineFailed, UsageError
from caesura.runtime.testing import ScriptedEngine
from caesura.scheduler.engine_options import EngineOptions
from caesura.scheduler.vllm.client.launch import (
    _deaf_to_ctrl_c,
    _names_program,
    _program_runs_once,
)

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


PROGRAM = """
import multiprocessing, os, sys
from caesura.scheduler.vllm.client.launch import _program_runs_once

print("run")
with _program_runs_once():
    child = multiprocessing.get_context("spawn").Process(target=os.getpid)
    child.start()
    child.join()
print(child.exitcode, sys.modules["__main__"].__file__ == __file__)
"""


@pytest.mark.parametrize("source", ["file", "stdin"])
def test_a_program_without_a_main_guard_runs_once(source: str, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    command = [sys.executable, str(file) if source == "file" else "-"]
    given = {} if source == "file" else {"input": PROGRAM}
    ran = subprocess.run(command, **given, capture_output=True, text=True, cwd=tmp_path)
    assert ran.stdout.split("\n")[:2] == ["run", "0 True"], ran.stderr


def test_the_program_is_hidden_from_the_starting_thread_alone() -> None:
    main = sys.modules["__main__"]
    kind, spec = type(main), main.__spec__
    seen = []
    with _program_runs_once(), _program_runs_once():
        assert main.__spec__ is None and getattr(main, "__file__", None) is None
        other = threading.Thread(target=lambda: seen.append(main.__spec__))
        other.start()
        other.join()
    assert seen == [spec] and main.__spec__ is spec
    assert type(main) is kind


class OfTheProgram:
    pass


def test_an_engine_that_needs_the_program_imports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OfTheProgram, "__module__", "__main__")
    monkeypatch.setattr(sys.modules["__main__"], "OfTheProgram", OfTheProgram, raising=False)
    assert _names_program({"processors": [OfTheProgram]})  # type: ignore[arg-type]
    assert _names_program({"ranking": "__main__.Mine:worth=2"})  # type: ignore[arg-type]
    assert not _names_program({"ranking": "my_module.Mine"})  # type: ignore[arg-type]
    assert not _names_program({"cannot be pickled": lambda: 0})  # type: ignore[arg-type]


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
