"""The process that predicts lengths: what goes wrong costs its predictions only."""

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from caesura.scheduler.prompt_lengths.process import (
    MAX_WAITING,
    LengthProcess,
    Limits,
    command_of,
)
from tests.prompt_lengths.test_linear import told, trained

QUICK = Limits(start=20.0, answer=0.3, back_off=0.01, restarts=2)

ANSWERS = """
import json, sys, time
print(json.dumps({{"ready": True}}), flush=True)
for count, line in enumerate(sys.stdin):
    asked = json.loads(line)
    {body}
"""
ECHO = 'print(json.dumps({"id": asked["id"], "tokens": [len(asked["prompt"])]}), flush=True)'

Start = Callable[..., LengthProcess]


def text(tokens: Sequence[int]) -> bytes:
    return b"x" * sum(tokens)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a process of a script, with its process id in a file."""
    started: list[LengthProcess] = []

    def begin(body: str, limits: Limits = QUICK, whole: bool = False) -> LengthProcess:
        script = body if whole else ANSWERS.format(body=body)
        note = f"import os; open({str(tmp_path / 'pids')!r}, 'a').write(f'{{os.getpid()}} ')\n"
        started.append(LengthProcess([sys.executable, "-c", note + script], text, limits))
        return started[-1]

    yield begin
    for process in started:
        process.close()
    for pid in (tmp_path / "pids").read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def until(met: Callable[[], object], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def test_answers_come_when_they_are_ready(start: Start) -> None:
    process = start(ECHO)
    process.ask("a", [3, 4])
    process.ask("b", [1])
    assert process.find("c") is None
    until(lambda: process.find("b"))
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
    process = start(f"{ECHO}\n    if count == 1: sys.exit(3)", Limits(back_off=0.01, restarts=9))
    for name in "abcd":
        process.ask(name, [1])
        until(lambda: process.counts.answered + process.counts.dropped == process.counts.asked)
    until(lambda: process.counts.restarts >= 1)
    assert process.find("d") or process.counts.dropped


@pytest.mark.parametrize(
    "said",
    [
        "'hello'",
        "'[]'",
        """'{"id": 99, "tokens": [1]}'""",
        """'{"id": 1, "tokens": []}'""",
        """'{"id": 1, "tokens": [-4]}'""",
        """'{"id": 1, "tokens": [Infinity]}'""",
        """'{"id": 1, "tokens": ["x"]}'""",
        """'{"id": 1, "tokens": 7}'""",
        """'{"id": 1}'""",
        "'[' * 99999",
        "'x' * 300000",
    ],
)
def test_garbage_is_no_answer(start: Start, said: str) -> None:
    process = start(f"print({said}, flush=True)", Limits(back_off=0.01, restarts=0))
    process.ask("a", [1])
    until(lambda: process.failed)
    assert "it sent" in process.failed and process.find("a") is None


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("import sys; sys.exit(7)", "ended with code 7"),
        ("""print('{"error": "no weights"}', flush=True)""", "failed to load: no weights"),
        ("import time; time.sleep(60)", "was not ready after 1 s"),
    ],
)
def test_a_process_that_does_not_start_is_given_up(start: Start, script: str, says: str) -> None:
    process = start(script, Limits(start=1.0, back_off=0.01, restarts=1), whole=True)
    until(lambda: process.failed)
    assert says in process.failed


def test_a_command_that_is_missing_is_given_up() -> None:
    process = LengthProcess(["/no/such/program"], text, QUICK)
    until(lambda: process.failed)
    assert "cannot be started" in process.failed
    process.close()


def test_a_flood_is_cut_and_never_waits(start: Start) -> None:
    process = start("time.sleep(0.001); " + ECHO, Limits())
    for number in range(20 * MAX_WAITING):
        process.ask(f"s{number}", [9])
    last = f"s{20 * MAX_WAITING - 1}"
    until(lambda: process.find(last))
    until(lambda: process.counts.answered + process.counts.dropped == process.counts.asked)
    assert process.counts.dropped >= 10 * MAX_WAITING


def test_a_trained_predictor_answers_from_its_process(tmp_path: Path) -> None:
    predictor = trained("l1", told())
    predictor.save(tmp_path)
    texts = {1: b"please write a story about cats", 2: b"please write a brief about \xff"}
    process = LengthProcess(command_of(tmp_path), lambda tokens: texts[tokens[0]])
    try:
        process.ask("long", [1])
        process.ask("short", [2])
        until(lambda: process.find("short"), seconds=60)
        long, short = process.find("long") or (), process.find("short") or ()
        assert sum(long) > 3 * sum(short) > 0
        expected = predictor.predict([texts[1].decode()]).quantiles[0]
        assert long == pytest.approx(sorted(expected), abs=0.06)
    finally:
        process.close()


def test_a_broken_directory_is_told(tmp_path: Path) -> None:
    process = LengthProcess(command_of(tmp_path), text, Limits(back_off=0.01, restarts=0))
    until(lambda: process.failed, seconds=60)
    assert "holds no predictor.json" in process.failed
    process.close()
