"""A run or a session as a tree of its turns, calls, waits and pauses with their decisions."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.markup import escape
from rich.tree import Tree

from caesura.runtime.cli.show import plain, shorten
from caesura.runtime.cli.trace.forecast_lines import forecast_items
from caesura.runtime.cli.trace.words import counted, fault_of, name_of
from caesura.runtime.recording import conventions as names
from caesura.runtime.recording.runs import Pause, Run, Session
from caesura.scheduler.records import (
    ContinuedRecord,
    PauseRecord,
    PriceRecord,
    SpanRecord,
    WaitRecord,
)
from caesura.scheduler.records.parts import NO_PRICES, plain_fields

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
    if names.INPUT_TOKENS in told:
        parts.append(_tokens(told))
    if run.http is not None:
        parts.append(f"status {run.http.status} after {_number(run.http.seconds, 3)} s")
    name = escape(shorten(name_of(run), 60))
    return f"[bold]{name}[/bold] {', '.join(parts)}{_fault(run.span)}"


def _turn(number: int, span: SpanRecord) -> Item:
    told = span.attributes
    parts = [f"[cyan]turn {number}[/cyan] {_seconds(span)}"]
    if names.INPUT_TOKENS in told:
        parts.append(_tokens(told))
    if names.TIME_TO_FIRST_CHUNK in told:
        parts.append(f"first output after {told[names.TIME_TO_FIRST_CHUNK]:.3f} s")
    if names.FINISH_REASONS in told:
        parts.append(escape(", ".join(map(str, told[names.FINISH_REASONS]))))
    unread = sum(event.name == names.CALL_MALFORMED for event in span.events)
    if unread:
        parts.append(f"[red]{counted(unread, 'call')} could not be read[/red]")
    return span.start, ", ".join(parts) + _fault(span), []


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
        line += f", {_regret(ended)}"
    else:
        line += " not over"
    return pause.told.at, line, list(_reasons(pause))


def _regret(ended: PauseRecord) -> str:
    if ended.wanted_seconds is None and ended.regret is not None:
        return "regret by an older measure, not shown"
    if ended.regret is None:
        return "nobody wanted its memory" if ended.wanted_seconds == 0 else "regret ? block-seconds"
    return f"regret {_number(ended.regret)} block-seconds"


def _reasons(pause: Pause) -> Iterator[str]:
    told, ended = pause.told, pause.ended
    expected = f"expected {_number(told.predicted_seconds, 3)} s"
    yield expected if ended is None else f"{expected}, was {_number(ended.pause_seconds, 3)} s"
    yield f"priced at {_prices(told.prices)} block-seconds"
    if ended is None:
        return
    if ended.hindsight is not None:
        yield f"with the true length {_prices(ended.hindsight)}, it cost {_number(ended.cost)}"
    yield from _wanted(ended)
    yield from _decisions(ended)
    yield (
        f"{counted(ended.context_tokens, 'token')} of context: {ended.loaded_tokens} loaded,"
        f" {ended.recomputed_tokens} recomputed; queued {_number(ended.queue_seconds, 3)} s"
    )


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
        reason = f" ({WHY.get(row.why, escape(row.why))})" if row.why else ""
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
    asked, said = told[names.INPUT_TOKENS], told.get(names.OUTPUT_TOKENS, 0)
    return f"{asked} tokens in, {said} out, {told.get(names.CACHED_TOKENS, 0)} cached"


def _fault(span: SpanRecord) -> str:
    said = fault_of(span)
    return f", [red]{escape(shorten(said, WIDTH))}[/red]" if said else ""
