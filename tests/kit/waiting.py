"""Waiting for what happens by itself, for two minutes at most: a busy machine is slow.

A test never waits for a fixed time: it looks again and again, and goes on at once.
"""

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

PATIENCE_SECONDS = 120.0
STEP_SECONDS = 0.002
ASKED_STEP_SECONDS = 0.05
"""Between two looks of which each costs a request or a call."""


async def until(
    get: Callable[[], Any],
    holds: Callable[[Any], object] = bool,
    *,
    seconds: float = PATIENCE_SECONDS,
) -> Any:
    """Return the first value of `get`, awaited where it can be, that `holds`: a true one, say.

    Raises `TimeoutError` with the last one.
    """
    ends = time.monotonic() + seconds
    while True:
        found, step = get(), STEP_SECONDS
        if inspect.isawaitable(found):
            found, step = await found, ASKED_STEP_SECONDS
        if holds(found):
            return found
        if time.monotonic() > ends:
            raise TimeoutError(f"it did not happen within {seconds:g} s: {found!r}")
        await asyncio.sleep(step)


def wait_until(get: Callable[[], Any], *, seconds: float = PATIENCE_SECONDS) -> Any:
    """Return the first true value of `get`; block meanwhile. Raises `TimeoutError`."""
    ends = time.monotonic() + seconds
    while not (found := get()):
        if time.monotonic() > ends:
            raise TimeoutError(f"it did not happen within {seconds:g} s: {found!r}")
        time.sleep(STEP_SECONDS)
    return found
