"""Threads for large rendering, tokenising and parsing, so that it does not block the event loop.

Tokenizers of `transformers` release the GIL while they work, so streams continue meanwhile. Work in
Python gives it up every few milliseconds.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

MAX_INLINE_CHARACTERS = 4_000
"""Work up to this size runs in the event loop, since a thread would take longer."""
MAX_MEDIUM_CHARACTERS = 400_000
"""Work above this size has its own thread, so that it delays only other large work."""
MEDIUM_THREADS = 2
LARGE_THREADS = 1
ITEM_CHARACTERS = 16
"""Characters that an item of a list or a mapping counts for, besides its texts."""


class RenderThreads:
    """The threads of one engine in the API process, for one event loop at a time."""

    def __init__(self) -> None:
        self._medium = ThreadPoolExecutor(MEDIUM_THREADS, "caesura-render")
        self._large = ThreadPoolExecutor(LARGE_THREADS, "caesura-render-large")

    async def run(self, work: Callable[[], T], *about: object) -> T:
        """Return the result of `work`, in a thread if `about`, the data it works on, is large.

        Cancelling the call removes work that has not begun; work that has begun runs to its end.
        Raises the errors of `work`.
        """
        return await self.run_sized(work, count_characters(about, MAX_MEDIUM_CHARACTERS))

    async def run_sized(self, work: Callable[[], T], characters: int) -> T:
        """Return what `run` does for work on that many characters."""
        if characters <= MAX_INLINE_CHARACTERS:
            return work()
        threads = self._medium if characters <= MAX_MEDIUM_CHARACTERS else self._large
        return await asyncio.get_running_loop().run_in_executor(threads, work)

    def close(self) -> None:
        """Cancel work that has not begun, and end the threads. Idempotent."""
        self._medium.shutdown(wait=False, cancel_futures=True)
        self._large.shutdown(wait=False, cancel_futures=True)


def count_characters(data: object, enough: int) -> int:
    """Return the number of characters in JSON-able data; counting stops soon after `enough`."""
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
