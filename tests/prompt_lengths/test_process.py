"""The process that predicts lengths: what goes wrong costs its predictions only."""

import asyncio
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from caesura.processes.worker import Worker
from caesura.scheduler.prompt_lengths.process import MAX_WAITING, LengthProcess, Limits
from tests.kit.processes import gone, started
from tests.kit.waiting import wait_until
from tests.prompt_lengths.prompts import told, trained

QUICK = Limits(start=20.0, answer=0.3, back_off=0.01, restarts=2)
LASTING = Limits(start=20.0, answer=20.0, back_off=0.01, restarts=9)

FAKED = """
import os, sys, time
open({pids!r}, "a").write(f"{{os.getpid()}} ")
calls = 0

def lengths_of(folder, prompts):
    global calls
    calls += 1
    if calls > 1:
        {body}
    return [[len(prompt)] for prompt in prompts]
"""

Start = Callable[..., LengthProcess]


def text(tokens: Sequence[int]) -> bytes:
    return b"x" * sum(tokens)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a process that answers with the lengths of prompts, or does what a body says.

    With `whole`, the body is its module. All processes have ended when the test has.
    """
    started: list[LengthProcess] = []
    pids = tmp_path / "pids"

    def begin(body: str, limits: Limits = QUICK, whole: bool = False) -> LengthProcess:
        (tmp_path / "faked_lengths.py").write_text(
            body if whole else FAKED.format(body=body, pids=str(pids))
        )

        async def spawn() -> Worker:
            return await Worker.spawn("faked_lengths", environment={"PYTHONPATH": str(tmp_path)})

        started.append(LengthProcess(tmp_path, text, limits, start=spawn))
        return started[-1]

    yield begin
    for process in started:
        process.close()
    for pid in pids.read_text().split() if pids.exists() else ():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def test_answers_come_when_they_are_ready(start: Start) -> None:
    process = start("pass")
    process.ask("a", [3, 4])
    process.ask("b", [1])
    assert process.find("c") is None
    wait_until(lambda: process.find("b"))
    assert process.find("a") == (7.0,) and process.find("b") == (1.0,)
    process.forget("a")
    process.forget("a")
    assert process.find("a") is None
    assert (process.counts.asked, process.counts.answered, process.counts.restarts) == (2, 2, 0)


def test_a_slow_process_is_given_up(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    process = start("time.sleep(60)")
    for number in range(9):
        process.ask(f"s{number}", [1])
        time.sleep(0.05)
    with caplog.at_level(logging.WARNING):
        for number in range(400):
            if process.failed:
                break
            process.ask(f"t{number}", [1])
            time.sleep(0.02)
    assert "answered nothing for 0.3 s" in process.failed
    assert process.counts.restarts == 2 and process.counts.answered == 0
    assert process.counts.dropped > 0
    assert len(caplog.records) == 2  # the first restart, and the end
    process.ask("later", [1])
    assert process.find("later") is None


def test_a_dead_process_is_started_again(start: Start) -> None:
    process = start("if calls == 3: os._exit(3)", LASTING)
    for name in "abcd":
        process.ask(name, [1])
        wait_until(lambda: process.counts.answered + process.counts.dropped == process.counts.asked)
    wait_until(lambda: process.counts.restarts >= 1)
    assert process.find("d") or process.counts.dropped


@pytest.mark.parametrize(
    "said",
    [
        "'hello'",
        "[]",
        "[[1], [2]]",
        "{}",
        "7",
        "None",
        "[[]]",
        "[[-4]]",
        "[[float('inf')]]",
        "[['x']]",
        "[[1] * 65]",
    ],
)
def test_garbage_is_no_length(start: Start, said: str) -> None:
    process = start(f"return {said}", Limits(back_off=0.01, restarts=0))
    process.ask("a", [1])
    wait_until(lambda: process.failed)
    assert "it sent no lengths" in process.failed and process.find("a") is None


@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("import sys; print('my last words', file=sys.stderr); os_exit()", "name 'os_exit'"),
        ("import os; os._exit(7)", r"ended (7)"),
        ("def lengths_of(folder, prompts): raise ValueError('no weights')", "failed: no weights"),
        ("import time; time.sleep(60)", "was not ready after 1 s"),
    ],
)
def test_a_process_that_does_not_start_is_given_up(start: Start, module: str, says: str) -> None:
    seconds = 1.0 if "sleep" in module else 20.0
    process = start(module, Limits(start=seconds, back_off=0.01, restarts=1), whole=True)
    wait_until(lambda: process.failed)
    assert says in process.failed
    assert process.counts.restarts == 1


def test_a_python_that_is_missing_is_given_up(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/program")
    process = start("pass")
    wait_until(lambda: process.failed)
    assert "cannot be started" in process.failed


def test_a_flood_is_cut_and_never_waits(start: Start) -> None:
    process = start("time.sleep(0.001)", Limits())
    for number in range(20 * MAX_WAITING):
        process.ask(f"s{number}", [9])
    last = f"s{20 * MAX_WAITING - 1}"
    wait_until(lambda: process.find(last))
    wait_until(lambda: process.counts.answered + process.counts.dropped == process.counts.asked)
    assert process.counts.dropped >= 10 * MAX_WAITING


def test_a_trained_predictor_answers_from_its_process(tmp_path: Path) -> None:
    predictor = trained("l1", told())
    predictor.save(tmp_path)
    texts = {1: b"please write a story about cats", 2: b"please write a brief about \xff"}
    process = LengthProcess(tmp_path, lambda tokens: texts[tokens[0]])
    try:
        process.ask("long", [1])
        process.ask("short", [2])
        wait_until(lambda: process.find("short"))
        long, short = process.find("long") or (), process.find("short") or ()
        assert sum(long) > 3 * sum(short) > 0
        expected = predictor.predict([texts[1].decode()]).quantiles[0]
        assert long == pytest.approx(sorted(expected), abs=0.06)
    finally:
        process.close()


def test_a_broken_directory_is_told(tmp_path: Path) -> None:
    process = LengthProcess(tmp_path, text, Limits(back_off=0.01, restarts=0))
    wait_until(lambda: process.failed)
    assert "holds no predictor.json" in process.failed
    process.close()


ENGINE = """
import os, sys, time
from pathlib import Path
from caesura.scheduler.prompt_lengths.process import LengthProcess

process = LengthProcess(Path(sys.argv[1]), lambda tokens: b"a prompt")
process.ask("a", [1])
while process.find("a") is None:
    assert not process.failed, process.failed
    time.sleep(0.01)
print("answered", flush=True)
time.sleep(600)
"""


def test_nothing_outlives_an_engine_that_is_killed(tmp_path: Path) -> None:
    trained("l1", told()).save(tmp_path)
    command = [sys.executable, "-c", ENGINE, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as engine:
        assert engine.stdout is not None and engine.stdout.readline() == b"answered\n"
        below = started(engine.pid)
        assert len(below) == 2  # the process and its keeper
        engine.kill()
    assert asyncio.run(gone(below))
