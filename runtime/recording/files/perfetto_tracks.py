"""The tracks of a Perfetto trace: processes, threads and counters, named at their first use."""

from collections.abc import Iterator, Mapping
from typing import Any

PROCESSES = {1: "Requests", 2: "Runs", 3: "Tools"}
"""Names by process id; any other process is an engine."""
FIRST_ENGINE = 10
FIRST_THREAD = 1000

WORK = {
    "tokens": {
        "decode": "decode_tokens",
        "prefill": "prefill_tokens",
        "recompute": "recompute_tokens",
    },
    "copied blocks": {
        "to the host": "saved_blocks",
        "from the host": "loaded_blocks",
        "budget": "budget_blocks",
    },
}
"""Counters of a step's work, by series and column; they return to zero after the step."""
LEVELS = {
    "requests": {"running": "running", "paused": "paused", "waiting": "waiting"},
    "blocks": {
        "running": "running_blocks",
        "paused": "paused_blocks",
        "cached": "cached_blocks",
        "free": "free_blocks",
    },
    "host blocks": {"used": "host_blocks"},
}
"""Counters of levels, which hold until the next step."""


class Tracks:
    """Assigns thread ids in order of first use, and emits a counter only when it changes."""

    def __init__(self) -> None:
        self._threads: dict[tuple[int, str], int] = {}
        self._processes: set[int] = set()
        self._values: dict[tuple[int, str], dict[str, Any]] = {}
        self._ends: dict[int, int] = {}

    def named(
        self, process: int, key: str, name: str
    ) -> tuple[dict[str, int], list[dict[str, Any]]]:
        """Return a thread's ids and, at the thread's first use, the events that name it."""
        thread = self._threads.get((process, key))
        if thread is not None:
            return {"pid": process, "tid": thread}, []
        thread = self._threads[process, key] = FIRST_THREAD + len(self._threads)
        ids = {"pid": process, "tid": thread}
        return ids, [
            *self._process(process),
            _metadata(ids, "thread_name", {"name": name}),
            _metadata(ids, "thread_sort_index", {"sort_index": thread}),
        ]

    def _process(self, process: int) -> Iterator[dict[str, Any]]:
        if process not in self._processes:
            self._processes.add(process)
            ids = {"pid": process, "tid": process}
            name = PROCESSES.get(process, f"Engine {process - FIRST_ENGINE}")
            yield _metadata(ids, "process_name", {"name": name})
            yield _metadata(ids, "process_sort_index", {"sort_index": process})

    def counters(
        self, process: int, at: int, end: int, row: Mapping[str, Any]
    ) -> Iterator[dict[str, Any]]:
        """Yield the counters of a step from `at` to `end`, in microseconds."""
        if self._ends.get(process, at) < at:
            yield from self._zeros(process)
        for name, columns in (LEVELS | WORK).items():
            values = {key: row[column] for key, column in columns.items() if column in row}
            if name == "blocks" and "cached" in values and "free" in values:
                values["free"] -= values["cached"]  # cached blocks count as free too
            if values:
                yield from self._count(process, name, at, values)
        self._ends[process] = end

    def at_rest(self, process: int, at: int, blocks: Mapping[str, int]) -> Iterator[dict[str, Any]]:
        """Yield the blocks by owner after an engine's last step."""
        before, values = self._values.get((process, "blocks"), {}), dict(blocks)
        if "cached" in before:
            cached = before["cached"]
            # Most of what is given up can still be found, where anything is.
            given_up = max(0, values["free"] - before["free"] - cached) if cached else 0
            values["cached"] = min(values["free"], cached + given_up)
            values["free"] -= values["cached"]
        if before:
            at = max(at, self._ends.get(process, at))
            yield from self._count(process, "blocks", at, {name: values[name] for name in before})

    def rest(self) -> Iterator[dict[str, Any]]:
        """Yield the zeros after each engine's last step."""
        for process in self._ends:
            yield from self._zeros(process)

    def _zeros(self, process: int) -> Iterator[dict[str, Any]]:
        for name in WORK:
            values = dict.fromkeys(self._values.get((process, name), ()), 0)
            if values:
                yield from self._count(process, name, self._ends[process], values)

    def _count(
        self, process: int, name: str, at: int, values: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        if self._values.get((process, name)) != values:
            self._values[process, name] = values
            yield {
                "ph": "C",
                "name": name,
                "ts": at,
                "pid": process,
                "tid": process,
                "args": values,
            }


class Lanes:
    """Assigns overlapping intervals to lanes; intervals come roughly in order of their ends."""

    def __init__(self) -> None:
        self._ends: dict[str, list[float]] = {}

    def free(self, group: str, at: int, end: float) -> int:
        """Return the first lane of `group` that is free from `at` on, and take it until `end`."""
        ends = self._ends.setdefault(group, [])
        for lane, last in enumerate(ends):
            if last <= at:
                ends[lane] = end
                return lane
        ends.append(end)
        return len(ends) - 1

    def leave(self, group: str, lane: int, end: int) -> None:
        """Free a lane of `group`, which was taken without a known end, from `end` on."""
        self._ends[group][lane] = end


def _metadata(ids: Mapping[str, int], name: str, args: Mapping[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "name": name, **ids, "args": dict(args)}
