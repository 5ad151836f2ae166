"""Replays in a process of their own: `python -m caesura.runtime.whatif.child`, a task on stdin.

It answers with lines of JSON: `{"replay": INDEX, "at": SECOND}` while it simulates, and
`{"made": FIGURES}` or `{"error": TEXT}` at its end. It gives way to everything else, and ends with
its parent.
"""

import json
import math
import os
import resource
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from caesura.runtime.recording import catalog
from caesura.runtime.recording.entries import Recording, row_of
from caesura.runtime.recording.storage import Bounds, Store
from caesura.runtime.whatif.figures import KINDS, Fared, fared
from caesura.runtime.whatif.stretch import Stretch, from_wire, renamed
from caesura.simulator.policy import Policy

NICENESS = 19
ROWS = 500


def main() -> None:
    """Carry out the task on stdin."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(NICENESS)
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print must not mix with the answers
    task = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with, args=(sys.stdin.buffer,), daemon=True).start()
    resource.setrlimit(resource.RLIMIT_DATA, (task["memory_bytes"],) * 2)
    try:
        told: dict[str, Any] = {"made": replayed(task, lambda said: _say(out, said))}
    except MemoryError:
        told = {"error": f"it needs more than {task['memory_bytes'] / 2**30:g} GiB of memory"}
    except Exception as error:  # whatever it is, the page shows it
        told = {"error": f"{type(error).__name__}: {error}"}
    _say(out, told)


def replayed(task: Mapping[str, Any], say: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
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
            _replay(task, stretch, index, store, say) for index in range(len(task["policies"]))
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
    say: Callable[[dict[str, Any]], None],
) -> tuple[int, Fared]:
    """Return the number of the recording that holds one replay, and how its sessions fared."""
    from caesura.simulator.study.plan import Cell
    from caesura.simulator.study.work import trace_cell
    from caesura.simulator.trace import recording

    # The last session arrives at the end of the span, and must be included.
    seconds = math.nextafter(max(stretch.seconds, 1.0), math.inf)
    policy = Policy(**task["policies"][index])
    cell = Cell("record", stretch.path, task["machine"], policy, 0.0, 0, seconds)
    run = trace_cell(cell, lambda at: say({"replay": index, "at": at}))
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


def _say(out: TextIO, told: dict[str, Any]) -> None:
    out.write(json.dumps(told) + "\n")
    out.flush()


def _end_with(parent: BinaryIO) -> None:
    """End this process when the parent closes the pipe, or has died."""
    parent.read()
    os._exit(1)


if __name__ == "__main__":
    main()
