"""Processes that simulate, started by any program: it runs once, and none outlives it."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.processes import gone, started

STUDY = """
from dataclasses import replace
from pathlib import Path
from caesura.simulator.study.conduct import conduct
from tests.simulator import studies

print("run", flush=True)
study = replace(studies.STUDY, rates=(1.0,), seeds=(0,))
outcome = conduct(study, Path("runs"), 2, work=studies.make_up)
print(len(outcome.made), *outcome.failures)
"""
OF_THE_PROGRAM = """
from dataclasses import replace
from pathlib import Path
from caesura.simulator.study.conduct import conduct
from tests.simulator import studies

def work(cell, progress):
    return studies.make_up(cell, progress)

if __name__ == "__main__":
    print("run", flush=True)
    study = replace(studies.STUDY, rates=(1.0,), seeds=(0,))
    print(len(conduct(study, Path("runs"), 2, work=work).made))
"""


def environment() -> dict[str, str]:
    """What lets a program import the tests."""
    return {**os.environ, "PYTHONPATH": f"{Path.cwd()}:{os.environ.get('PYTHONPATH', '')}"}


@pytest.mark.parametrize(
    ("program", "says"),
    [(STUDY, "2"), (OF_THE_PROGRAM, "2")],
    ids=["study", "work of the program"],
)
def test_a_program_is_run_once(program: str, says: str, tmp_path: Path) -> None:
    """With no `if __name__ == "__main__"`, unless its own functions are the work."""
    file = tmp_path / "program.py"
    file.write_text(program)
    ran = subprocess.run(
        [sys.executable, str(file)],
        env=environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert ran.stdout.split() == ["run", says], ran.stderr
    assert "Traceback" not in ran.stderr


HALTING = """
import time
from dataclasses import replace
from caesura.simulator.engine.replicas import simulate_replicas
from caesura.simulator.policy import Fleet
from tests.simulator.simulated import OURS, machine, workload
from tests.simulator.test_replicas import MIXED

def halt(at):
    print("halted", flush=True)
    time.sleep(600)

fleet = replace(OURS, fleet=Fleet(3, "hash", 0.05))
simulate_replicas(workload(*MIXED), machine(blocks=60), fleet, processes=2, progress=halt)
"""


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_replicas_end_with_the_run(number: signal.Signals, tmp_path: Path) -> None:
    """If the parent is killed, they notice; at Ctrl-C, which they do not hear, it ends them.

    The program has no `if __name__ == "__main__"`, and runs once all the same.
    """
    file = tmp_path / "program.py"
    file.write_text(HALTING)
    with subprocess.Popen(
        [sys.executable, str(file)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as run:
        assert run.stdout is not None and run.stderr is not None
        assert run.stdout.readline() == "halted\n"
        below = started(run.pid)
        assert len(below) >= 2
        if number == signal.SIGINT:
            os.killpg(run.pid, number)  # as a terminal does
        else:
            run.kill()
        assert asyncio.run(gone(below))
        said = run.stderr.read()
    assert said.count("Traceback") == (number == signal.SIGINT), "of the parent alone"
