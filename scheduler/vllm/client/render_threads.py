"""Rendering and tokenising beside the event loop: what is large runs in threads, a few at a time.

Tokenisers of `transformers` release Python's lock while they work, so that streams go on.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

MAX_INLINE_CHARACTERS = 4_000
"""What is not larger is done in the event loop: a thread would take longer than the work."""
MAX_MEDIUM_CHARACTERS = 400_000
"""What is larger has a thread of its own to wait for, so that it keeps only its like waiting."""
MEDIUM_THREADS = 2
LARGE_THREADS = 1
ITEM_CHARACTERS = 16
"""What an item of a list or a mapping counts for beside its texts."""


class RenderThreads:
    """The threads of one engine. For one event loop at a time."""

    def __init__(self) -> None:
        self._medium = ThreadPoolExecutor(MEDIUM_THREADS, "caesura-render")
        self._large = ThreadPoolExecutor(LARGE_THREADS, "caesura-render-large")

    async def run(self, work: Callable[[], T], *about: object) -> T:
        """Return what `work` returns; `about` are the messages and tools that it works on.

        Cancelled, it takes back what has not begun and leaves the rest to run to its end. Raises
        what `work` raises.
        """
        characters = count_characters(about, MAX_MEDIUM_CHARACTERS)
        if characters <= MAX_INLINE_CHARACTERS:
            return work()
        threads = self._medium if characters <= MAX_MEDIUM_CHARACTERS else self._large
        return await asyncio.get_running_loop().run_in_executor(threads, work)

    def close(self) -> None:
        """Take back what has not begun, and end the threads. Idempotent."""
        self._medium.shutdown(wait=False, cancel_futures=True)
        self._large.shutdown(wait=False, cancel_futures=True)


def count_characters(data: object, enough: int) -> int:
    """Count the characters in JSON-able data; stops soon after `enough`."""
    found = 0
    left: list[Any] = [data]
    while left and found <= enough:
        item = left.pop()
        if isinstance(item, str):
            found += len(item)
        elif isinstance(item, dict):
            found += ITEM_CHARACTERS * len(item) + sum(map(len, map(str, item)))
            left.extend(item.values())
        elif isinstance(item, list | tuple):
            found += ITEM_CHARACTERS * len(item)
            left.extend(item)
    return found
