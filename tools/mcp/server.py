"""An MCP server as a source of tools: started once, watched, and reconnected when it ends."""

import asyncio
import importlib
import importlib.util
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from caesura.distribution import install
from caesura.tools.artifacts import ArtifactStore
from caesura.tools.closing import AsyncClosing
from caesura.tools.context import current
from caesura.tools.errors import ToolError, Unavailable
from caesura.tools.mcp.settings import ServerSettings
from caesura.tools.result import Output
from caesura.tools.services import SetupError, default_artifacts
from caesura.tools.tool import Tool

if TYPE_CHECKING:
    from mcp.shared.dispatcher import ProgressFnT

    from caesura.tools.mcp.connection import Connection

LOG = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 60.0
SETTLED_SECONDS = 10.0
"""A connection that lasted this long resets the count of failures."""
REFRESH_SECONDS = 0.5
"""Minimum time between two listings, however often the server reports changed tools."""


class MCPServer(AsyncClosing):
    """The tools of one MCP server.

        Agent(tools=[MCPServer("files", command="npx", args=["-y", "some-server", "/tmp"])])

    The keywords are the fields of ServerSettings. In code a server is `required` by default.
    Each `start`, or `async with`, needs an `aclose`; the last one stops the server. Pictures and
    sounds go to `artifacts`. The server belongs to the event loop that started it, until that
    loop is closed.

    Raises SetupError for invalid settings, and where the `mcp` package is missing.
    """

    def __init__(
        self,
        name: str,
        settings: ServerSettings | None = None,
        *,
        artifacts: ArtifactStore | None = None,
        **keywords: Any,
    ) -> None:
        if importlib.util.find_spec("mcp") is None:
            raise SetupError(
                f"the MCP server {name!r} needs mcp, which is not installed: {install('mcp')}"
            )
        if settings is None:
            settings = ServerSettings.read(name, {"required": True, **keywords})
        elif keywords:
            raise TypeError("MCPServer takes either settings or keywords, not both")
        self._name = name
        self.settings = settings.resolved(name)
        self._store = artifacts or ArtifactStore(default_artifacts())
        self._watchers: list[Callable[[], None]] = []
        self._tools: tuple[Tool, ...] = ()
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tried = asyncio.Event()
        self._ready = asyncio.Event()
        self._users = 0
        self.trouble: str | None = None
        """Why there is no connection; None while connected and before the start."""

    @property
    def name(self) -> str:
        """The server's name in messages, and the prefix of tools whose names collide."""
        return self._name

    @property
    def prefix(self) -> bool:
        """Whether all tools are named `name_tool`."""
        return self.settings.prefix

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The current tools; while the server is away, the last known ones."""
        return self._tools

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop on which the server was started; None while it is not."""
        return self._loop

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` whenever `tools` change, until the returned function is called."""
        self._watchers.append(changed)
        return partial(self._watchers.remove, changed)

    async def start(self) -> list[Tool]:
        """Connect and list the tools; concurrent callers share one start.

        A server that does not answer is tried again later, with a warning now. Raises SetupError
        instead where it is `required`, and where it runs in another event loop.
        """
        self._enter()
        self._users += 1
        try:
            if self._ending is not None:
                await asyncio.wait([self._ending])  # it would close the new connection
            if self._task is None:
                # The library's import takes a second, so it runs outside the event loop.
                await asyncio.to_thread(importlib.import_module, "caesura.tools.mcp.connection")
            if self._task is None:
                self._task = asyncio.create_task(self._serve(), name=f"mcp {self._name}")
            await self._tried.wait()
            if self.trouble is not None and self.settings.required:
                raise SetupError(f"the MCP server {self._name!r} does not start: {self.trouble}")
        except BaseException:
            await asyncio.shield(self.aclose())
            raise
        return list(self._tools)

    async def aclose(self) -> None:
        """Undo one `start`; the last one stops the server and every process that it started."""
        self._users = max(0, self._users - 1)
        if self._users or self._task is None:
            return
        task, self._task = self._task, None
        self._ending = task
        self._tried.clear()
        task.cancel()
        await asyncio.wait([task])
        if not self._users:
            self.trouble, self._loop = "it was closed", None

    async def __aenter__(self) -> Self:
        """Start the server."""
        await self.start()
        return self

    def _enter(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is None or self._loop.is_closed():
            # The connection of a closed loop has ended with it.
            self._task = self._ending = self._connection = None
            self._tried, self._ready = asyncio.Event(), asyncio.Event()
            self._users, self._loop = 0, loop
        elif self._loop is not loop:
            raise SetupError(
                f"the MCP server {self._name!r} runs in another event loop: close it there first"
            )

    async def _serve(self) -> None:
        """Keep a connection and replace it when it ends, all in this one task."""
        failures, loop = 0, asyncio.get_running_loop()
        while True:
            began, at_once = loop.time(), False
            try:
                self.trouble, at_once = await self._connected()
            except SetupError as error:
                self.trouble = str(error)
                self._give_up()
                return
            except Exception as error:
                self.trouble = _reason(error, self.settings)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                self.trouble = "the connection broke"  # a cancellation that escaped the library
            finally:
                self._connection = None
                self._ready.clear()
            failures = 1 if loop.time() - began > SETTLED_SECONDS else failures + 1
            is_first, required = not self._tried.is_set(), self.settings.required
            if failures > self.settings.restarts or (is_first and required):
                self._give_up()
                return
            self._tried.set()
            pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** (failures - 1))
            if at_once and failures == 1:
                pause = 0
            when = f"in {pause:g} s" if pause else "at once"
            LOG.warning("MCP server %r: %s; trying again %s", self._name, self.trouble, when)
            await asyncio.sleep(pause)

    def _give_up(self) -> None:
        if self._tried.is_set() or not self.settings.required:  # otherwise `start` reports it
            LOG.warning("MCP server %r: %s; it is not started again", self._name, self.trouble)
        self._tried.set()

    async def _connected(self) -> tuple[str, bool]:
        """Connect, stay connected, and return why the connection ended.

        Also return whether a new connection is worth trying at once, since the server lives.
        """
        from mcp import MCPError

        from caesura.tools.mcp.connection import connect

        async with connect(self._name, self.settings) as connection:
            async with asyncio.timeout(self.settings.start_seconds):
                await self._list(connection)
            self._connection, self.trouble = connection, None
            self._tried.set()
            self._ready.set()
            try:
                while await _first(connection.ended, connection.changed) is connection.changed:
                    await asyncio.sleep(REFRESH_SECONDS)
                    async with asyncio.timeout(self.settings.start_seconds):
                        await self._list(connection)
            except MCPError:
                if not connection.ended.is_set():
                    raise
            return f"the connection ended, {connection.why()}", connection.forgotten

    async def _list(self, connection: "Connection") -> None:
        from caesura.tools.mcp.listing import made

        listed = await connection.list_tools()
        # Checking the schemas of a long list takes seconds, so it runs in a thread.
        tools = await asyncio.to_thread(
            lambda: tuple(made(self._name, self.settings, listed, self._tools, self._call))
        )
        if tools != self._tools:
            self._tools = tools
            for changed in list(self._watchers):
                changed()

    async def _call(self, tool: str, arguments: dict[str, Any]) -> Output:
        from caesura.tools.mcp.connection import Forgotten, Lost

        connection = self._usable()
        try:
            try:
                return await connection.call(tool, arguments, _progress(), self._store)
            except Forgotten:  # nothing ran, so the call is made in a new session, once
                await self._replaced(connection)
                return await self._usable().call(tool, arguments, _progress(), self._store)
        except Lost as error:
            raise ToolError(
                f"the connection to the MCP server {self._name!r} was lost during the call: {error}"
            ) from None

    def _usable(self) -> "Connection":
        connection = self._connection
        if connection is None or connection.ended.is_set():
            why = self.trouble or "the connection has just ended"
            raise Unavailable(f"the MCP server {self._name!r} is not connected: {why}")
        return connection

    async def _replaced(self, connection: "Connection") -> None:
        """Wait until there is another connection, for as long as a start may take."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.start_seconds):
                if self._connection is connection:
                    self._ready.clear()
                await self._ready.wait()


def _progress() -> "ProgressFnT":
    """Return a callback that reports the current call's progress."""
    try:
        report = current().report
    except LookupError:
        report = None

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        if report is not None:
            part = f"{progress:g} of {total:g}" if total else f"{progress:g}"
            report(" ".join(f"{part} {message or ''}".split())[:200])

    return tell


async def _first(*events: asyncio.Event) -> asyncio.Event:
    """Wait until one event is set, and return the first that is."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()
    return next(event for event in events if event.is_set())


def _reason(error: BaseException, settings: ServerSettings) -> str:
    """Return why there is no connection, in one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return f"no answer within {settings.start_seconds:g} seconds"
    return " ".join((str(error).strip() or type(error).__name__).split())[:500]
