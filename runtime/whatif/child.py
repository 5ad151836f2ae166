"""What a process of its own does of a what-if: it replays a stretch under several policies.

The worker (`caesura.processes.worker`) calls `replay`. It gives way to everything else.
"""

import math
import os
import resource
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from caesura.runtime.recording import catalog
from caesura.runtime.recording.entries import Recording, row_of
from caesura.runtime.recording.storage import Bounds, Store
from caesura.runtime.whatif.figures import KINDS, Fared, fared
from caesura.runtime.whatif.stretch import Stretch, from_wire, renamed
from caesura.simulator.policy import Policy

NICENESS = 19
ROWS = 500


def replay(task: Mapping[str, Any], tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Do `replayed` in a process of its own, with the task's `memory_bytes` at most.

    `tell` gets `{"replay": INDEX, "at": SECOND}` from time to time. Raises `MemoryError` too.
    """
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_DATA, (task["memory_bytes"],) * 2)
    return replayed(task, tell)


def replayed(task: Mapping[str, Any], tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Replay a task's stretch under each of its policies, the recorded one first.

    Return how the recorded sessions fared (`was`) and how they did in each replay (`replays`), over
    the sessions that ended in all of them. A replay is compared with the first one.
    """
    stretch = from_wire(task["stretch"])
    names = set(stretch.sessions)
    store = Store(Path(task["store"]), Bounds(**task["bounds"]))
    try:
        was = fared(catalog.entries(store.path, task["recording"], KINDS), names)
        replays = [
            _replay(task, stretch, index, store, tell) for index in range(len(task["policies"]))
        ]
    finally:
        store.close()
    both = names & was.latency.keys()
    for _, one in replays:
        both &= one.latency.keys()
    first = replays[0][1]
    return {
        "sessions": len(both),
        "was": was.figures(both),
        "replays": [
            {"result": number, **one.figures(both), **one.against(first, both)}
            for number, one in replays
        ],
    }


def _replay(
    task: Mapping[str, Any],
    stretch: Stretch,
    index: int,
    store: Store,
    tell: Callable[[dict[str, Any]], None],
) -> tuple[int, Fared]:
    """Return the number of the recording that holds one replay, and how its sessions fared."""
    from caesura.simulator.study.plan import Cell
    from caesura.simulator.study.work import trace_cell
    from caesura.simulator.trace import recording

    # The last session arrives at the end of the span, and must be included.
    seconds = math.nextafter(max(stretch.seconds, 1.0), math.inf)
    policy = Policy(**task["policies"][index])
    cell = Cell("record", stretch.path, task["machine"], policy, 0.0, 0, seconds)
    run = trace_cell(cell, lambda at: tell({"replay": index, "at": at}))
    made = Recording.from_public(recording(run, len(run.records)))
    entries = list(renamed(run.records, stretch))
    about = {**made.about, **task["about"], "policy": policy.name}
    title = f"What if: {policy.name} ({about['workload']})"
    number = store.begin(title, "what-if", about, started=stretch.begin)
    rows = [row_of(entry) for entry in entries]
    for first in range(0, len(rows), ROWS):
        store.append(number, rows[first : first + ROWS])
    store.end(number, stretch.begin + (made.ended or 0.0))
    return number, fared(entries, set(stretch.sessions))
