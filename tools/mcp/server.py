"""An MCP server as a source of tools: started once, watched, connected anew when it ends."""

import asyncio
import importlib
import importlib.util
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from caesura.tools.artifacts import ArtifactStore
from caesura.tools.closing import AsyncClosing
from caesura.tools.config.paths import default_artifacts
from caesura.tools.context import current
from caesura.tools.errors import ToolError, Unavailable
from caesura.tools.mcp.listing import made
from caesura.tools.mcp.settings import ServerSettings
from caesura.tools.result import Output
from caesura.tools.services import SetupError
from caesura.tools.tool import Tool

if TYPE_CHECKING:
    from mcp.shared.dispatcher import ProgressFnT

    from caesura.tools.mcp.connection import Connection

LOG = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 60.0
SETTLED_SECONDS = 10.0
"""A connection that lasted so long begins a new count of failures."""
REFRESH_SECONDS = 0.5
"""Between two listings, however often the server says that its tools have changed."""


class MCPServer(AsyncClosing):
    """The tools of one MCP server.

        Agent(tools=[MCPServer("files", command="npx", args=["-y", "some-server", "/tmp"])])

    The keywords are the fields of ServerSettings; in code a server is `required` unless one says
    otherwise. Each `start`, or `async with`, needs its `aclose`; the last one ends the server.
    `artifacts` is where its pictures and sounds go. Belongs to the event loop that it is started
    in, until that is closed.

    Raises SetupError for settings that make no sense, and where the `mcp` package is missing.
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
                f"the MCP server {name!r} needs mcp, which is not installed: "
                "pip install 'caesura[mcp]'"
            )
        if settings is None:
            settings = ServerSettings.read(name, {"required": True, **keywords})
        elif keywords:
            raise TypeError("either settings or keywords")
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
        self._users = 0
        self.trouble: str | None = None
        """Why there is no connection; None while there is one, and before the start."""

    @property
    def name(self) -> str:
        """What it is called in messages, and before its tools' names where those collide."""
        return self._name

    @property
    def prefix(self) -> bool:
        """Whether all its tools are called `name_tool`."""
        return self.settings.prefix

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools as they are now; while the server is away, as they were."""
        return self._tools

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Have `changed` called whenever `tools` are not what they were, until this is called."""
        self._watchers.append(changed)
        return partial(self._watchers.remove, changed)

    async def start(self) -> list[Tool]:
        """Connect and list the tools; done once, whoever asks at the same time.

        A server that does not answer is tried again later, with a warning now. Raises SetupError
        instead where it is `required`, and where it runs in another event loop.
        """
        self._enter()
        self._users += 1
        try:
            if self._ending is not None:
                await asyncio.wait([self._ending])  # it would take the new connection away
            if self._task is None:
                # The library takes a second to import: not on the event loop.
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
        """Undo one `start`; the last one ends the server and all that it has started."""
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
        """Start it."""
        await self.start()
        return self

    def _enter(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is None or self._loop.is_closed():
            # The connection of a closed loop has ended with it.
            self._task = self._ending = self._connection = None
            self._tried, self._users, self._loop = asyncio.Event(), 0, loop
        elif self._loop is not loop:
            raise SetupError(
                f"the MCP server {self._name!r} runs in another event loop: close it there first"
            )

    async def _serve(self) -> None:
        """Keep a connection, and make a new one when it ends; all of it in this task."""
        failures, loop = 0, asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                self.trouble = await self._connected()
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
                self.trouble = "the connection broke"  # a cancellation that got out of the library
            finally:
                self._connection = None
            failures = 1 if loop.time() - began > SETTLED_SECONDS else failures + 1
            is_first, required = not self._tried.is_set(), self.settings.required
            if failures > self.settings.restarts or (is_first and required):
                self._give_up()
                return
            self._tried.set()
            pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** (failures - 1))
            LOG.warning(
                "the MCP server %r: %s; trying again in %g s", self._name, self.trouble, pause
            )
            await asyncio.sleep(pause)

    def _give_up(self) -> None:
        if self._tried.is_set() or not self.settings.required:  # else `start` tells it
            LOG.warning("the MCP server %r: %s; it is not started again", self._name, self.trouble)
        self._tried.set()

    async def _connected(self) -> str:
        """Connect and stay so; returns why it ended."""
        from mcp import MCPError

        from caesura.tools.mcp.connection import connect

        async with connect(self._name, self.settings) as connection:
            async with asyncio.timeout(self.settings.start_seconds):
                await self._list(connection)
            self._connection, self.trouble = connection, None
            self._tried.set()
            try:
                while await _first(connection.ended, connection.changed) is connection.changed:
                    await asyncio.sleep(REFRESH_SECONDS)
                    async with asyncio.timeout(self.settings.start_seconds):
                        await self._list(connection)
            except MCPError:
                if not connection.ended.is_set():
                    raise
            return f"it has ended, {connection.why()}"

    async def _list(self, connection: "Connection") -> None:
        listed = await connection.list_tools()
        # In a thread: checking the schemas of a long list takes seconds.
        tools = await asyncio.to_thread(
            lambda: tuple(made(self._name, self.settings, listed, self._tools, self._call))
        )
        if tools != self._tools:
            self._tools = tools
            for changed in list(self._watchers):
                changed()

    async def _call(self, tool: str, arguments: dict[str, Any]) -> Output:
        from caesura.tools.mcp.connection import Lost

        connection = self._connection
        if connection is None or connection.ended.is_set():
            why = self.trouble or "it has just ended"
            raise Unavailable(f"the MCP server {self._name!r} is away: {why}")
        try:
            return await connection.call(tool, arguments, _progress(), self._store)
        except Lost as error:
            raise ToolError(
                f"the MCP server {self._name!r} was lost in mid call: {error}"
            ) from None


def _progress() -> "ProgressFnT":
    """Tell whoever watches the current call how far it is."""
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
    """Wait until one is set; the first of those that are."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()
    return next(event for event in events if event.is_set())


def _reason(error: BaseException, settings: ServerSettings) -> str:
    """Why there is no connection, in one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return f"no answer within {settings.start_seconds:g} seconds"
    return " ".join((str(error).strip() or type(error).__name__).split())[:500]
