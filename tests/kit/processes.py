"""Processes that this one has started, and waiting until some are gone."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import psutil

from tests.kit.waiting import until


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def living(pids: Iterable[int]) -> list[int]:
    """Those of these processes that still run."""
    return [pid for pid in pids if lives(pid)]


async def gone(pids: Iterable[int]) -> bool:
    """Return true once these processes have ended. Raises `TimeoutError`."""
    pids = list(pids)
    return bool(await until(lambda: not living(pids)))


def started(pid: int | None = None) -> set[int]:
    """The descendants of a process, or of this one."""
    return {each.pid for each in psutil.Process(pid).children(recursive=True) if lives(each.pid)}


@asynccontextmanager
async def nothing_left() -> AsyncIterator[None]:
    """Check that the block leaves no process and no task behind."""
    processes, tasks = started(), asyncio.all_tasks()
    yield
    assert await gone(started() - processes)
    await until(lambda: not asyncio.all_tasks() - tasks - {asyncio.current_task()})
