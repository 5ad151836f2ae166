"""Two reports of the same cases: which cases changed, and whether chance explains it."""

import math
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from caesura.runtime.evals.report import Report


def sign_test(better: int, worse: int) -> float:
    """Return the p-value of the exact sign test, two-sided: pairs that did not change are left out.

    With one sample of each case it is McNemar's exact test.
    """
    count, most = better + worse, max(better, worse)
    if count == 0:
        return 1.0
    tail = sum(math.comb(count, number) for number in range(most, count + 1))
    return min(1.0, float(2 * tail / 2**count))


@dataclass(frozen=True, slots=True)
class Change:
    """A case whose rate is another one than before."""

    name: str
    before: float
    after: float
    why: str = ""
    """What was wrong with the first sample that fails now."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The cases that two reports have both, as pairs. Printed, it is a table of what changed."""

    better: tuple[Change, ...]
    worse: tuple[Change, ...]
    same: int
    """How many cases have the same rate in both."""
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    before: float
    """The mean rate of the pairs."""
    after: float

    @property
    def p(self) -> float:
        """The chance of so many changes one way, or more, if neither is better (`sign_test`)."""
        return sign_test(len(self.better), len(self.worse))

    def table(self) -> Table:
        """Return the table that `print` shows, for rich."""
        table = Table(box=None, pad_edge=False)
        for column in ("case", "before", "now", "", "first failure now"):
            table.add_column(column, overflow="fold")
        for said, changes in (("worse", self.worse), ("better", self.better)):
            for each in changes:
                rates = f"{each.before:.0%}", f"{each.after:.0%}"
                table.add_row(escape(each.name), *rates, said, escape(each.why[:120]))
        return table

    @property
    def summary(self) -> str:
        """The counts, the rates and the p-value in a line."""
        told = (
            f"{len(self.better)} better, {len(self.worse)} worse, {self.same} alike;"
            f" {self.before:.0%} before, {self.after:.0%} now; p = {self.p:.3g} (sign test)"
        )
        for what, names in (("gone", self.only_before), ("new", self.only_after)):
            if names:
                told += f"; {what}, and not compared: {', '.join(names)}"
        return told

    def __str__(self) -> str:
        console = Console(width=120, no_color=True, highlight=False)
        with console.capture() as caught:
            if self.better or self.worse:
                console.print(self.table())
        lines = [line.rstrip() for line in caught.get().splitlines()]
        return "\n".join([*lines, self.summary])


def compare(before: Report, after: Report) -> Comparison:
    """Return how the cases of two reports differ, by their names."""
    old = {case.name: case for case in before.cases if case.samples}
    new = {case.name: case for case in after.cases if case.samples}
    both = [name for name in new if name in old]
    changes = [Change(name, old[name].rate, new[name].rate, new[name].why) for name in both]
    better = tuple(each for each in changes if each.after > each.before)
    worse = tuple(each for each in changes if each.after < each.before)
    count = max(len(both), 1)
    return Comparison(
        better,
        worse,
        len(both) - len(better) - len(worse),
        tuple(name for name in old if name not in new),
        tuple(name for name in new if name not in old),
        sum(old[name].rate for name in both) / count,
        sum(new[name].rate for name in both) / count,
    )
