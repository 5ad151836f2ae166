"""The implementation of the other commands of `caesura trace`.

They export recordings, name, pin and delete them, and score the predictors that they tell of.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from caesura.runtime.cli.terminal import plain, shorten
from caesura.runtime.cli.trace_shown import NAMES, matching
from caesura.runtime.errors import UsageError
from caesura.runtime.recording import catalog
from caesura.runtime.recording.atif import trajectory
from caesura.runtime.recording.entries import ARTIFACTS, Entry, Recording
from caesura.runtime.recording.files import FORMATS, Held, read_lines, write, write_texts
from caesura.runtime.recording.query import Found, query, schema
from caesura.runtime.recording.runs import KINDS as RUN_KINDS
from caesura.runtime.recording.runs import Run, Runs
from caesura.runtime.recording.window import cut, times_of
from caesura.scheduler.records import Record, RecordError, parse
from caesura.scheduler.records.accuracy import Accuracy, accuracies
from caesura.scheduler.records.outcomes import CHANCES, Outcomes
from caesura.tools.artifacts import ArtifactStore
from caesura.tools.config.caesura_toml import Config

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
SUFFIXES = {".html": "html", ".htm": "html", ".json": "json", ".jsonl": "jsonl"}
ATIF = "atif"
LONG_SUFFIXES = {".perfetto.json": "perfetto", ".atif.json": ATIF}


@dataclass(frozen=True, slots=True)
class Span:
    """The options for a span of time."""

    since: str | None = None
    until: str | None = None
    last: str | None = None

    def times(self, end: float) -> tuple[float, float] | None:
        """Return the start and end for a recording that ends at `end`; None means all of it.

        Raises `UsageError` for an invalid time.
        """
        if self.last is not None:
            if self.since is not None or self.until is not None:
                raise UsageError(
                    f"--last {self.last} excludes --from and --to: give only one of them"
                )
            return end - _seconds(self.last), float("inf")
        if self.since is None and self.until is None:
            return None
        since = float("-inf") if self.since is None else _time(self.since)
        until = float("inf") if self.until is None else _time(self.until)
        if since >= until:
            raise UsageError(f"--from must be before --to, got {self.since} and {self.until}")
        return since, until


@dataclass(frozen=True, slots=True)
class Chosen:
    """Recordings of a store, by what a user wrote, and of files of records, within a span.

    Without either it is the store's newest recording.
    """

    store: Path
    wanted: Sequence[str]
    files: Sequence[Path]
    span: Span

    def held(self) -> list[Held]:
        """Return the recordings with their entries. Raises `UsageError` where one is missing."""
        return [_cut(recording, bodies, self.span) for recording, bodies in self._found()]

    def _found(self) -> Iterator[tuple[Recording, Iterable[str]]]:
        for path in self.files:
            yield from read_lines(path)
        for said in self.wanted or ([] if self.files else ["last"]):
            recording = catalog.find(self.store, said)
            yield recording, (body for _, body in catalog.bodies(self.store, int(recording.id)))


def export(chosen: Chosen, output: Path, form: str | None, config: Path | None) -> None:
    """Write recordings to a file; raise `UsageError` on failure."""
    form = format_of(output, form)
    held = chosen.held()
    if form == ATIF:
        raise UsageError(
            "a file in ATIF holds one session: name it by --session ID; `caesura trace ls ID` lists"
            " the runs and sessions of a recording"
        )
    done = write(form, held, output, _artifacts(held, config))
    console = Console(stderr=True)
    told = f"{output}: {len(held)} recording(s), {done.entries} entries"
    if done.artifacts:
        told += f", {done.artifacts} pictures and sounds"
    console.print(escape(told), highlight=False, soft_wrap=True)
    if done.left_out:
        console.print(
            f"{done.left_out} files of tools are left out: they were deleted or are too large",
            style="yellow",
        )


def export_session(chosen: Chosen, output: Path, form: str | None, session: str) -> None:
    """Write a session as a trajectory in ATIF; raise `UsageError` on failure."""
    form = format_of(output, form)
    if form != ATIF:
        raise UsageError(
            f"--session {session} is for ATIF, and the format is {form}: give --format atif, or"
            " leave --session out"
        )
    held = chosen.held()
    if len(held) != 1:
        raise UsageError(
            f"a session is exported from one recording, got {len(held)}: name one of them"
        )
    recording, entries = held[0]
    read = (json.loads(each) if isinstance(each, str) else each for each in entries)
    found = matching(Runs(each for each in read if each.get("kind") in RUN_KINDS), session)
    runs = [each for each in found if isinstance(each, Run)]
    if not runs:
        raise UsageError(
            f"no run in {recording.title!r} is of a session {session!r}: `caesura trace ls"
            f" {recording.id}` lists them"
        )
    told = trajectory(runs, session, recording)
    write_texts([json.dumps(told, indent=2, ensure_ascii=False), "\n"], output, private=True)
    console = Console(stderr=True)
    told_of = f"{output}: {len(runs)} run(s), {len(told['steps'])} steps"
    console.print(escape(told_of), highlight=False, soft_wrap=True)


def _artifacts(held: Iterable[Held], config: Path | None) -> list[ArtifactStore]:
    """Return the places of tools' files: those that the recordings name, then the configured."""
    named = [
        str(recording.about[ARTIFACTS]) for recording, _ in held if ARTIFACTS in recording.about
    ]
    configured = Config.load(config, for_reading=True).services().artifacts
    return [*(ArtifactStore(Path(place)) for place in dict.fromkeys(named)), configured]


def format_of(output: Path, form: str | None) -> str:
    """Return the given format, else the one of the file's suffix. Raises `UsageError`."""
    if form is not None:
        if form not in (*FORMATS, ATIF):
            known = ", ".join((*FORMATS, ATIF))
            raise UsageError(f"unknown format {form!r}; choose from: {known}")
        return form
    for suffix, named in LONG_SUFFIXES.items():
        if output.name.endswith(suffix):
            return named
    if output.suffix not in SUFFIXES:
        known = ", ".join((".html", ".json", ".jsonl", *LONG_SUFFIXES))
        raise UsageError(f"unknown suffix of {output.name!r}; choose from: {known}")
    return SUFFIXES[output.suffix]


def _cut(recording: Recording, bodies: Iterable[str], span: Span) -> Held:
    """Return the recording within the span."""
    if span == Span():
        return recording, bodies
    if span.last is not None and recording.ended is None:
        kept = list(bodies)  # the recording has no end time; its last entry gives it
        times = span.times(_end(map(json.loads, kept)))
    else:
        kept, times = [], span.times(recording.ended or 0.0)
    assert times is not None
    read = (json.loads(body) for body in kept or bodies)
    return recording, cut(read, *times)


def _end(entries: Iterable[Entry]) -> float:
    times = (times_of(entry) for entry in entries)
    return max((each[1] for each in times if each is not None), default=0.0)


def _seconds(said: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", said.strip())
    if found is None:
        raise UsageError(f"invalid --last {said!r}: use a span such as 90s, 10m, 2h or 1d")
    return float(found[1]) * UNITS[found[2]]


def _time(said: str) -> float:
    try:
        return float(said)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(said).timestamp()
    except ValueError:
        raise UsageError(
            f"invalid time {said!r}: use a time such as 2026-01-31T12:00, or recorded seconds"
        ) from None


def name(store: Path, wanted: str, title: str) -> None:
    """Give a recording another title; raise `UsageError` on failure."""
    changed = catalog.change(store, _id_of(store, wanted), title=title)
    print(f"recording {changed.id} is called {plain(changed.title)}")


def note(store: Path, wanted: str, text: str | None) -> None:
    """Set a recording's note, or print it; raise `UsageError` on failure."""
    if text is None:
        print(plain(catalog.find(store, wanted).note))
        return
    changed = catalog.change(store, _id_of(store, wanted), note=text)
    print(f"the note of recording {changed.id} is {'set' if changed.note else 'removed'}")


def pin(store: Path, wanted: Sequence[str], pinned: bool) -> None:
    """Pin or unpin recordings; raise `UsageError` on failure."""
    for number in [_id_of(store, each) for each in wanted]:
        catalog.change(store, number, pinned=pinned)
        print(f"recording {number} is {'pinned' if pinned else 'not pinned any more'}")


def delete(store: Path, wanted: Sequence[str]) -> None:
    """Delete recordings; raise `UsageError` on failure, before any of them for an unknown one."""
    for number in [_id_of(store, each) for each in wanted]:
        catalog.delete(store, number)
        print(f"recording {number} is deleted")


def _id_of(store: Path, wanted: str) -> int:
    return int(catalog.find(store, wanted).id)


def show_query(store: Path, text: str | None, as_json: bool) -> None:
    """Print what a query finds, or what it may ask for; raise `UsageError` on failure."""
    if text is None:
        told = schema(store)
        found = Found(("table", "columns"), [(name, ", ".join(told[name])) for name in told])
    else:
        found = query(store, text)
    if as_json:
        rows = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
        print(json.dumps(rows, indent=2, default=str))
        return
    table = Table(box=None, pad_edge=False)
    for column in found.columns:
        table.add_column(escape(plain(column)), overflow="fold")
    for row in found.rows:
        table.add_row(*(escape(plain("" if each is None else str(each))) for each in row))
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, 200)
    console.print(table, highlight=False)


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
