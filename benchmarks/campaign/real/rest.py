"""What must be true of a server once nobody asks for anything, and how its memory has grown."""

import asyncio
import json
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import httpx
import numpy as np

from .server import Server

REST_SECONDS = 120.0
"""Longer than an idle worker, or KV for a follow-up, is kept."""
LIFE_SECONDS = 600.0
"""Over less time the start of a process looks like growth."""
FLAT_MB_PER_HOUR = 40.0
"""How much the memory of a process may grow by the hour, once half of its life is over."""
SPARE_DESCRIPTORS = 8
"""Files that SQLite opens and closes at will."""


class Usage(NamedTuple):
    """What one process uses at one time."""

    seconds: float
    process: str
    megabytes: float
    descriptors: int


class Growth(NamedTuple):
    """How the life of one process went; the growths by the hour are those of its last half."""

    process: str
    seconds: float
    megabytes: tuple[float, float]
    descriptors: tuple[int, int]
    megabytes_per_hour: float
    descriptors_per_hour: float

    @property
    def flat(self) -> bool:
        """Return whether its memory and its descriptors have stopped to grow."""
        spare = SPARE_DESCRIPTORS / (self.seconds / 2 / 3600)
        flat = self.megabytes_per_hour <= FLAT_MB_PER_HOUR
        return flat and self.descriptors_per_hour <= spare

    def __str__(self) -> str:
        """Return it as a row of the report."""
        return (
            f"{self.seconds:.0f} s; RSS from {self.megabytes[0]:.0f} to {self.megabytes[1]:.0f} MB,"
            f" {self.megabytes_per_hour:+.1f} MB/h in the last half; descriptors from"
            f" {self.descriptors[0]} to {self.descriptors[1]}, {self.descriptors_per_hour:+.1f}/h"
        )


async def watch(server: Server, seen: list[Usage], ending: asyncio.Event) -> None:
    """Note the usage every five seconds while the server is up."""
    while not ending.is_set():
        await asyncio.sleep(5)
        if not server.down:
            for name, used in (await asyncio.to_thread(server.usage)).items():
                seen.append(Usage(time.monotonic(), name, *used))


def growths(seen: Sequence[Usage]) -> list[Growth]:
    """Return how each process grew that lived long enough to tell."""
    lives = {
        name: [one for one in seen if one.process == name]
        for name in dict.fromkeys(one.process for one in seen)
    }
    return [
        _growth(life)
        for life in lives.values()
        if life[-1].seconds - life[0].seconds >= LIFE_SECONDS
    ]


def _growth(life: Sequence[Usage]) -> Growth:
    first, last = life[0], life[-1]
    half = [one for one in life if one.seconds >= (first.seconds + last.seconds) / 2]
    hours = np.array([one.seconds for one in half]) / 3600
    columns = np.array([(one.megabytes, one.descriptors) for one in half])
    megabytes, descriptors = np.polyfit(hours - hours[0], columns, 1)[0]
    return Growth(
        first.process,
        last.seconds - first.seconds,
        (first.megabytes, last.megabytes),
        (first.descriptors, last.descriptors),
        float(megabytes),
        float(descriptors),
    )


def by_the_minute(seen: Sequence[Usage]) -> list[Usage]:
    """Return one usage of each process for each minute, by seconds since the first."""
    kept = {(one.process, one.seconds // 60): one for one in seen}
    return [
        one._replace(
            seconds=round(one.seconds - seen[0].seconds), megabytes=round(one.megabytes, 1)
        )
        for one in kept.values()
    ]


async def left_behind(server: Server, before: tuple[int, int]) -> list[str]:
    """Wait until the server is at rest; return what is not so after a while."""
    ends = time.monotonic() + REST_SECONDS
    while left := await _left(server, before):
        if time.monotonic() > ends:
            break
        await asyncio.sleep(1)
    return left


async def _left(server: Server, before: tuple[int, int]) -> list[str]:
    async with httpx.AsyncClient(timeout=30) as http:
        busy = await server.busy(http)
    left = [f"{name} is {value}" for name, value in busy.items()]
    (descriptors, processes), (descriptors_before, processes_before) = server.holds(), before
    if descriptors > descriptors_before + SPARE_DESCRIPTORS:
        left.append(f"{descriptors} descriptors, {descriptors_before} before the faults")
    if processes > processes_before:
        left.append(f"{processes} processes, {processes_before} before the faults")
    left += [f"process {one.pid} of a dead server lives" for one in server.met if one.is_running()]
    return left


def runs_in_journal(journal: Path) -> tuple[list[str], int]:
    """Return what the runs are that the journal still has, and how many answers it keeps.

    A server that is killed once it has sent the answer to a request with a key leaves its run. The
    next one keeps the answer for its client, which will not come back. No other run may be left.
    """
    runs: dict[str, list[str]] = {}
    query = (
        "SELECT id, body FROM runs LEFT JOIN entries ON run = runs.number ORDER BY entries.number"
    )
    with closing(sqlite3.connect(journal)) as database:
        for run, body in database.execute(query):
            runs.setdefault(run, []).extend([] if body is None else json.loads(body)[:1])
    left = {
        run: kinds
        for run, kinds in runs.items()
        if not run.startswith("chatcmpl-") or "resumed" not in kinds
    }
    told = [f"{run}: {' '.join(kinds[-8:]) or 'no entries'}" for run, kinds in left.items()]
    return told, len(runs) - len(left)
