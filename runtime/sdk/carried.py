"""Tools and their sources that live on one event loop, as the runs on all loops use them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from caesura.runtime.sdk.background import BackgroundLoop
from caesura.tools import Tool
from caesura.tools.context import CallContext, CallWatch, Fact, calling, enter, leave
from caesura.tools.loops import on_loop, tell
from caesura.tools.result import ToolResult
from caesura.tools.source import ToolSource

T = TypeVar("T")
Where = Callable[[], asyncio.AbstractEventLoop]
"""Returns the event loop on which a tool lives."""


def carried(tool: Tool, where: Where) -> Tool:
    """Return the tool, whose calls run on the event loop that `where` returns."""
    return replace(tool, call=_CarriedCall(tool.call, where))


class CarriedSource:
    """A source of tools that lives on the background loop, or where its user has started it."""

    def __init__(self, source: ToolSource, background: BackgroundLoop) -> None:
        self._source = source
        self._background = background
        self._made: dict[Tool, Tool] = {}

    @property
    def name(self) -> str:
        """The source's name."""
        return self._source.name

    @property
    def prefix(self) -> bool:
        """Whether all its tools are named `name_tool`."""
        return self._source.prefix

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The current tools; one that did not change is the same object as before."""
        self._made = {
            tool: self._made.get(tool) or carried(tool, self._where) for tool in self._source.tools
        }
        return tuple(self._made.values())

    async def start(self) -> list[Tool]:
        """Start the source and return its tools."""
        await on_loop(self._where(), self._source.start)
        return list(self.tools)

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` whenever `tools` change."""
        return self._source.watch(changed)

    async def aclose(self) -> None:
        """Undo one `start`."""
        await on_loop(self._where(), self._source.aclose)

    def _where(self) -> asyncio.AbstractEventLoop:
        """Return the loop of a source that tells one, such as an `MCPServer`, if it runs."""
        loop: asyncio.AbstractEventLoop | None = getattr(self._source, "loop", None)
        return loop if loop is not None and loop.is_running() else self._background.loop


class _CarriedCall:
    """Calls a tool on its event loop, and takes what it reports back to the caller's."""

    def __init__(self, call: Callable[..., Awaitable[Any]], where: Where) -> None:
        self._call = call
        self._where = where

    async def __call__(self, /, **arguments: Any) -> Any:
        here, there = asyncio.get_running_loop(), self._where()
        if here is there:
            return await self._call(**arguments)

        async def call() -> Any:
            context = calling()
            if context is None:
                return await self._call(**arguments)
            token = enter(_reporting_to(here, context))
            try:
                return await self._call(**arguments)
            finally:
                leave(token)

        return await on_loop(there, call)


def _reporting_to(loop: asyncio.AbstractEventLoop, context: CallContext) -> CallContext:
    return replace(
        context,
        report=partial(_tell, loop, context.report),
        expect=partial(_tell, loop, context.expect),
        watch=None if context.watch is None else _WatchAcross(context.watch, loop),
    )


def _tell(loop: asyncio.AbstractEventLoop, what: Callable[[T], None], value: T) -> None:
    tell(loop, what, value)


class _WatchAcross:
    """Observes a call from another event loop."""

    def __init__(self, watch: CallWatch, loop: asyncio.AbstractEventLoop) -> None:
        self._watch = watch
        self._loop = loop

    @property
    def context(self) -> Context:
        """The context variables of the call."""
        return self._watch.context

    @property
    def headers(self) -> Mapping[str, str]:
        """HTTP headers that identify the call."""
        return self._watch.headers

    def mark(self, name: str, facts: Mapping[str, Fact]) -> None:
        """Record an event of the call."""
        tell(self._loop, self._watch.mark, name, facts)

    def ended(self, result: ToolResult | None) -> None:
        """Record the end of the call."""
        tell(self._loop, self._watch.ended, result)
