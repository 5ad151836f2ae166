"""The output of `caesura trace ls` and `caesura trace show`."""

import json
import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from caesura.runtime.cli.recording import store_of
from caesura.runtime.cli.show import shorten
from caesura.runtime.cli.trace.run_tree import tree_of
from caesura.runtime.cli.trace.words import amount, counted, fault_of, name_of
from caesura.runtime.errors import UsageError
from caesura.runtime.recording import catalog
from caesura.runtime.recording.entries import Entry, Recording
from caesura.runtime.recording.runs import KINDS, Pause, Run, Runs, Session
from caesura.scheduler.records import HttpRecord, RestartRecord
from caesura.tools.config.caesura_toml import Config

PLAIN_WIDTH = 132
"""The columns of the output if it is not a terminal."""


def store_file(given: Path | None, config: Path | None) -> Path:
    """Return the given file of recordings, else the configured one, else the user's own."""
    return given or store_of(Config.load(config)).path


def show_list(store: Path, wanted: str | None, as_json: bool) -> None:
    """Print the recordings, or the runs and sessions of one; raise `UsageError` on failure."""
    if wanted is not None:
        _show_runs(store, catalog.find(store, wanted), as_json)
        return
    known, counts = catalog.recordings(store), catalog.counts(store)
    if as_json:
        told = [{**each.public(), "kinds": counts.get(int(each.id), {})} for each in known]
        print(json.dumps(told, indent=2))
        return
    table = _table("id", "recording", "started", "seconds", "sessions", "pauses", "entries", "")
    for each in known:
        kinds = counts.get(int(each.id), {})
        ended = time.time() if each.live else each.ended or each.started
        table.add_row(
            str(each.id),
            escape(shorten(each.title, 60)),
            _date(each.started),
            f"{ended - each.started:.0f}",
            str(each.sessions),
            str(kinds.get("pause", 0)),
            str(each.entries),
            escape(", ".join(_marks(each))),
        )
    _console().print(table)
    if not known:
        print(f"nothing is recorded in {store} yet")


def show_one(store: Path, recording: str | None, wanted: str, as_json: bool) -> None:
    """Print a run, or all runs of a session, as trees; raise `UsageError` if none matches."""
    places = [catalog.find(store, recording)] if recording else catalog.recordings(store)
    for place in places:
        found = _matching(_runs(store, place), wanted)
        if as_json and found:
            public = [_public(each) for each in found]
            print(json.dumps(public if len(public) > 1 else public[0], indent=2))
        elif found:
            for each in found:
                _console().print(tree_of(each), highlight=False)
        if found:
            return
    raise UsageError(f"no run or session is called {wanted!r}: `caesura trace ls ID` lists them")


def _show_runs(store: Path, recording: Recording, as_json: bool) -> None:
    folded = _runs(store, recording)
    runs = folded.runs()
    alone = list(folded.alone(runs))
    if as_json:
        every: list[Run | Session] = [*runs, *alone]
        print(json.dumps([_public(each) for each in every], indent=2))
        return
    table = _table(
        "id", "what", "started", "seconds", "turns", "calls", "pauses", "regret, blk·s", "status"
    )
    for run in runs:
        span = run.span
        seconds = "" if span.end is None else f"{span.end - span.start:.2f}"
        numbers = (str(len(each)) for each in (run.turns, run.calls, run.pauses))
        status = "under way" if span.end is None else fault_of(span) or "ok"
        table.add_row(
            run.id,
            escape(shorten(name_of(run), 40)),
            _date(run.start),
            seconds,
            *numbers,
            _regret(run.pauses),
            escape(shorten(status, 40)),
        )
    for session in alone:
        pauses = list(session.pauses.values())
        outcome = "" if session.end is None else session.end.outcome
        row = ("session", _date(session.start), "", "", "", str(len(pauses)), _regret(pauses))
        table.add_row(escape(shorten(session.id, 60)), *row, escape(outcome))
    _console().print(table)
    for died in folded.restarts.values():
        print(_death(died))
    if folded.http:
        print(_answers(folded.http))


def _runs(store: Path, recording: Recording) -> Runs:
    return Runs(catalog.entries(store, int(recording.id), KINDS))


def _matching(folded: Runs, wanted: str) -> list[Run | Session]:
    """Return the runs and sessions with an id, else the one whose id begins with the text.

    Several runs may have the same id, for example one of a session. A session that belongs to a
    run is found as that run. Raises `UsageError` if several ids begin with the text.
    """
    runs = folded.runs()
    every: list[Run | Session] = [*runs, *folded.alone(runs)]
    exact = [each for each in every if wanted in each.ids]
    begun = [sorted(i for i in each.ids if _begins(i, wanted)) for each in every]
    begin = [each for each, ids in zip(every, begun, strict=True) if ids]
    if not exact and len(begin) > 1:
        several = ", ".join(ids[0] for ids in begun if ids)[:200]
        raise UsageError(f"several ids begin with {wanted!r}, such as {several}: type more of it")
    return exact or begin


def _begins(name: str, wanted: str) -> bool:
    """Return whether an id begins with the text, also behind its kind, as in `session-5f2d`."""
    return name.startswith(wanted) or name.partition("-")[2].startswith(wanted)


def _public(found: Run | Session) -> Entry:
    if isinstance(found, Run):
        return {
            "id": found.id,
            "run": found.span.entry(),
            "http": None if found.http is None else found.http.entry(),
            "turns": [each.entry() for each in found.turns],
            "calls": [each.entry() for each in found.calls],
            "sessions": [_public(session) for session in found.sessions],
        }
    return {
        "id": found.id,
        "pauses": [each.entry() for each in found.pauses.values()],
        "forecasts": [each.entry() for each in found.forecasts],
        "waits": [each.entry() for each in found.waits],
        "end": None if found.end is None else found.end.entry(),
    }


def _death(died: RestartRecord) -> str:
    """Return when the engine died, why, and what came of it, in a line."""
    became = {
        "restarted": f"it took work again after {died.seconds or 0:.1f} s"
        f" ({counted(died.attempts, 'start')})",
        "given up": f"it was given up after {counted(died.attempts, 'start')}",
    }.get(died.outcome, "it is down")
    why = f" ({shorten(died.why, 80)})" if died.why else ""
    return f"the engine died at {_date(died.at)}{why}: {became}"


def _answers(records: Sequence[HttpRecord]) -> str:
    """Return how many requests to the server ended with which status, in a line."""
    counts: Counter[str] = Counter()
    for record in records:
        counts[f"{record.status} {record.code}".strip()] += record.count
    said = ", ".join(f"{count} with {status}" for status, count in sorted(counts.items()))
    return f"requests to the server: {said}"


def _regret(pauses: Sequence[Pause]) -> str:
    """Return the regret of the ended pauses in block-seconds.

    The text is `-` if nobody wanted their memory, and empty if it is unknown: no pause has ended,
    or an older version recorded them by another measure.
    """
    ended = [each.ended for each in pauses if each.ended is not None]
    known = [each.regret for each in ended if each.wanted_seconds is not None]
    told = [regret for regret in known if regret is not None]
    if not told:
        return "-" if known else ""
    return amount(sum(told))


def _marks(recording: Recording) -> list[str]:
    said: list[tuple[Any, str]] = [
        (recording.live, "live"),
        (recording.pinned, "pinned"),
        (recording.content, "with content"),
        (recording.trimmed, f"{recording.trimmed} deleted"),
        (recording.note, shorten(recording.note, 60)),
    ]
    return [text for holds, text in said if holds]


def _date(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    right = ("seconds", "sessions", "entries", "pauses", "turns", "calls", "regret, blk·s")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", no_wrap=True)
    return table


def _console() -> Console:
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, PLAIN_WIDTH)
    return console
