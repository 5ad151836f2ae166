"""How sessions fared, in a recording and in its replays, by the same records."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from caesura.runtime.recording.entries import Entry

KINDS = ("lanes", "pause", "session")
SAME = 0.005
"""The share below which two latencies count as the same."""


@dataclass(slots=True)
class Fared:
    """Sessions by their ids: seconds of latency without tools, seconds to the first token."""

    latency: dict[str, float] = field(default_factory=dict)
    ttft: dict[str, float] = field(default_factory=dict)
    recomputed: dict[str, int] = field(default_factory=dict)

    def figures(self, sessions: Collection[str]) -> dict[str, Any]:
        """Return the figures over some of the sessions, all of which ended."""
        latency = sorted(self.latency[one] for one in sessions)
        ttft = sorted(self.ttft[one] for one in sessions if one in self.ttft)
        return {
            "latency_mean": _mean(latency),
            "latency_p50": quantile(latency, 0.5),
            "latency_p99": quantile(latency, 0.99),
            "ttft_mean": _mean(ttft),
            "ttft_p99": quantile(ttft, 0.99),
            "recomputed": sum(self.recomputed.get(one, 0) for one in sessions),
        }

    def against(self, other: "Fared", sessions: Collection[str]) -> dict[str, int]:
        """Return how many of the sessions were faster here than there, and how many slower."""
        apart = [(self.latency[one], other.latency[one]) for one in sessions]
        apart = [(a, b) for a, b in apart if abs(a - b) > SAME * max(a, b)]
        return {"faster": sum(a < b for a, b in apart), "slower": sum(a > b for a, b in apart)}


def fared(entries: Iterable[Entry], sessions: Collection[str]) -> Fared:
    """Return how these sessions fared, as the page counts it.

    Latency is from the session's arrival to its end, less what its pauses took. A session without a
    record of its end has none.
    """
    found = Fared()
    spans: dict[str, tuple[float, float]] = {}
    paused: dict[str, float] = {}
    first: dict[str, float] = {}
    for entry in entries:
        if entry.get("kind") == "lanes":
            _first_tokens(entry, first)
            continue
        name = str(entry.get("session") or entry.get("request"))
        if name not in sessions:
            continue
        if entry["kind"] == "pause":
            paused[name] = paused.get(name, 0.0) + (entry.get("pause_seconds") or 0.0)
            again = entry.get("recomputed_tokens") or 0
            found.recomputed[name] = found.recomputed.get(name, 0) + again
        elif isinstance(entry.get("arrival"), int | float):
            spans[name] = (entry["arrival"], entry["at"])
    for name, (arrival, end) in spans.items():
        found.latency[name] = max(0.0, end - arrival - paused.get(name, 0.0))
        if name in first:
            found.ttft[name] = max(0.0, first[name] - arrival)
    return found


def _first_tokens(lanes: Mapping[str, Any], first: dict[str, float]) -> None:
    """Note when each request first decoded; a session has the id of its first request."""
    for request, state, at in zip(lanes["request"], lanes["state"], lanes["at"], strict=False):
        if state == "decode":
            first.setdefault(request, at)


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def quantile(values: list[float], share: float) -> float | None:
    """Return a quantile of sorted values, linear between neighbours; None without values."""
    if not values:
        return None
    place = share * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)
