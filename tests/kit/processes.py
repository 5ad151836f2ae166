"""Processes that this one has started, and waiting until some are gone."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import psutil


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def living(pids: Iterable[int]) -> list[int]:
    """Those of these processes that still run."""
    return [pid for pid in pids if lives(pid)]


async def gone(pids: Iterable[int]) -> bool:
    """Whether these processes end within a minute."""
    pids = list(pids)
    for _ in range(6000):
        if not living(pids):
            return True
        await asyncio.sleep(0.01)
    return False


def started(pid: int | None = None) -> set[int]:
    """The descendants of a process, or of this one."""
    return {each.pid for each in psutil.Process(pid).children(recursive=True) if lives(each.pid)}


@asynccontextmanager
async def nothing_left() -> AsyncIterator[None]:
    """Check that the block leaves no process and no task behind."""
    processes, tasks = started(), asyncio.all_tasks()
    yield
    assert await gone(started() - processes)
    for _ in range(6000):
        if not (left := asyncio.all_tasks() - tasks - {asyncio.current_task()}):
            break
        await asyncio.sleep(0.01)
    assert not left
