"""A crowd of requests: so many at once, each followed by another as soon as it has ended."""

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Iterator

from benchmarks.page.life import KV_BLOCKS, Life, Row
from caesura.runtime.recording.entries import Entry
from caesura.scheduler.records import LanesRecord, Record, StepsRecord

TICK_SECONDS = 0.1
"""How often entries come."""
STEPS_SECONDS, STEP_SECONDS = 0.5, 0.025
"""How often a record of steps comes, as from the engine, and how long a step takes."""
STEP_TOKENS = 2048
"""The most tokens of a step."""
RUNNING = ("prefill", "decode", "recompute", "loading")


class Crowd:
    """Makes the entries of `concurrent` requests from the time `began` on."""

    def __init__(self, concurrent: int, began: float, seed: int = 1, content: int = 0) -> None:
        self.ended = 0
        """Requests that have ended."""
        self.now = began
        self._rng = random.Random(seed)
        self._content = content
        self._numbers = itertools.count()
        self._coming: list[tuple[float, int, Row | Record]] = []
        self._order = itertools.count()
        self._here: dict[str, Row] = {}
        self._steps_at = began
        for _ in range(concurrent):
            self._arrive(began + self._rng.random())

    def until(self, time: float) -> list[Entry]:
        """Return the entries up to a time, as a writer that sends them then puts them together."""
        rows: list[Row] = []
        entries: list[Entry] = []
        while self._coming and self._coming[0][0] <= time:
            at, _, event = heapq.heappop(self._coming)
            if isinstance(event, Row):
                rows.append(event)
                self._take(event, at)
            else:
                entries.append(event.entry())
        if rows:
            at, request, state, *sizes = (list(column) for column in zip(*rows, strict=True))
            entries.insert(0, LanesRecord(request, state, at, *sizes).entry())
        if time - self._steps_at >= STEPS_SECONDS:
            entries.append(self._steps(time))
        self.now = time
        return entries

    def sessions(self, count: int) -> Iterator[list[Entry]]:
        """Yield the entries of a tick after the other, until so many requests have ended."""
        while self.ended < count:
            yield self.until(self.now + TICK_SECONDS)

    def _arrive(self, at: float) -> None:
        life = Life(next(self._numbers), at, self._rng, self._content)
        for when, event in life.events:
            heapq.heappush(self._coming, (when, next(self._order), event))

    def _take(self, row: Row, at: float) -> None:
        self._here[row.request] = row
        if row.state == "ended":
            del self._here[row.request]
            self.ended += 1
            self._arrive(at)

    def _steps(self, until: float) -> Entry:
        """Return the steps since the last ones, all as things are now."""
        count = round((until - self._steps_at) / STEP_SECONDS)
        at = [self._steps_at + index * STEP_SECONDS for index in range(count)]
        self._steps_at = until
        states = Counter(row.state for row in self._here.values())
        blocks: Counter[str] = Counter()
        for row in self._here.values():
            blocks[row.state] += row.blocks
        held = {"running": sum(blocks[name] for name in RUNNING), "paused": blocks["paused"]}
        now = {
            "running": sum(states[name] for name in RUNNING),
            "paused": states["paused"],
            "waiting": states["waiting"],
            "decode_tokens": states["decode"],
            "prefill_tokens": 60 * states["prefill"],
            "recompute_tokens": 0,
            "budget_blocks": 8,
            "saved_blocks": self._rng.randrange(8),
            "loaded_blocks": 0,
            "running_blocks": held["running"],
            "paused_blocks": held["paused"],
            "free_blocks": max(0, KV_BLOCKS - sum(held.values())),
            "cached_blocks": 0,
            "host_blocks": 0,
            "budget_tokens": STEP_TOKENS,
        }
        columns = {name: [value] * count for name, value in now.items()}
        return StepsRecord(at=at, seconds=[STEP_SECONDS] * count, **columns).entry()
