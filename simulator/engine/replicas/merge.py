"""One result from the accounts of all replicas."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import fields
from itertools import pairwise
from typing import Any

from caesura.simulator.engine.replicas.messages import Account
from caesura.simulator.engine.timeline import SUMMED
from caesura.simulator.results import TIMELINE, Totals

MEANS = ("seconds", "busy_seconds", "stall_seconds")
"""The sums of a run that are means over replicas; all others are sums over them."""


def totals_of(accounts: Sequence[Account]) -> Totals:
    """Return the totals of all replicas together."""
    sums = {
        field.name: sum(getattr(one.totals, field.name) for one in accounts)
        for field in fields(Totals)
    }
    return Totals(**{**sums, **{name: sums[name] / len(accounts) for name in MEANS}})


def replicas_of(accounts: Sequence[Account]) -> list[dict[str, Any]]:
    """Return a row for each replica: what it did in the run."""
    return [
        {
            "busy_seconds": one.totals.busy_seconds,
            "decode_tokens": one.totals.decode_tokens,
            "computed_tokens": one.totals.prefill_tokens + one.totals.recompute_tokens,
            "segments": one.segments,
            "steps": one.totals.steps,
        }
        for one in accounts
    ]


def timeline_of(accounts: Sequence[Account]) -> dict[str, list[float]]:
    """Return the timelines of all replicas as one, in the widest of their intervals."""
    widest = max(_interval(one.timeline["at"]) for one in accounts)
    rows: defaultdict[int, dict[str, float]] = defaultdict(lambda: dict.fromkeys(TIMELINE, 0.0))
    slots = sorted({_slot(at, widest) for one in accounts for at in one.timeline["at"]})
    for one in accounts:
        _add(rows, slots, one.timeline, widest)
    for slot in slots:
        rows[slot]["at"] = slot * widest
    return {name: [rows[slot][name] for slot in slots] for name in TIMELINE}


def _add(
    rows: dict[int, dict[str, float]],
    slots: Sequence[int],
    timeline: dict[str, list[float]],
    width: float,
) -> None:
    """Add a timeline: its sums to their slots, and its levels to all slots until they change."""
    levels = [name for name in TIMELINE if name not in SUMMED and name != "at"]
    latest: dict[int, int] = {}
    for place, at in enumerate(timeline["at"]):
        slot = _slot(at, width)
        latest[slot] = place
        for name in SUMMED:
            rows[slot][name] += timeline[name][place]
    present = None
    for slot in slots:
        present = latest.get(slot, present)
        if present is not None:
            for name in levels:
                rows[slot][name] += timeline[name][present]


def _slot(at: float, width: float) -> int:
    return -int(-at // width)


def _interval(times: Sequence[float]) -> float:
    """Return the interval of a timeline, from which its rows may be further apart."""
    gaps = (after - before for before, after in pairwise(times[:-1]))
    return max(0.25, min(gaps, default=0.25))
