"""Who is calling: what a tool may know of the call that it serves, and of the call's session.

A tool that needs more than its arguments asks `current()`. Most tools need nothing of it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from caesura.tools.dispatch.call_observer import CallWatch, Fact
from caesura.tools.result import ToolCall

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Kept:
    """One thing that is kept, or being made."""

    made: asyncio.Future[Any]
    close: Callable[[Any], Awaitable[object]]
    callers: int = 0
    """How many wait for it to be made."""

    @property
    def failed(self) -> bool:
        """Whether it could not be made."""
        made = self.made
        return made.done() and (made.cancelled() or made.exception() is not None)

    @property
    def is_wanted_once(self) -> bool:
        """Whether it is still being made, for one caller only."""
        return not self.made.done() and self.callers == 1


class Scope:
    """What tools keep for one session: a worker process, a game, a connection. It ends with it."""

    def __init__(self, session: str) -> None:
        self.session = session
        """The session's id, unique in this process and in files that outlive it."""
        self._kept: dict[str, _Kept] = {}
        self._dropping: set[asyncio.Future[None]] = set()
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
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = _Kept(asyncio.ensure_future(make()), close)
        kept.callers += 1
        try:
            # Shielded: a call that times out must not take away what another call waits for.
            return cast(T, await asyncio.shield(kept.made))
        except BaseException:
            if self._kept.get(key) is kept and (kept.failed or kept.is_wanted_once):
                await self.drop(key)
            raise
        finally:
            kept.callers -= 1

    async def drop(self, key: str) -> None:
        """Close what is kept under `key`, if anything is; raises what closing it raises."""
        kept = self._kept.pop(key, None)
        if kept is not None:
            # Shielded: what is half closed would be lost.
            await asyncio.shield(self._drop(kept))

    async def aclose(self) -> None:
        """Close everything; what fails to close does not keep the rest open.

        Raises the first failure after that. May be called twice.
        """
        self._closed = True
        for key in list(self._kept):
            self._drop(self._kept.pop(key))
        ended = await asyncio.shield(asyncio.gather(*self._dropping, return_exceptions=True))
        failures = [each for each in ended if isinstance(each, BaseException)]
        if failures:
            raise failures[0]

    def _drop(self, kept: _Kept) -> asyncio.Future[None]:
        dropping = asyncio.ensure_future(_close(kept))
        self._dropping.add(dropping)
        dropping.add_done_callback(self._dropping.discard)
        return dropping


async def _close(kept: _Kept) -> None:
    """End the making, if it is under way, and close what was made, if anything was."""
    kept.made.cancel()
    await asyncio.wait([kept.made])
    if not kept.failed:
        await kept.close(kept.made.result())


@dataclass(frozen=True, slots=True)
class CallContext:
    """One call under way."""

    call: ToolCall
    scope: Scope
    conversation: str = ""
    """A digest of what was said before the run, equal when the same request is sent again."""
    report: Callable[[str], None] = field(default=lambda text: None)
    """Tells whoever watches what the tool is doing: one line, shown at once. For the event loop."""
    watch: CallWatch | None = None
    """Whoever traces the call."""
    asker: str = ""
    """A digest of who sent the request, equal for all requests of one sender; empty: not known."""

    @property
    def headers(self) -> Mapping[str, str]:
        """HTTP headers that go with what the tool asks of others: W3C trace context, or none."""
        return {} if self.watch is None else self.watch.headers

    def mark(self, name: str, **facts: Fact) -> None:
        """Note in the call's trace, if there is one, that something happened."""
        if self.watch is not None:
            self.watch.mark(name, facts)


_CURRENT: ContextVar[CallContext] = ContextVar("caesura_call")


def current() -> CallContext:
    """The call that this code serves; raises LookupError outside of one.

    Plain functions that are tools, and threads that `asyncio.to_thread` starts, see it too.
    """
    return _CURRENT.get()


def trace_headers() -> Mapping[str, str]:
    """The headers of the call that this code serves; none outside of one."""
    context = _CURRENT.get(None)
    return {} if context is None else context.headers


def mark(name: str, **facts: Fact) -> None:
    """`CallContext.mark` of the call that this code serves; does nothing outside of one."""
    context = _CURRENT.get(None)
    if context is not None:
        context.mark(name, **facts)


def enter(context: CallContext) -> Token[CallContext]:
    """Make `context` the current one, for the current task; the dispatcher does."""
    return _CURRENT.set(context)


def leave(token: Token[CallContext]) -> None:
    """Undo `enter`."""
    _CURRENT.reset(token)
