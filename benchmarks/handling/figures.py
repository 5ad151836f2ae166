"""From what a run saw to figures: latencies, tokens computed twice, sessions per second."""

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

LOWER_IS_BETTER = {
    "latency_mean": "latency, mean",
    "latency_p99": "latency, p99",
    "normalized_p99": "per token, p99",
    "ttft_first_mean": "first TTFT, mean",
    "ttft_first_p99": "first TTFT, p99",
    "ttft_resumed_mean": "resumed TTFT, mean",
    "ttft_resumed_p99": "resumed TTFT, p99",
}


def counted_sessions(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the sessions that count, in the order of their arrival."""
    return [session for session in run["sessions"] if session["counted"]]


def latencies_of(run: Mapping[str, Any]) -> list[float]:
    """Return the seconds from each counted session's arrival to its last token, less its tools'.

    A session that was not done when the run was cut counts with the time until then.
    """
    return [
        (session["ended"] or run["seconds"]) - session["arrived"] - session["tool_seconds"]
        for session in counted_sessions(run)
    ]


def normalized_latencies(run: Mapping[str, Any]) -> list[float]:
    """Return the latency of each counted session, per token that it has decoded."""
    decoded = (
        sum(segment["said"] for segment in session["segments"]) for session in counted_sessions(run)
    )
    return [
        seconds / max(1, tokens) for seconds, tokens in zip(latencies_of(run), decoded, strict=True)
    ]


def figures(run: dict[str, Any], window_seconds: float) -> dict[str, float]:
    """Reduce a run to figures.

    Latency is as in `latencies_of`, and normalized latency is per decoded token.
    `recomputed_share` is the part of all computed tokens that had been computed before, as the
    engine counted them; `recomputed_per_resume` is what the clients were told at each return from
    a tool.
    """
    sessions, latencies = counted_sessions(run), latencies_of(run)
    begun = [segment for session in sessions for segment in session["segments"] if segment["first"]]
    first = [segment["first"] - segment["sent"] for segment in begun if not segment["index"]]
    resumed = [segment["first"] - segment["sent"] for segment in begun if segment["index"]]
    ledger = run["ledger"]
    done = [session for session in run["sessions"] if session["ended"]]
    return {
        "latency_mean": statistics.fmean(latencies),
        "latency_p99": percentile(latencies, 0.99),
        "normalized_p99": percentile(normalized_latencies(run), 0.99),
        "ttft_first_mean": statistics.fmean(first),
        "ttft_first_p99": percentile(first, 0.99),
        "ttft_resumed_mean": statistics.fmean(resumed),
        "ttft_resumed_p99": percentile(resumed, 0.99),
        "recomputed_per_resume": statistics.fmean(
            max(0, segment["context_tokens"] - segment["given_tokens"] - segment["cached_tokens"])
            for segment in begun
            if segment["index"]
        ),
        "recomputed_share": 1 - needed_tokens(run["sessions"]) / ledger["scheduled_tokens"],
        "sessions_per_second": sum(s["ended"] <= window_seconds for s in done) / window_seconds,
        "busy_share": ledger["busy_seconds"] / run["seconds"],
        "counted": len(sessions),
        "cut": sum(not session["ended"] for session in sessions),
        **{key: ledger[key] for key in ("steps", "preemptions", "peak_running", "peak_blocks")},
        "seconds": run["seconds"],
    }


def needed_tokens(sessions: Sequence[dict[str, Any]]) -> int:
    """Tokens that had to be computed once: all contexts, but for the very last token of each."""
    return sum(
        segment["given_tokens"] + segment["said"] - 1
        for session in sessions
        for segment in session["segments"]
        if segment["said"]
    )


def first_turns(run: Mapping[str, Any]) -> dict[str, float]:
    """Return the TTFT in seconds of the first turn of each counted session that got a token."""
    return {
        session["key"]: session["segments"][0]["first"] - session["segments"][0]["sent"]
        for session in counted_sessions(run)
        if session["segments"] and session["segments"][0]["first"]
    }


def handlings(run: dict[str, Any]) -> Counter[str]:
    """Count what happened to paused KV caches, as the resumes report it."""
    return Counter(
        segment["handling"]
        for session in run["sessions"]
        for segment in session["segments"]
        if segment["handling"]
    )


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of all do not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1]
