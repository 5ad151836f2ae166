"""What became of sessions, in one form for both worlds, and figures of it."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.handling.figures import percentile
from benchmarks.handling.records import SessionRecord
from benchmarks.handling.workload import Session
from caesura.simulator.results import RunResult

Moments = tuple[float, float, float]
"""Of a segment: sent, first token, ended; seconds, as the client sees them."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One session that has ended; `tool_seconds` is what its tools took."""

    key: str
    arrived: float
    tool_seconds: float
    segments: tuple[Moments, ...]
    ended: float

    @property
    def latency(self) -> float:
        """Seconds from arrival to the last token, less what its tools took."""
        return self.ended - self.arrived - self.tool_seconds

    def events(self) -> list[str]:
        """Return what happened, in the order in which it did."""
        last = len(self.segments) - 1
        told = [(self.arrived, "arrive")]
        for index, (sent, first, ended) in enumerate(self.segments):
            told += [(sent, f"resume {index}")] if index else []
            told.append((first, f"token {index}"))
            told.append((ended, f"pause {index}" if index < last else f"answer {index}"))
        told.append((self.ended, "end"))
        return [event for _, event in sorted(told, key=lambda each: each[0])]


def really(records: Iterable[SessionRecord]) -> dict[str, Seen]:
    """Return the sessions that ended in a real run, by key."""
    return {
        record.key: Seen(
            record.key,
            record.arrived,
            record.tool_seconds,
            tuple((each.sent, each.first, each.ended) for each in record.segments),
            record.ended,
        )
        for record in records
        if record.ended
    }


def virtually(result: RunResult, sessions: Iterable[Session], overhead: float) -> dict[str, Seen]:
    """Return the sessions that ended in a simulated run, by key, as their clients saw them.

    Their segments met the engine `overhead` seconds after they were sent.
    """
    asked = {session.key: session for session in sessions}
    return {
        each.key: Seen(
            each.key,
            each.arrival - overhead,
            asked[each.key].tool_seconds,
            tuple((sent - overhead, first, ended) for sent, first, ended in each.segments),
            each.ended,
        )
        for each in result.sessions
        if each.ended
    }


def figures(seen: Sequence[Seen]) -> dict[str, float]:
    """Reduce sessions to latencies in seconds."""
    latencies = [each.latency for each in seen]
    first = [each.segments[0][1] - each.segments[0][0] for each in seen]
    resumed = [begun - sent for each in seen for sent, begun, _ in each.segments[1:]]
    return {
        "latency_mean": fmean(latencies),
        "latency_p99": percentile(latencies, 0.99),
        "ttft_first_mean": fmean(first),
        "ttft_resumed_mean": fmean(resumed),
    }


def same_order(ours: Sequence[Seen], theirs: Sequence[Seen]) -> float:
    """Return which part of the events of different sessions come in the same order in both.

    Of all pairs of ends of segments; the sessions of both are the same, in the same order.
    """
    one, other = (
        np.array([moments[2] for each in seen for moments in each.segments])
        for seen in (ours, theirs)
    )
    owner = np.array([index for index, each in enumerate(ours) for _ in each.segments])
    rows, columns = np.triu_indices(len(owner), 1)
    apart = owner[rows] != owner[columns]
    rows, columns = rows[apart], columns[apart]
    return float(np.mean((one[rows] < one[columns]) == (other[rows] < other[columns])))


def handlings_of_records(records: Iterable[SessionRecord], keys: Collection[str]) -> Counter[str]:
    """Count what had happened to the KV of these sessions when they came back, in a real run."""
    chosen = (record for record in records if record.key in keys)
    return Counter(each.handling for record in chosen for each in record.segments if each.handling)


def handlings_of_result(result: RunResult, keys: Collection[str]) -> Counter[str]:
    """Count the same in a simulated run."""
    pauses: list[dict[str, Any]] = [each for each in result.records if each["kind"] == "pause"]
    return Counter(
        each["handling"]
        for each in pauses
        if each["outcome"] == "resumed" and each["request"] in keys
    )
