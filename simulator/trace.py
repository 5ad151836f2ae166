"""A run as a trace: a line about the run, and the entries that a served engine would write.

Caesura's scheduler writes its records itself. vLLM's own scheduler writes none. The lanes of its
runs are made from the times at which each segment was sent, began to answer and ended. The steps
are sums over the intervals of the run's timeline.
"""

import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import caesura
from caesura.scheduler.records import LanesRecord, SessionRecord, StepsRecord
from caesura.scheduler.settings import Settings
from caesura.simulator.policy import SIZES
from caesura.simulator.results import RunResult, SessionResult
from caesura.simulator.session import Session, Workload

Entry = dict[str, Any]

STEPS = {
    "seconds": "seconds",
    "running": "running",
    "paused": "paused",
    "decode_tokens": "decode_tokens",
    "prefill_tokens": "prefill_tokens",
    "recompute_tokens": "recompute_tokens",
    "saved_blocks": "saved_blocks",
    "loaded_blocks": "loaded_blocks",
    "running_blocks": "running_blocks",
    "paused_blocks": "paused_blocks",
    "free_blocks": "free_blocks",
    "waiting": "queued",
    "host_blocks": "host_blocks",
}
"""The columns of `steps` that a timeline has, with their names in the timeline."""


def recording(run: RunResult, entries: int) -> Entry:
    """Return a run's description as a recording with `entries` entries that begins at second 0."""
    settings, policy = run.settings, run.settings["policy"]
    own = policy["settings"]
    about = {
        "policy": run.policy,
        "engine": policy["engine"],
        **(Settings.from_mapping(own).told() if own else {}),
        **{name: policy.get(key) for name, key in SIZES.items()},
        "workload": run.workload,
        "machine": run.machine,
        "rate": run.rate,
        "seed": run.seed,
        "version": f"caesura {caesura.__version__}",
        "vllm": settings["vllm"],
        "block_size": settings["machine"]["block_tokens"],
        "block_bytes": settings.get("block_bytes"),
        "kv_groups": settings.get("kv_groups"),
        "total_blocks": settings["blocks"],
        "host_blocks": settings["host_blocks"],
        "lanes": "exact" if policy["engine"] == "caesura" else "coarse",
    }
    return {
        "id": run.policy,
        "title": f"{run.policy}: {run.workload} on {run.machine}",
        "source": "simulate",
        "started": 0.0,
        "ended": run.totals.seconds,
        "live": False,
        "entries": entries,
        "content": False,
        "about": {name: value for name, value in about.items() if value is not None},
    }


def coarse(run: RunResult, workload: Workload) -> list[Entry]:
    """Return the entries of a run whose scheduler wrote no records."""
    planned = {session.key: session for session in workload.sessions}
    rows = sorted(
        (row for one in run.sessions for row in _rows(one, planned[one.key])),
        key=lambda row: row[2],
    )
    columns = zip(*rows, strict=True) if rows else ((),) * len(fields(LanesRecord))
    lanes = LanesRecord(*map(list, columns))
    ends = [_end(one, planned[one.key]) for one in run.sessions if one.ended]
    return [*(record.entry() for record in (lanes, *ends)), _steps(run)]


def _rows(result: SessionResult, session: Session) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a session's lane; the numbers of its blocks are unknown."""
    tokens = 0
    for number, (sent, first, ended) in enumerate(result.segments):
        segment = session.segments[number]
        tokens += segment.given_tokens
        yield (session.key, "waiting", sent, 0, 0, tokens)
        if first:
            yield (session.key, "decode", first, 0, 0, tokens)
        tokens += segment.decode_tokens
        if ended:
            last = number + 1 == len(session.segments)
            yield (session.key, "ended" if last else "dropped", ended, 0, 0, tokens)


def _end(result: SessionResult, session: Session) -> SessionRecord:
    last = session.segments[-1]
    return SessionRecord(
        request=session.key,
        at=result.ended,
        session=session.key,
        arrival=result.arrival,
        given_tokens=last.given_tokens,
        decoded_tokens=last.decode_tokens,
        calls=len(session.segments) - 1,
        outcome="stop",
    )


def _steps(run: RunResult) -> Entry:
    """Return the timeline as columns of steps, each row at the beginning of its interval.

    Columns that a timeline lacks are left out, since those of one entry are equally long.
    """
    rows = run.timeline
    at = [0.0, *rows["at"][:-1]] if rows["at"] else []
    known = {name: rows[column] for name, column in STEPS.items()}
    entry = StepsRecord(at=at, **known, budget_blocks=[0.0] * len(at)).entry()
    return {
        name: column for name, column in entry.items() if name == "kind" or len(column) == len(at)
    }


def write_trace(run: RunResult, path: Path) -> None:
    """Write a run's recording and its entries as JSON lines, completely or not at all.

    Raises `OSError`.
    """
    head = {"kind": "recording", **recording(run, len(run.records))}
    half = path.with_name(f"{path.name}.part")
    with half.open("w", encoding="utf-8") as file:
        for entry in (head, *run.records):
            file.write(json.dumps(entry, separators=(",", ":")) + "\n")
    half.replace(path)


def read_trace(path: Path) -> tuple[Entry, Iterator[Entry]]:
    """Return the recording that `write_trace` wrote, and its entries; raises `OSError`."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return json.loads(lines[0]), map(json.loads, lines[1:])
