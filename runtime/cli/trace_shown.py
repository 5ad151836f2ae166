"""The output of `caesura trace ls` and `show`: lists, and each run as a tree of what happened."""

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from caesura.runtime.cli.terminal import plain, shorten
from caesura.runtime.errors import UsageError
from caesura.runtime.recording import catalog
from caesura.runtime.recording import conventions as names
from caesura.runtime.recording.entries import SERVER, Entry, Recording
from caesura.runtime.recording.runs import KINDS, Pause, Run, Runs, Session
from caesura.runtime.tracing.recorded import store_of
from caesura.scheduler.records import (
    ContinuedRecord,
    HttpRecord,
    PauseRecord,
    PredictionRecord,
    PriceRecord,
    Record,
    RestartRecord,
    SpanRecord,
    WaitRecord,
)
from caesura.scheduler.records.outcomes import NUMBERS, QUANTITIES, Outcomes
from caesura.scheduler.records.parts import NO_PRICES, plain_fields
from caesura.tools.config.caesura_toml import Config

Truth = dict[str, float]
"""What came, by quantity."""

NAMES = {
    "decode_tokens": "tokens of the segment",
    "calls_left": "calls left",
    "pause_seconds": "seconds of the pause",
    "ends_now": "it ends now",
    "ends_within_3": "3 calls or fewer are left",
    "long_pause": "the pause is over 30 s",
}
"""What each quantity is called in the terminal."""


def forecast_items(session: Session) -> Iterator[tuple[float, str, list[str]]]:
    """Yield the time of each forecast of a session, a line about it, and its details as markup."""
    truths = _truths(session)
    for made in session.forecasts:
        below = [
            f"[dim]{escape(shorten(row.predictor, 40))}:[/dim] {_said(row)}"
            for row in made.predictions
        ]
        if truth := truths.get(made.calls):
            below.append(f"[dim]what came:[/dim] {_came(truth)}")
        calls = "call" if made.calls == 1 else "calls"
        yield made.at, f"[blue]forecast[/blue] after {made.calls} {calls}", below


def _truths(session: Session) -> dict[int, Truth]:
    """Return what came by the number of calls before it."""
    ended = [each.ended for each in session.pauses.values() if each.ended is not None]
    records: list[Record] = [*session.forecasts, *sorted(ended, key=lambda each: each.at)]
    records += [session.end] if session.end is not None else []
    found: dict[int, Truth] = {}
    for each in Outcomes().add_all(records):
        found.setdefault(each.calls, {})[each.quantity] = each.actual
    return found


def _said(row: PredictionRecord) -> str:
    known = ((name, getattr(row, name)) for name in QUANTITIES)
    parts = [f"{NAMES[name]} {_value(name, value)}" for name, value in known if value is not None]
    if len(row.decode_quantiles) > 1:
        parts.insert(1, f"{row.decode_quantiles[0]:.0f} to {row.decode_quantiles[-1]:.0f} of them")
    return ", ".join(parts)


def _came(truth: Truth) -> str:
    told = ((name, truth[name]) for name in QUANTITIES if name in truth)
    return ", ".join(
        f"{NAMES[name]} {_value(name, value) if name in NUMBERS else 'yes' if value else 'no'}"
        for name, value in told
    )


def _value(name: str, value: float) -> str:
    if name == "pause_seconds":
        return f"{value:.3g}"
    return f"{value:.1f}" if name in NUMBERS else f"{value:.0%}"


FAULTS = {
    names.CANCELLED: "cancelled, the client left",
    "timeout": "timed out",
    "invalid_arguments": "invalid arguments",
    "unknown_tool": "unknown tool",
    "resting": "tool is resting after failures",
    "refused": "refused by a hook",
    "failed": "failed",
}
"""The words for kinds of errors; other kinds are classes of exceptions."""


def name_of(run: Run) -> str:
    """Return what a run is called: its question, else its agent, else the tools that it called."""
    tools = dict.fromkeys(str(call.attributes.get(names.TOOL_NAME, "")) for call in run.calls)
    agent = run.span.attributes.get(names.AGENT_NAME)
    called = ", ".join(filter(None, tools))
    return _question(run) or str(agent or "") or (f"run with {called}" if called else "run")


def counted(number: int, noun: str) -> str:
    """Return a number and a noun in the right form: 1 call, 2 calls."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def amount(value: float) -> str:
    """Return a sum with one decimal, or with two digits where it is below 1."""
    return f"{value:.1f}" if value == 0 or abs(value) >= 1 else f"{value:.2g}"


def fault_of(span: SpanRecord) -> str:
    """Return what went wrong in a span, or an empty text."""
    if span.status != "error":
        return ""
    if is_denied(span):
        return "denied by a person"
    kind = str(span.attributes.get(names.ERROR_TYPE, "failed"))
    said = FAULTS.get(kind, kind)
    if kind == names.CANCELLED and span.attributes.get(names.OPERATION) == names.EXECUTE_TOOL:
        said = "cancelled"
    return f"{said} {plain(span.message)}".strip()


def is_denied(span: SpanRecord) -> bool:
    """Return whether a person refused the call."""
    return any(event.attributes.get(names.PERSON_APPROVED) is False for event in span.events)


def _question(run: Run) -> str:
    said = run.turns[0].attributes.get(names.INPUT_MESSAGES) if run.turns else None
    try:
        messages: Any = json.loads(said) if isinstance(said, str) else []
        asked = [each for each in messages if each["role"] == "user"]
        texts = [part["content"] for part in asked[-1]["parts"] if part.get("type") == "text"]
        return " ".join(str(texts[0]).split())
    except (ValueError, LookupError, TypeError, AttributeError):
        return ""  # nothing was captured, or it was cut


Item = tuple[float, str, list[str]]
"""The start of an item in seconds, a line that describes it, and its details; all as markup."""
WIDTH = 100
WHY = {
    "decided": "decided",
    "running": "running requests needed blocks",
    "admit": "to admit a waiting request",
    "stuck": "nothing could be scheduled",
    "deadline": "the pause was too long",
    "reset": "the prefix cache was emptied",
    "recurrent state": "its recurrent state may hold other tokens",
    "unknown layout": "its KV cache has layers of an unknown kind",
}


def tree_of(found: Run | Session) -> Tree:
    """Return the tree of a run or a session; its times are seconds since the start."""
    items: list[Item] = []
    if isinstance(found, Run):
        title = _title(found)
        items += (_turn(number, span) for number, span in enumerate(found.turns, 1))
        items += map(_call, found.calls)
        sessions = found.sessions
    else:
        end = "under way or unknown" if found.end is None else found.end.outcome
        title = f"[bold]session {escape(plain(found.id))}[/bold] {escape(end)}"
        sessions = [found]
    for session in sessions:
        items += map(_pause, session.pauses.values())
        items += map(_wait, session.waits)
        items += forecast_items(session)
        items += map(_continued, session.continued)
    tree = Tree(title)
    for at, line, below in sorted(items, key=lambda item: item[0]):
        branch = tree.add(f"[dim]{at - found.start:+9.3f} s[/dim] {line}")
        for each in below:
            branch.add(each)
    return tree


def _title(run: Run) -> str:
    told = run.span.attributes
    calls = counted(len(run.calls), "call")
    parts = [_seconds(run.span), counted(len(run.turns), "turn"), calls]
    if names.APPENDED_TOKENS in told:
        parts.append(_tokens(told))
    if run.http is not None:
        parts.append(f"status {run.http.status} after {_number(run.http.seconds, 3)} s")
    name = escape(shorten(name_of(run), 60))
    return f"[bold]{name}[/bold] {', '.join(parts)}{_fault(run.span)}"


def _turn(number: int, span: SpanRecord) -> Item:
    told = span.attributes
    parts = [f"[cyan]turn {number}[/cyan] {_seconds(span)}"]
    if names.APPENDED_TOKENS in told:
        parts.append(_tokens(told))
    if names.TIME_TO_FIRST_CHUNK in told:
        parts.append(f"first output after {told[names.TIME_TO_FIRST_CHUNK]:.3f} s")
    if names.FINISH_REASONS in told:
        parts.append(escape(", ".join(map(str, told[names.FINISH_REASONS]))))
    if names.FOLLOW_UP_OUTCOME in told:
        parts.append(_follow_up(told))
    unread = sum(event.name == names.CALL_MALFORMED for event in span.events)
    if unread:
        parts.append(f"[red]{counted(unread, 'call')} could not be read[/red]")
    return span.start, ", ".join(parts) + _fault(span), list(_difference(told))


def _difference(told: Mapping[str, Any]) -> Iterator[str]:
    """Yield excerpts of what was remembered and of what came, where they are recorded."""
    for said, name in (("remembered", names.FOLLOW_UP_KEPT), ("came", names.FOLLOW_UP_SENT)):
        if name in told:
            text = json.dumps(str(told[name]), ensure_ascii=False)
            yield f"[dim]{said}: {escape(text)}[/dim]"


def _follow_up(told: Mapping[str, Any]) -> str:
    """Return how the history before a turn became tokens."""
    if told[names.FOLLOW_UP_OUTCOME] == "spliced":
        return f"{told.get(names.FOLLOW_UP_SPLICED_TOKENS, 0):,} tokens spliced"
    field = told.get(names.FOLLOW_UP_FIELD)
    why = str(told.get(names.FOLLOW_UP_WHY, "")) + (f": {field}" if field else "")
    return f"[yellow]history rendered again ({escape(why)})[/yellow]"


def _call(span: SpanRecord) -> Item:
    told = span.attributes
    name = escape(shorten(str(told.get(names.TOOL_NAME, "")), 60))
    said = (told.get(each) for each in (names.TOOL_ARGUMENTS, names.TOOL_RESULT))
    below = [f"[dim]{escape(shorten(str(text), WIDTH))}[/dim]" for text in said if text]
    return span.start, f"[green]call {name}[/green] {_seconds(span)}{_fault(span)}", below


def _continued(record: ContinuedRecord) -> Item:
    line = "[red]its engine had died[/red], and it goes on in the next one"
    return record.at, line, [escape(f"request {record.request}, in the place of {record.lost}")]


def _pause(pause: Pause) -> Item:
    tool = escape(shorten(pause.told.tool or "", 40))
    line = f"[magenta]pause[/magenta] {tool}".rstrip()
    if (ended := pause.ended) is not None:
        became = "no result came" if ended.handling == "none" else f"KV {ended.handling}"
        line += f" {_number(ended.pause_seconds, 3)} s, {escape(became)}"
        line += f", {_pause_regret(ended)}"
    else:
        line += " not over"
    return pause.told.at, line, list(_reasons(pause))


def _pause_regret(ended: PauseRecord) -> str:
    if ended.queue_cost is None and ended.regret is not None:
        return "regret by an older measure, not shown"
    if ended.regret is None:
        return "nobody wanted its memory" if ended.wanted_seconds == 0 else "regret ? block-seconds"
    needless = ended.regret > 0 and not ended.wanted_seconds
    return f"regret {_number(ended.regret)} block-seconds{' of needless work' if needless else ''}"


def _reasons(pause: Pause) -> Iterator[str]:
    told, ended = pause.told, pause.ended
    expected = f"expected {_number(told.predicted_seconds, 3)} s"
    yield expected if ended is None else f"{expected}, was {_number(ended.pause_seconds, 3)} s"
    yield from _held(pause)
    yield f"priced at {_prices(told.prices)} block-seconds"
    if ended is None:
        return
    if ended.hindsight is not None:
        yield f"with the true length {_prices(ended.hindsight)}, it cost {_number(ended.cost)}"
    yield from _parts(ended)
    yield from _wanted(ended)
    yield from _decisions(ended)
    yield (
        f"{counted(ended.context_tokens, 'token')} of context: {ended.loaded_tokens} loaded,"
        f" {ended.recomputed_tokens} recomputed; queued {_number(ended.queue_seconds, 3)} s"
    )


def _parts(ended: PauseRecord) -> Iterator[str]:
    if not ended.cost or ended.queue_cost is None:
        return
    work = ended.work_cost or 0.0
    paused = max(0.0, ended.cost - ended.queue_cost - work)
    yield (
        f"{_number(paused)} of it while paused, {_number(ended.queue_cost)} while it queued,"
        f" {_number(work)} by loading and recomputing"
    )


def _held(pause: Pause) -> Iterator[str]:
    opening = pause.opening
    if opening is None or not opening.blocks:
        return
    size = "" if opening.bytes is None else f", {opening.bytes / 2**20:.1f} MiB"
    yield f"held {counted(opening.blocks, 'block')}{size}"


def _wanted(ended: PauseRecord) -> Iterator[str]:
    if not ended.wanted_seconds:
        return
    line = f"its memory was wanted for {_number(ended.wanted_seconds, 3)} s"
    if ended.wanted_requests:
        line += f", {ended.wanted_requests} waited: "
        line += ", ".join(f"{escape(who)} {_number(each, 3)} s" for who, each in ended.wanted_by)
    yield line


def _decisions(ended: PauseRecord) -> Iterator[str]:
    for row in ended.decisions:
        whom = f": {escape(row.whom)}" if row.whom else ""
        reason = f" ({WHY.get(row.why, escape(row.why))}{whom})" if row.why else ""
        prices = PriceRecord(row.preserve, row.discard, row.swap)
        priced = f", priced at {_prices(prices)}" if prices != NO_PRICES else ""
        done = f"{escape(row.act)} {counted(row.blocks, 'block')}"
        yield f"after {_number(row.seconds, 3)} s: {done}{reason}{priced}"


def _wait(wait: WaitRecord) -> Item:
    lacked = plain_fields(wait.lacked)
    told = [f"{name} in {counted(steps, 'step')}" for name, steps in lacked.items() if steps]
    why, steps = ", ".join(told), counted(wait.steps, "step")
    line = f"[yellow]wait[/yellow] {_number(wait.until - wait.since, 3)} s, {steps}"
    return wait.since, f"{line}{f', lacked {escape(why)}' if why else ''}", []


def _prices(prices: PriceRecord) -> str:
    if prices == NO_PRICES:
        return "?"
    return ", ".join(
        f"{name} {'impossible' if price is None else _number(price)}"
        for name, price in plain_fields(prices).items()
    )


def _number(value: object, digits: int = 2) -> str:
    """Return a number, or `?` for a missing one (without a bound, or of an older record)."""
    return f"{value:.{digits}f}" if isinstance(value, int | float) else "?"


def _seconds(span: SpanRecord) -> str:
    return "under way" if span.end is None else f"{span.end - span.start:.3f} s"


def _tokens(told: Mapping[str, Any]) -> str:
    asked, said = told[names.APPENDED_TOKENS], told.get(names.OUTPUT_TOKENS, 0)
    return f"{asked} tokens in, {said} out, {told.get(names.CACHED_TOKENS, 0)} cached"


def _fault(span: SpanRecord) -> str:
    said = fault_of(span)
    return f", [red]{escape(shorten(said, WIDTH))}[/red]" if said else ""


PLAIN_WIDTH = 132
"""The columns of the output if it is not a terminal."""


def store_file(given: Path | None, config: Path | None) -> Path:
    """Return the given file of recordings, else the configured one, else the user's own."""
    return given or store_of(Config.load(config, for_reading=True)).path


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
    named = any(SERVER in each.about for each in known)
    table = _table(
        *("id", "recording", *(("server",) if named else ()), "started"),
        *("seconds", "sessions", "pauses", "entries", ""),
    )
    for each in known:
        kinds = counts.get(int(each.id), {})
        ended = time.time() if each.live else each.ended or each.started
        table.add_row(
            str(each.id),
            escape(shorten(each.title, 60)),
            *([escape(shorten(str(each.about.get(SERVER, "")), 40))] if named else []),
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
        found = matching(_runs(store, place), wanted)
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


def matching(folded: Runs, wanted: str) -> list[Run | Session]:
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
    known = [each.regret for each in ended if each.queue_cost is not None]
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
