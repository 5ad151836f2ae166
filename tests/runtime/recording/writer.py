"""Writes entries until it is killed; tells on stdout how many were committed.

A program of its own: `python -m tests.runtime.recording.writer FILE`.
"""

import sys
from pathlib import Path

from caesura.runtime.recording.entries import row_of
from caesura.runtime.recording.storage import Bounds, Store


def main() -> None:
    store = Store(Path(sys.argv[1]), Bounds(8 * 2**20))
    made, count = store.begin("writer", "serve"), 0
    while True:
        size = 1 + count % 40
        store.append(
            made,
            [row_of({"kind": "steps", "n": count + n, "fill": "x" * 500}) for n in range(size)],
        )
        count += size
        print(f"{made} {count}", flush=True)


if __name__ == "__main__":
    main()
