"""Lines of a tree about what was predicted at each segment of a session, and what came."""

from collections.abc import Iterator

from rich.markup import escape

from caesura.runtime.cli.show import shorten
from caesura.runtime.recording.runs import Session
from caesura.scheduler.records import PredictionRecord, Record
from caesura.scheduler.records.outcomes import NUMBERS, QUANTITIES, Outcomes

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
