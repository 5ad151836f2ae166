"""Making results: one command after the other, which go on where they stopped."""

import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from benchmarks.evidence.depends import ROOT
from benchmarks.evidence.results import FOLDER, Result, commit, gpu, machine, now, versions
from benchmarks.evidence.tables import told
from benchmarks.machine import Load

if TYPE_CHECKING:
    from benchmarks.evidence.questions import Question

CACHE = ROOT / ".cache" / "evidence"
END_SECONDS = 60.0
"""What a command has to end after it was asked to, before it is killed."""


@dataclass
class Spent:
    """What the pieces of a result have taken so far, of the code with these digests.

    `others` is in seconds of the whole machine.
    """

    files: dict[str, str]
    began: str
    seconds: float = 0.0
    others: float = 0.0


class Maker:
    """Makes results, until the time is used up."""

    def __init__(
        self,
        console: Console,
        folder: Path = FOLDER,
        cache: Path = CACHE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create it for a folder of results, and one of what is unfinished."""
        self._console, self._folder, self._cache, self._clock = console, folder, cache, clock

    def make(self, questions: Iterable["Question"], seconds: float) -> list[str]:
        """Make the results; return the names of those that are not complete.

        A command that would not end in time is interrupted, and keeps what it has; one that is
        timed and keeps nothing is not begun.
        """
        end = self._clock() + seconds
        listed = list(questions)
        left = []
        for place, question in enumerate(listed, start=1):
            known = self._spent(question).seconds / 60
            minutes = max(question.minutes - known, 0.5)
            self._console.rule(
                f"{place} of {len(listed)}: {question.name}, about {minutes:.0f} min"
            )
            if not self._fits(question, end - self._clock()) or not self._make(question, end):
                left.append(question.name)
        return left

    def _fits(self, question: "Question", seconds: float) -> bool:
        if question.kind == "gpu" and not gpu():
            self._console.print(f"{question.name} needs a GPU, and there is none")
            return False
        resumes = question.kind == "simulated" or "{runs}" in question.command
        fits = seconds > (0 if resumes else 60 * question.minutes)
        if not fits:
            self._console.print(f"no time for {question.name}")
        return fits

    def _make(self, question: "Question", end: float) -> bool:
        """Run the command; return whether it has come to its end."""
        folder = self._cache / question.name
        folder.mkdir(parents=True, exist_ok=True)
        spent = self._spent(question)
        tables = folder / "tables.json"
        tables.unlink(missing_ok=True)
        began = self._clock()
        with Load() as load:
            code = self._run(self._words(question, folder, spent, tables), end)
        spent.seconds += self._clock() - began
        spent.others += load.others * (self._clock() - began)
        (folder / "spent.json").write_text(json.dumps(vars(spent)))
        if code or not tables.exists():
            why = "was interrupted" if code == -signal.SIGINT else f"ended with {code}"
            self._console.print(f"{question.name} is not complete: its command {why}")
            return False
        self._result(question, spent, tables).keep(self._folder)
        (folder / "spent.json").unlink()
        self._console.print(f"{question.name}: kept in {self._folder / question.name}.json")
        return True

    def _result(self, question: "Question", spent: Spent, tables: Path) -> Result:
        return Result(
            name=question.name,
            command=question.typed,
            seeds=question.seeds,
            commit=commit(),
            began=spent.began,
            seconds=round(spent.seconds, 1),
            others=round(spent.others / spent.seconds, 3) if spent.seconds else 0.0,
            machine=machine() | ({"gpu": gpu()} if question.kind == "gpu" else {}),
            versions=versions(),
            files=spent.files,
            tables=tuple(told(tables)),
        )

    def _spent(self, question: "Question") -> Spent:
        """Return what earlier pieces took; what other code took does not count."""
        path = self._cache / question.name / "spent.json"
        files = question.digests()
        if path.exists():
            kept = Spent(**json.loads(path.read_text()))
            if kept.files == files:
                return kept
        return Spent(files, now())

    def _words(
        self, question: "Question", folder: Path, spent: Spent, tables: Path
    ) -> Sequence[str]:
        """Return the command: runs of other code are in another folder."""
        code = "-".join(spent.files[room] for room in sorted(spent.files))
        words = shlex.split(question.command.replace("{runs}", str(folder / f"runs-{code}")))
        program = sys.executable if words[0] == "python" else words[0]
        return [program, *words[1:], "--tables", str(tables)]

    def _run(self, words: Sequence[str], end: float) -> int:
        """Return the exit code of a command, which is interrupted at the end of the time."""
        with subprocess.Popen(words, cwd=ROOT, preexec_fn=_hear_interrupts) as process:
            try:
                return process.wait(max(0.0, min(end - self._clock(), 1e9)))
            except subprocess.TimeoutExpired:
                self._console.print("the time is used up")
                process.send_signal(signal.SIGINT)
            except KeyboardInterrupt:
                # The terminal has interrupted the command too.
                _end(process)
                raise
            _end(process)
            return -signal.SIGINT


def _hear_interrupts() -> None:
    """Undo what a shell does to programs in its background, which ignore interrupts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait for a command that was interrupted; kill it if it does not end."""
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
