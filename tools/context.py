"""Who is calling: what a tool may know of the call that it serves, and of the call's session.

A tool that needs more than its arguments asks `current()`. Most tools need nothing of it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import Any, TypeVar

from caesura.tools.result import ToolCall

T = TypeVar("T")


class Scope:
    """What tools keep for one session: a worker process, a game, a connection. It ends with it."""

    def __init__(self, session: str) -> None:
        self.session = session
        """The session's id, unique in this process and in files that outlive it."""
        self._kept: dict[str, asyncio.Task[Any]] = {}
        self._closers: dict[str, Callable[[Any], Awaitable[object]]] = {}
        self._closed = False

    async def keep(
        self,
        key: str,
        make: Callable[[], Awaitable[T]],
        close: Callable[[T], Awaitable[object]],
    ) -> T:
        """Return what is kept under `key`, made at the first call; `close` gets it at the end.

        Callers at the same time share one making. A making that fails, or that is cancelled with
        the last of its callers, is forgotten. Raises what `make` raises, and RuntimeError once the
        session has ended.
        """
        if self._closed:
            raise RuntimeError("the session has ended")
        task = self._kept.get(key)
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            task = asyncio.ensure_future(make())
            self._kept[key] = task
            self._closers[key] = close
        # Shielded: a call that times out must not take away what another call waits for.
        return await asyncio.shield(task)

    async def drop(self, key: str) -> None:
        """Close what is kept under `key`, if anything is."""
        task, close = self._kept.pop(key, None), self._closers.pop(key, None)
        if task is None or close is None:
            return
        if not task.done():
            task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and task.exception() is None:
            await close(task.result())

    async def aclose(self) -> None:
        """Close everything; what fails to close does not keep the rest open."""
        self._closed = True
        keys = list(self._kept)
        ended = await asyncio.gather(*(self.drop(key) for key in keys), return_exceptions=True)
        failures = [each for each in ended if isinstance(each, BaseException)]
        if failures:
            raise failures[0]


@dataclass(frozen=True, slots=True)
class CallContext:
    """One call under way."""

    call: ToolCall
    scope: Scope
    conversation: str = ""
    """A digest of what was said before the run, equal when the same request is sent again."""
    report: Callable[[str], None] = field(default=lambda text: None)
    """Tells whoever watches what the tool is doing: one line, shown at once."""


_CURRENT: ContextVar[CallContext] = ContextVar("caesura_call")


def current() -> CallContext:
    """The call that this code serves; raises LookupError outside of one.

    Threads that `asyncio.to_thread` starts see it too.
    """
    return _CURRENT.get()


def enter(context: CallContext) -> Token[CallContext]:
    """Make `context` the current one, for the current task; the dispatcher does."""
    return _CURRENT.set(context)


def leave(token: Token[CallContext]) -> None:
    """Undo `enter`."""
    _CURRENT.reset(token)
