"""The outcomes of one or two runs, as a table and as a list of differences."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

# In pytest's words; anything else (skipped, xfailed, "subtests passed") is neither.
PASSED, BAD, NOT_RUN = "passed", ("failed", "error"), "not run"


@dataclass
class Run:
    """What one run of vLLM's tests gave."""

    scheduler: str
    outcomes: dict[str, str] = field(default_factory=dict)
    details: dict[str, str] = field(default_factory=dict)
    built: dict[str, int] = field(default_factory=dict)
    collected: int = 0
    finished: bool = False
    seconds: float = 0.0

    @classmethod
    def load(cls, scheduler: str, path: Path) -> Run:
        """Read what the plugin wrote."""
        run = cls(scheduler)
        text = path.read_text() if path.exists() else ""
        # Only whole lines: the run may still be writing the last one.
        for line in text[: text.rfind("\n") + 1].splitlines():
            row = json.loads(line)
            run.collected = row.get("collected", run.collected)
            if "built" in row:
                run.built, run.finished = row["built"], True
            elif "id" in row:
                run._add(**row)
        return run

    def _add(self, id: str, outcome: str, detail: str) -> None:
        # A test that passed may still fail at its teardown, never the other way round.
        if self.outcomes.get(id) not in BAD:
            self.outcomes[id] = outcome
            self.details[id] = detail

    @property
    def tests(self) -> int:
        """Count the tests that ended, whatever their outcome."""
        return sum(not outcome.startswith("subtests") for outcome in self.outcomes.values())

    @property
    def missing(self) -> int:
        """Count the tests that never came to an end, because the run did not."""
        return 0 if self.finished else max(self.collected - self.tests, 0)

    def count(self, *outcomes: str) -> int:
        """Count the tests with one of these outcomes."""
        return sum(outcome in outcomes for outcome in self.outcomes.values())

    def of_file(self, name: str) -> str:
        """Return a file's counts in pytest's words."""
        counts = Counter(o for test, o in self.outcomes.items() if _file(test) == name)
        order = sorted(counts, key=lambda outcome: (outcome != PASSED, outcome))
        return ", ".join(f"{counts[outcome]} {outcome}" for outcome in order) or "-"


def _file(test: str) -> str:
    return test.partition("::")[0].strip()


def table(runs: list[Run]) -> str:
    """Lay out a row per file and a column per run."""
    files = dict.fromkeys(_file(test) for run in runs for test in run.outcomes)
    rows = [["file", *(run.scheduler for run in runs)]]
    rows += [[name.removeprefix("tests/"), *(run.of_file(name) for run in runs)] for name in files]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def differences(stock: Run, ours: Run) -> list[str]:
    """Describe each test whose outcome is not the same in both runs."""
    found = []
    for test in dict.fromkeys([*stock.outcomes, *ours.outcomes]):
        pair = [run.outcomes.get(test, NOT_RUN) for run in (stock, ours)]
        # What a broken-off run did not reach is said once, not per test.
        if pair[0] != pair[1] and (NOT_RUN not in pair or (stock.finished and ours.finished)):
            detail = ours.details.get(test) or stock.details.get(test) or ""
            found.append(
                f"{test}: {pair[0]} with stock, {pair[1]} with ours\n{indent(detail)}".strip()
            )
    return found


def failures(run: Run) -> list[str]:
    """Describe each test that failed."""
    return [
        f"{test}: {outcome} with {run.scheduler}\n{indent(run.details[test])}"
        for test, outcome in run.outcomes.items()
        if outcome in BAD
    ]


def indent(text: str) -> str:
    """Set the first lines of a text off from what they explain."""
    return "\n".join(f"    {line}" for line in text.splitlines()[:12])
