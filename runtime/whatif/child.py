"""One replay in a process of its own: `python -m caesura.runtime.whatif.child`, a task on stdin.

It answers with lines of JSON: `{"at": SECOND}` while it simulates, and `{"recording": NUMBER}` or
`{"error": TEXT}` at its end. It gives way to everything else, and ends with its parent.
"""

import json
import math
import os
import resource
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from caesura.runtime.recording.entries import Recording, row_of
from caesura.runtime.recording.storage.bounds import Bounds
from caesura.runtime.recording.storage.store import Store
from caesura.runtime.whatif.stretch import Stretch, from_wire, renamed

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
        told: dict[str, Any] = {"recording": replayed(task, out)}
    except MemoryError:
        told = {"error": f"it needs more than {task['memory_bytes'] / 2**30:g} GiB of memory"}
    except Exception as error:  # whatever it is, the page shows it
        told = {"error": f"{type(error).__name__}: {error}"}
    _say(out, told)


def replayed(task: Mapping[str, Any], out: TextIO) -> int:
    """Simulate a task's stretch; return the number of the recording that holds the result."""
    from caesura.simulator.policy import parse_policy
    from caesura.simulator.study.plan import Cell
    from caesura.simulator.study.work import trace_cell
    from caesura.simulator.trace import recording

    stretch = from_wire(task["stretch"])
    # The last session arrives at the end of the span, and must be included.
    seconds = math.nextafter(max(stretch.seconds, 1.0), math.inf)
    policy = parse_policy(task["policy"])
    cell = Cell("record", stretch.path, task["machine"], policy, 0.0, 0, seconds)
    run = trace_cell(cell, lambda at: _say(out, {"at": at}))
    made = Recording.from_public(recording(run, len(run.records)))
    return _keep(task, stretch, made, run.records)


def _keep(
    task: Mapping[str, Any], stretch: Stretch, made: Recording, records: list[dict[str, Any]]
) -> int:
    store = Store(Path(task["store"]), Bounds(**task["bounds"]))
    about = {**made.about, **task["about"]}
    try:
        number = store.begin(task["title"], "what-if", about, started=stretch.begin)
        rows = [row_of(entry) for entry in renamed(records, stretch)]
        for first in range(0, len(rows), ROWS):
            store.append(number, rows[first : first + ROWS])
        store.end(number, stretch.begin + (made.ended or 0.0))
    finally:
        store.close()
    return number


def _say(out: TextIO, told: Mapping[str, Any]) -> None:
    out.write(json.dumps(told) + "\n")
    out.flush()


def _end_with(parent: BinaryIO) -> None:
    """End this process when the parent closes the pipe, or has died."""
    parent.read()
    os._exit(1)


if __name__ == "__main__":
    main()
