"""A run or a session as a tree: what happened when, and what became of paused requests and why."""

from collections.abc import Iterator

from rich.markup import escape
from rich.tree import Tree

from caesura.runtime.cli.show import plain, shorten
from caesura.runtime.recording.entries import Entry
from caesura.runtime.recording.runs import Run, Session
from caesura.runtime.tracing import conventions as names

Item = tuple[float, str, list[str]]
"""When something began, a line about it, and lines about that; all of it markup."""
WIDTH = 100
WHY = {
    "decided": "decided",
    "running": "running requests needed blocks",
    "admit": "to admit a waiting request",
    "stuck": "nothing could be scheduled",
    "deadline": "the pause was too long",
    "reset": "the prefix cache was emptied",
}


def tree_of(found: Run | Session) -> Tree:
    """Draw it; times are seconds since its beginning."""
    items: list[Item] = []
    if isinstance(found, Run):
        title = _title(found)
        items += (_turn(number, span) for number, span in enumerate(found.turns, 1))
        items += map(_call, found.calls)
        sessions = found.sessions
    else:
        end = (found.end or {}).get("outcome", "under way, or not told")
        title = f"[bold]session {escape(plain(found.id))}[/bold] {escape(str(end))}"
        sessions = [found]
    for session in sessions:
        items += map(_pause, session.pauses.values())
        items += map(_wait, session.waits)
    tree = Tree(title)
    for at, line, below in sorted(items, key=lambda item: item[0]):
        branch = tree.add(f"[dim]{at - found.start:+9.3f} s[/dim] {line}")
        for each in below:
            branch.add(each)
    return tree


def _title(run: Run) -> str:
    told = run.span["attributes"]
    parts = [_seconds(run.span), f"{len(run.turns)} turns", f"{len(run.calls)} calls"]
    if names.INPUT_TOKENS in told:
        parts.append(_tokens(told))
    return (
        f"[bold]{escape(shorten(run.span['name'], 60))}[/bold] {', '.join(parts)}{_fault(run.span)}"
    )


def _turn(number: int, span: Entry) -> Item:
    told = span["attributes"]
    parts = [f"[cyan]turn {number}[/cyan] {_seconds(span)}"]
    if names.INPUT_TOKENS in told:
        parts.append(_tokens(told))
    if names.TIME_TO_FIRST_CHUNK in told:
        parts.append(f"first output after {told[names.TIME_TO_FIRST_CHUNK]:.3f} s")
    if names.FINISH_REASONS in told:
        parts.append(escape(", ".join(map(str, told[names.FINISH_REASONS]))))
    return span["start"], ", ".join(parts) + _fault(span), []


def _call(span: Entry) -> Item:
    told = span["attributes"]
    name = escape(shorten(str(told.get(names.TOOL_NAME, "")), 60))
    said = (told.get(each) for each in (names.TOOL_ARGUMENTS, names.TOOL_RESULT))
    below = [f"[dim]{escape(shorten(str(text), WIDTH))}[/dim]" for text in said if text]
    return span["start"], f"[green]call {name}[/green] {_seconds(span)}{_fault(span)}", below


def _pause(pause: Entry) -> Item:
    tool = escape(shorten(str(pause.get("tool") or ""), 40))
    handling = pause.get("handling")
    line = f"[magenta]pause[/magenta] {tool}".rstrip()
    if "outcome" in pause:
        became = "nobody came back" if handling == "none" else f"KV {handling}"
        line += f" {_number(pause.get('pause_seconds'), 3)} s, {escape(str(became))}"
        line += f", regret {_number(pause.get('regret'))} block-seconds"
    else:
        line += " not over"
    return pause["at"], line, list(_reasons(pause))


def _reasons(pause: Entry) -> Iterator[str]:
    expected = f"expected {_number(pause.get('predicted_seconds'), 3)} s"
    if "outcome" in pause:
        expected += f", was {_number(pause.get('pause_seconds'), 3)} s"
    yield expected
    yield f"priced at {_prices(pause.get('prices') or {})} block-seconds"
    if pause.get("hindsight"):
        true = _prices(pause["hindsight"])
        yield f"with the true length {true}, it cost {_number(pause.get('cost'))}"
    for after, what, blocks, *why in pause.get("decisions") or ():
        reason = f" ({WHY.get(why[0], escape(str(why[0])))})" if why else ""
        yield f"after {_number(after, 3)} s: {escape(str(what))} {blocks} blocks{reason}"
    if "outcome" in pause:
        yield (
            f"{pause.get('context_tokens', 0)} tokens of context:"
            f" {pause.get('loaded_tokens', 0)} loaded, {pause.get('recomputed_tokens', 0)}"
            f" recomputed; queued {_number(pause.get('queue_seconds'), 3)} s"
        )


def _wait(wait: Entry) -> Item:
    lacked = wait.get("lacked") or {}
    why = ", ".join(f"{name} in {steps} steps" for name, steps in lacked.items())
    seconds = _number(wait["until"] - wait["since"], 3)
    line = f"[yellow]wait[/yellow] {seconds} s, {wait.get('steps', 0)} steps"
    return wait["since"], f"{line}{f', lacked {escape(why)}' if why else ''}", []


def _prices(prices: Entry) -> str:
    told = ((escape(name), price) for name, price in prices.items())
    return ", ".join(
        f"{name} {'impossible' if price is None else _number(price)}" for name, price in told
    )


def _number(value: object, digits: int = 2) -> str:
    """A number; what is none (without bounds, or of an older record) is not known."""
    return f"{value:.{digits}f}" if isinstance(value, int | float) else "?"


def _seconds(span: Entry) -> str:
    return "under way" if span["end"] is None else f"{span['end'] - span['start']:.3f} s"


def _tokens(told: Entry) -> str:
    asked, said = told[names.INPUT_TOKENS], told.get(names.OUTPUT_TOKENS, 0)
    return f"{asked} tokens in, {said} out, {told.get(names.CACHED_TOKENS, 0)} cached"


def _fault(span: Entry) -> str:
    if span["status"] != "error":
        return ""
    said = f"{span['attributes'].get(names.ERROR_TYPE, 'error')} {span['message']}".strip()
    return f" [red]{escape(shorten(said, WIDTH))}[/red]"
