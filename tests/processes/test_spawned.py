"""How processes are spawned, and that they end with a parent that is killed."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from caesura.processes.spawned import deaf_children, names_program, program_runs_once
from tests.kit.processes import gone, started

MASK = "import signal; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))"


def ask_mask() -> bool:
    shown = subprocess.run([sys.executable, "-c", MASK], capture_output=True, check=True)
    return shown.stdout.strip() == b"True"


def test_what_starts_within_does_not_hear_ctrl_c() -> None:
    with deaf_children():
        assert ask_mask()
    assert not ask_mask()
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


PROGRAM = """
import multiprocessing, os, sys
from caesura.processes.spawned import program_runs_once

print("run")
with program_runs_once():
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
    given = None if source == "file" else PROGRAM
    ran = subprocess.run(command, input=given, capture_output=True, text=True, cwd=tmp_path)
    assert ran.stdout.split("\n")[:2] == ["run", "0 True"], ran.stderr


def test_the_program_is_hidden_from_the_starting_thread_alone() -> None:
    main = sys.modules["__main__"]
    kind, spec = type(main), main.__spec__
    seen = []
    with program_runs_once(), program_runs_once():
        assert main.__spec__ is None and getattr(main, "__file__", None) is None
        other = threading.Thread(target=lambda: seen.append(main.__spec__))
        other.start()
        other.join()
    assert seen == [spec] and main.__spec__ is spec
    assert type(main) is kind


def test_a_forked_process_sees_its_program() -> None:
    main = sys.modules["__main__"]
    before = (type(main), main.__spec__, getattr(main, "__file__", ""))
    with program_runs_once():
        child = os.fork()
        if not child:
            os._exit((type(main), main.__spec__, getattr(main, "__file__", "")) != before)
        assert main.__spec__ is None
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


class OfTheProgram:
    pass


def test_a_value_that_needs_the_program_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OfTheProgram, "__module__", "__main__")
    monkeypatch.setattr(sys.modules["__main__"], "OfTheProgram", OfTheProgram, raising=False)
    assert names_program({"processors": [OfTheProgram]})
    assert names_program({"ranking": "__main__.Mine:worth=2"})
    assert not names_program({"ranking": "my_module.Mine"})
    assert not names_program({"cannot be pickled": lambda: 0})


PARENT = """
import multiprocessing, os, signal, time
from caesura.processes.spawned import deaf_children, end_with_parent

def child(deaf):
    end_with_parent(0.2)
    if deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print(os.getpid(), flush=True)
    time.sleep(600)

if __name__ == "__main__":
    with deaf_children():
        for deaf in (False, True):
            multiprocessing.get_context("spawn").Process(target=child, args=(deaf,)).start()
    time.sleep(600)
"""


def test_nothing_outlives_a_parent_that_is_killed(tmp_path: Path) -> None:
    """Neither a process that heeds SIGTERM, nor one that is deaf to it."""
    program = tmp_path / "parent.py"
    program.write_text(PARENT)
    with subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pids = [int(parent.stdout.readline()) for _ in range(2)]
        below = started(parent.pid)
        assert set(pids) <= below
        parent.kill()
    assert asyncio.run(gone(below))
