"""The output of `caesura trace predictions`: how good each predictor was."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from math import isfinite
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from caesura.runtime.cli.show import shorten
from caesura.runtime.cli.trace.forecast_lines import NAMES
from caesura.runtime.recording import catalog
from caesura.runtime.recording.entries import Entry
from caesura.runtime.recording.files import read_lines
from caesura.scheduler.records import Record, RecordError, parse
from caesura.scheduler.records.accuracy import Accuracy, accuracies
from caesura.scheduler.records.outcomes import CHANCES, Outcomes

KINDS = ("forecast", "pause", "session")
"""The kinds of entries that tell what was predicted and what came."""

BARS = "▁▂▃▄▅▆▇█"

NO_FORECASTS = (
    "no prediction can be compared yet: forecasts are recorded by `caesura serve` and"
    " `caesura simulate --trace`, and compared when their segment or session has ended"
)


def show_predictions(store: Path, wanted: str | None, files: Sequence[Path], as_json: bool) -> None:
    """Print the accuracy of each predictor in a recording, and in each file of records.

    Raises `UsageError` for a recording or a file that cannot be read.
    """
    told = []
    for title, entries in _places(store, wanted, files):
        rows = accuracies(Outcomes().add_all(_records(entries)))
        told.append({"title": title, "predictions": [each.public() for each in rows]})
        if not as_json:
            _print(title, rows)
    if as_json:
        print(json.dumps(told if len(told) > 1 else told[0], indent=2))


def table_of(rows: Sequence[Accuracy], title: str = "") -> Table:
    """Return a table with a row for each quantity and predictor."""
    table = Table(box=None, pad_edge=False, title=title or None, title_justify="left")
    heads = ("compared", "predicted", "came", "error", "over time", "in order", "miscalibrated")
    table.add_column("quantity", no_wrap=True)
    table.add_column("predictor", no_wrap=True)
    for head in (*heads, "within 10-90 %"):
        table.add_column(head, justify="left" if head == "over time" else "right", no_wrap=True)
    before = ""
    for row in rows:
        chance = row.quantity in CHANCES
        table.add_row(
            "" if row.quantity == before else NAMES[row.quantity],
            escape(shorten(row.predictor, 40)),
            str(row.count),
            *(_share(value) if chance else _number(value) for value in (row.predicted, row.actual)),
            _number(row.error),
            _bars(row.errors),
            _number(row.pair_accuracy),
            _number(row.calibration_error),
            "" if row.covered is None else _share(row.covered),
        )
        before = row.quantity
    return table


def _places(
    store: Path, wanted: str | None, files: Sequence[Path]
) -> Iterator[tuple[str, Iterable[Entry]]]:
    for path in files:
        for recording, bodies in read_lines(path):
            yield recording.title, map(json.loads, bodies)
    if wanted is not None or not files:
        found = catalog.find(store, wanted or "last")
        yield found.title, catalog.entries(store, int(found.id), KINDS)


def _records(entries: Iterable[Entry]) -> Iterator[Record | None]:
    for entry in entries:
        if entry.get("kind") in KINDS:
            with suppress(RecordError):  # a damaged entry in the file
                yield parse(entry)


def _print(title: str, rows: Sequence[Accuracy]) -> None:
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, 132)
    console.print(f"[bold]{escape(shorten(title, 100))}[/bold]", highlight=False)
    if not rows:
        console.print(NO_FORECASTS, highlight=False, soft_wrap=True)
        return
    console.print(table_of(rows), highlight=False)
    console.print(
        "error: mean absolute error; of a probability, its Brier score. in order: share of pairs"
        " that the predictions order rightly (of a probability, the AUC). miscalibrated: mean"
        " distance of the calibration curve. Sessions under way are not compared.",
        style="dim",
        highlight=False,
    )


def _bars(errors: Sequence[float]) -> str:
    """Return the errors of spans of time as bars; a full bar is the largest error."""
    most = max(errors, default=0.0)
    steps = (round((len(BARS) - 1) * error / most) if most > 0 else 0 for error in errors)
    return "".join(BARS[step] for step in steps)


def _number(value: float) -> str:
    return f"{value:.3g}" if isfinite(value) else "–"


def _share(value: float) -> str:
    return f"{value:.0%}" if isfinite(value) else "–"
