"""Work that runs on another event loop, perhaps in another thread, than where it is awaited."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from contextvars import ContextVar
from typing import Generic, TypeVar

T = TypeVar("T")
CHECK_SECONDS = 1.0
"""How often it is checked that the other loop still runs."""
MOST_WAITING = 256
"""The most items of a generator that wait on one loop for their reader on another."""
_SENT: ContextVar[tuple[asyncio.AbstractEventLoop, asyncio.AbstractEventLoop] | None] = ContextVar(
    "caesura_sent", default=None
)
"""The loop that sent the current work to another loop, and that other loop."""


class LoopEnded(RuntimeError):
    """The event loop on which work should run is closed, or stands still."""


def asking_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop from which the current work was sent to this one, or this one."""
    here, sent = asyncio.get_running_loop(), _SENT.get()
    return sent[0] if sent is not None and sent[1] is here else here


def tell(loop: asyncio.AbstractEventLoop, what: Callable[..., object], *arguments: object) -> bool:
    """Have a function called on an event loop, from any thread; return False if it is closed."""
    try:
        loop.call_soon_threadsafe(what, *arguments)
    except RuntimeError:
        return False
    return True


async def on_loop(loop: asyncio.AbstractEventLoop, make: Callable[[], Awaitable[T]]) -> T:
    """Run `make()` on an event loop and return its result, as if it ran here.

    It has a copy of this context. A cancellation of the caller cancels it there, and the caller
    waits until it has ended. Raises what it raises, and `LoopEnded` if the loop does not run or
    ends before it.
    """
    here = asyncio.get_running_loop()
    if loop is here:
        return await make()
    work = _Work(loop, here, make)
    token = _SENT.set((asking_loop(), loop))
    try:
        work.begin()
    finally:
        _SENT.reset(token)
    return await work.result()


class _Work(Generic[T]):
    """One piece of work on another loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        here: asyncio.AbstractEventLoop,
        make: Callable[[], Awaitable[T]],
    ) -> None:
        self._loop, self._here, self._make = loop, here, make
        self._task: asyncio.Task[tuple[T | None, BaseException | None]] | None = None
        self._ended: asyncio.Future[None] = here.create_future()
        self._reached = 0
        """How many cancellations have reached the work before its end."""

    def begin(self) -> None:
        if not self._loop.is_running() or not tell(self._loop, self._start):
            raise LoopEnded("the event loop that should do this does not run")

    async def result(self) -> T:
        asked = 0
        while not self._ended.done():
            try:
                await asyncio.wait({self._ended}, timeout=CHECK_SECONDS)
            except asyncio.CancelledError:
                asked += 1
                tell(self._loop, self._cancel)
            if not (self._ended.done() or self._loop.is_running()):
                if asked:
                    raise asyncio.CancelledError
                raise LoopEnded("the event loop that did this has ended")
        task = self._task
        if task is None or task.cancelled():
            if asked:
                raise asyncio.CancelledError
            raise LoopEnded("the event loop that did this has cancelled it")
        value, error = task.result()
        if asked > self._reached:
            raise asyncio.CancelledError  # the work had ended before it heard of this
        if error is not None:
            raise error
        return value  # type: ignore[return-value]  # None only where T has it

    # -- on the other loop -------------------------------------------------------------------------

    def _start(self) -> None:
        self._task = self._loop.create_task(_outcome(self._make))
        self._task.add_done_callback(lambda task: tell(self._here, self._settle))

    def _cancel(self) -> None:
        if self._task is not None and self._task.cancel():
            self._reached += 1

    def _settle(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)


async def _outcome(make: Callable[[], Awaitable[T]]) -> tuple[T | None, BaseException | None]:
    """Return what work returns or raises: an error such as SystemExit must not end the loop."""
    try:
        return await make(), None
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        return None, error


async def items_of(
    loop: asyncio.AbstractEventLoop,
    make: Callable[[], AsyncGenerator[T, None]],
    most: int = MOST_WAITING,
) -> AsyncGenerator[T, None]:
    """Yield the items of a generator that runs on another event loop.

    Items cross in batches: one wake-up takes all that have gathered. The generator waits while
    `most` items are unread. Closing this one closes it there, and waits for that. It is closed too
    once the reader's loop is closed. Raises as `on_loop`.
    """
    here = asyncio.get_running_loop()
    line: _Line[T] = _Line(loop, here, most)
    filling = here.create_task(on_loop(loop, lambda: line.fill(make)))
    filling.add_done_callback(lambda task: line.woken.set())
    try:
        ended = False
        while not ended:
            await line.woken.wait()
            ended = filling.done()  # before the last look, so that no item is missed
            for item in line.taken():
                yield item
        await filling
    finally:
        await _end(filling)


async def _end(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait until it has ended, whatever happens to the caller meanwhile."""
    cancelled = False
    task.cancel()
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    if not task.cancelled():
        task.exception()  # nobody reads it any more
    if cancelled:
        raise asyncio.CancelledError


class _Line(Generic[T]):
    """Items between two event loops."""

    def __init__(
        self, there: asyncio.AbstractEventLoop, here: asyncio.AbstractEventLoop, most: int
    ) -> None:
        self._there, self._here, self._most = there, here, most
        self._items: deque[T] = deque()
        self._lock = threading.Lock()
        self._is_told = self._is_full = False
        self.woken = asyncio.Event()
        """Set on the reader's loop when there is something to read."""
        self._room = asyncio.Event()
        """Set on the writer's loop when there is room."""

    def taken(self) -> deque[T]:
        """Take all items."""
        self.woken.clear()
        with self._lock:
            taken, self._items = self._items, deque()
            was_full, self._is_full, self._is_told = self._is_full, False, False
        if was_full:
            tell(self._there, self._room.set)
        return taken

    async def fill(self, make: Callable[[], AsyncGenerator[T, None]]) -> None:
        """Add the generator's items, on its loop."""
        async with aclosing(make()) as items:
            async for item in items:
                with self._lock:
                    self._items.append(item)
                    was_told, self._is_told = self._is_told, True
                    self._is_full = len(self._items) >= self._most
                    if self._is_full:
                        self._room.clear()
                if not was_told and not tell(self._here, self.woken.set):
                    return  # nobody reads any more
                if self._is_full and not await self._has_room():
                    return

    async def _has_room(self) -> bool:
        """Wait until the items are taken; return False if the reader's loop is closed."""
        while not self._here.is_closed():
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECK_SECONDS):
                    await self._room.wait()
                return True
        return False
