"""Make the figures of README and docs, and write the pages that show them.

    python -m benchmarks.evidence                     # what is missing or stale, then the pages
    python -m benchmarks.evidence --list              # what there is, and how old it is
    python -m benchmarks.evidence --only policies     # again, whether stale or not
    python -m benchmarks.evidence --kind simulated counted --minutes 30
    python -m benchmarks.evidence --write             # only the pages, from what is kept
    python -m benchmarks.evidence --check             # fails where the code is newer than a figure
    python -m benchmarks.evidence --walk              # measured figures in prose

Ctrl-C ends it early, and so does --minutes; the same command goes on. Timed questions need a
machine that does nothing else: what others used of it is kept with the result.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table

from benchmarks.evidence.pages import Kept, keep_stale, since, stale_now, write_pages
from benchmarks.evidence.questions import Question, by_name
from benchmarks.evidence.run import Maker
from benchmarks.evidence.walk import figures
from benchmarks.evidence.walk import pages as walked_pages

KINDS = ("counted", "simulated", "timed", "gpu")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.evidence",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--only", nargs="+", metavar="NAME", help="these questions, even if they are not stale")
    add("--kind", nargs="+", choices=KINDS, default=KINDS, metavar="KIND", help=", ".join(KINDS))
    add("--minutes", type=float, default=math.inf, help="interrupt after so many minutes")
    instead = parser.add_mutually_exclusive_group()
    add = instead.add_argument
    add("--list", action="store_true", help="show all questions, and how old their results are")
    add("--write", action="store_true", help="write the pages from what is kept, and make nothing")
    add("--check", action="store_true", help="fail if a result is missing or stale")
    add("--walk", action="store_true", help="fail if prose has a measured figure")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what was asked for; return the exit code."""
    args = parse(arguments)
    console = Console()
    try:
        chosen = [each for each in by_name(args.only).values() if each.kind in args.kind]
    except LookupError as error:
        print(error.args[0], file=sys.stderr)
        return 2
    kept = Kept.read()
    stale = stale_now(kept.results)
    if args.walk:
        return walk()
    if args.list:
        console.print(listed(chosen, kept, stale))
        return 0
    if args.check:
        return check(chosen, kept, stale)
    if not args.write:
        due = [
            each
            for each in chosen
            if args.only or each.name not in kept.results or each.name in stale
        ]
        try:
            left = Maker(console).make(due, args.minutes * 60)
        except KeyboardInterrupt:
            left = ["what was interrupted"]
        if left:
            console.print(f"not complete: {', '.join(left)}; the same command goes on")
    write(console)
    return 0


def write(console: Console) -> None:
    """Write all pages from what is kept now."""
    results = Kept.read().results
    keep_stale(stale_now(results))
    for page in write_pages(Kept.read()):
        console.print(f"written: {page}")


def listed(chosen: Sequence[Question], kept: Kept, stale: dict[str, list[str]]) -> Table:
    """Return a table of questions and of their results' ages."""
    table = Table("name", "kind", "about", "result", "commit", "code since")
    for question in chosen:
        result = kept.results.get(question.name)
        if result is None:
            cells = ("missing", "", "")
        else:
            days = result.age_days(datetime.now(UTC))
            rooms = stale.get(question.name)
            cells = (f"{days} days old", result.commit[:8], since(rooms) if rooms else "unchanged")
        table.add_row(question.name, question.kind, f"{question.minutes:g} min", *cells)
    return table


def check(chosen: Sequence[Question], kept: Kept, stale: dict[str, list[str]]) -> int:
    """Tell what is missing or stale; return 1 if anything is."""
    wrong = 0
    for question in chosen:
        result, rooms = kept.results.get(question.name), stale.get(question.name)
        if result is None and question.kind == "gpu":
            print(f"{question.name}: no result; it needs a GPU, and does not count")
            continue
        if result is None:
            print(f"{question.name}: no result; python -m benchmarks.evidence makes it")
        elif rooms:
            print(f"{question.name}: measured at {result.commit[:8]}; {since(rooms)}")
        wrong += result is None or rooms is not None
    return int(wrong > 0)


def walk() -> int:
    """Tell the measured figures in prose; return 1 if there are any."""
    found = [figure for page in walked_pages() for figure in figures(page)]
    for figure in found:
        print(figure)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
