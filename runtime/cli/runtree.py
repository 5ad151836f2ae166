"""A run or a session as a tree: what happened when, and what became of paused requests and why."""

from collections.abc import Iterable, Iterator

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
        line += f" {pause['pause_seconds']:.3f} s, {escape(str(became))}"
        line += f", regret {pause['regret']:.2f} block-seconds"
    else:
        line += " not over"
    return pause["at"], line, list(_reasons(pause))


def _reasons(pause: Entry) -> Iterator[str]:
    expected = f"expected {pause['predicted_seconds']:.3f} s"
    if "outcome" in pause:
        expected += f", was {pause['pause_seconds']:.3f} s"
    yield expected
    yield f"priced at {_prices(pause.get('prices') or {})} block-seconds"
    if pause.get("hindsight"):
        yield f"with the true length {_prices(pause['hindsight'])}, it cost {pause['cost']:.2f}"
    for after, what, blocks, *why in pause.get("decisions") or ():
        reason = f" ({WHY.get(why[0], escape(str(why[0])))})" if why else ""
        yield f"after {after:.3f} s: {escape(str(what))} {blocks} blocks{reason}"
    if "outcome" in pause:
        yield (
            f"{pause.get('context_tokens', 0)} tokens of context: {pause['loaded_tokens']} loaded,"
            f" {pause['recomputed_tokens']} recomputed; queued {pause['queue_seconds']:.3f} s"
        )


def _wait(wait: Entry) -> Item:
    lacked = wait.get("lacked") or {}
    why = ", ".join(f"{name} in {steps} steps" for name, steps in lacked.items())
    line = f"[yellow]wait[/yellow] {wait['until'] - wait['since']:.3f} s, {wait['steps']} steps"
    return wait["since"], f"{line}{f', lacked {escape(why)}' if why else ''}", []


def _prices(prices: Entry | Iterable[float]) -> str:
    if not isinstance(prices, dict):
        return ", ".join(f"{each:.2f}" for each in prices)
    told = ("impossible" if each is None else f"{each:.2f}" for each in prices.values())
    return ", ".join(f"{escape(name)} {price}" for name, price in zip(prices, told, strict=True))


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
