"""What must be true of a server once nobody asks for anything, and how its memory has grown."""

import asyncio
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

import httpx
import numpy as np

from .server import Server

REST_SECONDS = 120.0
"""Longer than an idle worker, or KV for a follow-up, is kept."""
SLOPE_SECONDS = 600.0
"""Over less time the start of a server looks like growth."""
SPARE_DESCRIPTORS = 8
"""Files that SQLite opens and closes at will."""


class Usage(NamedTuple):
    """What a server uses at one time."""

    seconds: float
    life: int
    megabytes: float
    descriptors: int
    processes: int


async def watch(server: Server, seen: list[Usage], ending: asyncio.Event) -> None:
    """Note the usage every five seconds while the server is up."""
    while not ending.is_set():
        await asyncio.sleep(5)
        if not server.down:
            life, usage = server.life, await asyncio.to_thread(server.usage)
            seen.append(Usage(time.monotonic(), life, *usage))


def slopes(seen: Sequence[Usage]) -> dict[str, float | str]:
    """Return the growth by the hour over the last half; each life begins at a level of its own."""
    half = [one for one in seen if one.seconds >= (seen[0].seconds + seen[-1].seconds) / 2]
    lives = [[one for one in half if one.life == life] for life in {one.life for one in half}]
    rows = [np.array(life) - np.mean(life, axis=0) for life in lives if len(life) > 2]
    names = {2: "RSS, MB/h", 3: "descriptors/h", 4: "processes/h"}
    if not rows or half[-1].seconds - half[0].seconds < SLOPE_SECONDS:
        return {f"slope of {name}, last half": "too short a run" for name in names.values()}
    all_rows = np.concatenate(rows)
    hours = all_rows[:, 0] / 3600
    return {
        f"slope of {name}, last half": round(
            float(hours @ all_rows[:, column] / (hours @ hours)), 1
        )
        for column, name in names.items()
    }


async def left_behind(server: Server, before: Usage) -> list[str]:
    """Wait until the server is at rest; return what is not so after a while."""
    ends = time.monotonic() + REST_SECONDS
    while left := await _left(server, before):
        if time.monotonic() > ends:
            break
        await asyncio.sleep(1)
    return left


async def _left(server: Server, before: Usage) -> list[str]:
    async with httpx.AsyncClient(timeout=30) as http:
        busy = await server.busy(http)
    left = [f"{name} is {value}" for name, value in busy.items()]
    _, descriptors, processes = server.usage()
    if descriptors > before.descriptors + SPARE_DESCRIPTORS:
        left.append(f"{descriptors} descriptors, {before.descriptors} before the faults")
    if processes > before.processes:
        left.append(f"{processes} processes, {before.processes} before the faults")
    left += [f"process {one.pid} of a dead server lives" for one in server.met if one.is_running()]
    return left


def runs_in_journal(server: Server) -> int:
    """Return how many runs the journal still has; none may be left once all have ended."""
    with closing(sqlite3.connect(server.journal)) as database:
        (count,) = database.execute("SELECT count(*) FROM runs").fetchone()
    return int(count)
