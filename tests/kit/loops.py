"""An event loop in another thread."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def another_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Yield a loop that runs in another thread; what is left on it is cancelled at the end."""
    running = threading.Event()
    told: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def stay() -> None:
        ending = asyncio.Event()
        told.append((asyncio.get_running_loop(), ending))
        running.set()
        await ending.wait()

    thread = threading.Thread(target=asyncio.run, args=(stay(),))
    thread.start()
    running.wait()
    [(loop, ending)] = told
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(ending.set)
        thread.join()
