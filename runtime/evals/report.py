"""The report of an evaluation: what each sample said, rates with intervals, and its files."""

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from caesura.runtime.errors import UsageError
from caesura.runtime.evals.case import Checked

Z95 = 1.959963984540054
"""The normal quantile of a two-sided interval of 95 %."""
LEAST_SAMPLES = 3
"""From fewer samples no interval is told."""
_NOT_IN_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def wilson(rate: float, count: int) -> tuple[float, float] | None:
    """Return the interval of 95 % of a rate in `count` samples (Wilson 1927), or None for too few.

    The rate may be a mean of rates, so that the number of passes need not be whole.
    """
    if count < LEAST_SAMPLES:
        return None
    square = Z95 * Z95 / count
    centre = (rate + square / 2) / (1 + square)
    half = Z95 / (1 + square) * math.sqrt(rate * (1 - rate) / count + square / (4 * count))
    return max(0.0, centre - half), min(1.0, centre + half)


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer: what the checks said of it. With an `error` there was no answer."""

    passed: bool
    checks: tuple[Checked, ...] = ()
    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    """The names and the JSON arguments."""
    seconds: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    turns: int = 0
    error: str = ""

    @property
    def why(self) -> str:
        """What is wrong with it, in a line; empty if it passed."""
        if self.error:
            return self.error
        wrong = [each for each in self.checks if not each.passed]
        return "; ".join(
            f"{each.check}: {each.reason}" if each.reason else each.check for each in wrong
        )


@dataclass(frozen=True)
class CaseResult:
    """The samples of one case that were done."""

    name: str
    samples: tuple[Sample, ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def passes(self) -> int:
        """How many samples passed."""
        return sum(sample.passed for sample in self.samples)

    @property
    def rate(self) -> float:
        """The share of samples that passed; 0 without any."""
        return self.passes / len(self.samples) if self.samples else 0.0

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval of 95 % of the rate; None for fewer than three samples."""
        return wilson(self.rate, len(self.samples))

    @property
    def why(self) -> str:
        """What was wrong with the first sample that failed."""
        return next((sample.why for sample in self.samples if not sample.passed), "")


@dataclass(frozen=True)
class Report:
    """What came of an evaluation. Printed, it is a table.

    `complete` is False where it was interrupted: cases and samples are then missing.
    """

    cases: tuple[CaseResult, ...]
    name: str = ""
    """What was evaluated."""
    seconds: float = 0.0
    complete: bool = True
    version: Literal[1] = 1

    @cached_property
    def _by_name(self) -> dict[str, CaseResult]:
        return {case.name: case for case in self.cases}

    def __getitem__(self, name: str) -> CaseResult:
        """Return the result of a case; raise KeyError."""
        return self._by_name[name]

    @property
    def rate(self) -> float:
        """The mean of the cases' rates."""
        return sum(case.rate for case in self.cases) / len(self.cases) if self.cases else 0.0

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval of 95 % of the rate, if the cases are drawn from others of their kind.

        Samples of a case are alike, so that the cases count, and not the samples.
        """
        return wilson(self.rate, len(self.cases))

    def failed(self, least: float = 1.0) -> list[CaseResult]:
        """Return the cases of which fewer samples passed than the share `least`."""
        return [case for case in self.cases if case.rate < least or not case.samples]

    # -- Files -----------------------------------------------------------------------------------

    def save(self, path: Path | str) -> None:
        """Write it as JSON, which `load` reads. Raises `UsageError`."""
        _written(path, _ADAPTER.dump_json(self, indent=1, fallback=str).decode())

    @staticmethod
    def load(path: Path | str) -> "Report":
        """Return the report in a file. Raises `UsageError` for a file that holds none."""
        try:
            text = Path(path).read_bytes()
        except OSError as error:
            raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
        try:
            return _ADAPTER.validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "it"
            raise UsageError(
                f"{path}: is no report of an evaluation: {where}: {first['msg']}"
            ) from None

    def junit(self, path: Path | str, least: float = 1.0) -> None:
        """Write it as JUnit XML: a case fails if fewer samples passed than the share `least`.

        Raises `UsageError`.
        """
        failed = {case.name for case in self.failed(least)}
        errors = {case.name for case in self.cases if any(each.error for each in case.samples)}
        suite = ET.Element(
            "testsuite",
            name=_xml(self.name or "evaluation"),
            tests=str(len(self.cases)),
            failures=str(len(failed - errors)),
            errors=str(len(failed & errors)),
            time=f"{self.seconds:.3f}",
        )
        for case in self.cases:
            time = sum(sample.seconds for sample in case.samples)
            told = {"classname": self.name or "evaluation", "name": case.name}
            made = ET.SubElement(
                suite,
                "testcase",
                {key: _xml(each) for key, each in told.items()},
                time=f"{time:.3f}",
            )
            if case.name in failed:
                kind = "error" if case.name in errors else "failure"
                message = f"{case.passes} of {len(case.samples)} samples passed: {case.why}"
                found = ET.SubElement(made, kind, message=_xml(message))
                found.text = _xml("\n\n".join(map(_told, case.samples)))
        _written(path, ET.tostring(suite, encoding="unicode", xml_declaration=True))

    # -- The table -------------------------------------------------------------------------------

    def table(self) -> Table:
        """Return the table that `print` shows, for rich."""
        table = Table(box=None, pad_edge=False)
        for column in ("case", "passed", "rate", "95 %", "seconds", "tokens", "first failure"):
            right = column in ("passed", "rate", "seconds", "tokens")
            table.add_column(column, justify="right" if right else "left", overflow="fold")
        for case in self.cases:
            count = len(case.samples)
            mean = max(count, 1)
            table.add_row(
                escape(case.name),
                f"{case.passes}/{count}",
                f"{case.rate:.0%}",
                shown(case.interval),
                f"{sum(each.seconds for each in case.samples) / mean:.2f}",
                f"{sum(each.completion_tokens for each in case.samples) / mean:.0f}",
                escape(" ".join(case.why.split())[:120]),
            )
        samples = sum(len(case.samples) for case in self.cases)
        passes = sum(case.passes for case in self.cases)
        total = f"{passes}/{samples}", f"{self.rate:.0%}", shown(self.interval)
        end = "" if self.complete else "interrupted: cases or samples are missing"
        table.add_row("[bold]all[/bold]", *total, f"{self.seconds:.2f}", "", end)
        return table

    def __str__(self) -> str:
        console = Console(width=120, no_color=True, highlight=False)
        with console.capture() as caught:
            console.print(self.table())
        return "\n".join(line.rstrip() for line in caught.get().splitlines())


_ADAPTER: TypeAdapter[Report] = TypeAdapter(Report)


def shown(interval: tuple[float, float] | None) -> str:
    """Return an interval as a table shows it; empty for none."""
    return "" if interval is None else f"{interval[0]:.0%} to {interval[1]:.0%}"


def _told(sample: Sample) -> str:
    calls = "".join(f"\ncall: {name} {arguments}" for name, arguments in sample.calls)
    state = "passed" if sample.passed else f"failed: {sample.why}"
    return f"{state}\nanswer: {sample.text}{calls}"


def _xml(text: str) -> str:
    """Return the text without the characters that no XML holds."""
    return _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def _written(path: Path | str, text: str) -> None:
    """Write a file, which is whole or as it was before."""
    target = Path(path)
    part = target.with_name(f".{target.name}.part")
    try:
        part.write_text(text, "utf-8")
        part.replace(target)
    except OSError as error:
        raise UsageError(f"{target}: cannot be written: {error.strerror}") from None
