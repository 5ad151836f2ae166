"""Runs a tool's code in a task of its own, which is given up if it does not end when it must.

A coroutine may swallow its cancellation. Whoever awaits it would then wait for as long as it likes:
a request, and the end of the server. So nobody awaits it: its task is watched.
"""

import asyncio
import ctypes
from collections.abc import Awaitable, Callable
from typing import Any

GRACE_SECONDS = 5.0
"""How long a tool may clean up once it was cancelled."""


class Expired(Exception):
    """The tool ran out of time, and ended when it was cancelled."""


class Stuck(Expired):
    """The tool ran out of time, and went on although it was cancelled."""


class Escaped(Exception):
    """The tool raised what would end more than its own call; the message says what."""


async def run_bounded(
    work: Callable[[], Awaitable[Any]],
    seconds: float | None,
    grace_seconds: float = GRACE_SECONDS,
    on_given_up: Callable[[], object] = lambda: None,
    on_task: Callable[[asyncio.Task[Any]], object] = lambda task: None,
) -> Any:
    """Return what `work` returns within `seconds`; raise what it raises.

    Work that is out of time, or whose caller is cancelled, is cancelled. It may then take
    `grace_seconds`. Work that still runs is given up: nobody waits for it any more, and
    `on_given_up` is called. `on_task` is told the task in which the work runs.

    Raises `Expired`, `Stuck`, `Escaped`, and CancelledError where the caller is cancelled, or the
    work cancels itself. Work that answers its cancellation with a value or an error has ended with
    that.
    """
    task = asyncio.get_running_loop().create_task(_outcome(work))
    on_task(task)
    expired, cancelled = await _watched(task, seconds, grace_seconds)
    if not task.done():
        _give_up(task)
        on_given_up()
        if cancelled:
            raise asyncio.CancelledError
        raise Stuck
    if task.cancelled():
        if expired and not cancelled:
            raise Expired
        raise asyncio.CancelledError  # the caller's own, or the tool cancelled itself
    value, error = task.result()
    if error is None:
        return value
    if expired:
        raise Expired from error
    if isinstance(error, GeneratorExit):
        raise Escaped(str(error) or "the tool raised GeneratorExit") from None
    raise error


async def _watched(
    task: asyncio.Task[Any], seconds: float | None, grace_seconds: float
) -> tuple[bool, bool]:
    """Wait for a task; return whether it ran out of time, and whether the caller was cancelled."""
    loop = asyncio.get_running_loop()
    until = None if seconds is None else loop.time() + seconds
    expired = cancelled = False
    while not task.done():
        left = None if until is None else max(0.0, until - loop.time())
        try:
            await asyncio.wait({task}, timeout=left)
        except asyncio.CancelledError:
            if not (expired or cancelled):
                until = loop.time() + grace_seconds
            cancelled = True
            task.cancel()
            continue
        if task.done() or expired or cancelled:
            break
        expired = True
        task.cancel()
        until = loop.time() + grace_seconds
    return expired, cancelled


async def _outcome(work: Callable[[], Awaitable[Any]]) -> tuple[Any, BaseException | None]:
    """Return what the work returns or raises, so that SystemExit does not leave the event loop."""
    try:
        return await work(), None
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise
    except BaseException as error:  # includes GeneratorExit and a Rust extension's panic
        return None, error


def _give_up(task: asyncio.Task[Any]) -> None:
    """Leave a task alone: neither the end of its loop nor that of the interpreter waits for it."""
    # Otherwise `asyncio.run` would cancel it once more, and wait for it without a bound.
    asyncio._unregister_task(task)
    # Collecting it would close its coroutine, which may swallow that too, and run for ever.
    reference = ctypes.py_object(task)
    ctypes.pythonapi.Py_IncRef(reference)

    def ended(task: asyncio.Task[Any]) -> None:
        ctypes.pythonapi.Py_DecRef(reference)
        if not task.cancelled():
            task.exception()  # so that it is not logged as lost

    task.add_done_callback(ended)
