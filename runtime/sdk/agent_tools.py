"""The tools of one agent: its functions, built-in tools, and sources that start on demand."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from caesura.runtime.errors import UsageError
from caesura.runtime.run.limits import Limits, configured_limits
from caesura.tools import Registry, Tool, tool
from caesura.tools.config.caesura_toml import Config
from caesura.tools.services import SetupError
from caesura.tools.source import ToolSource

LOG = logging.getLogger(__name__)
OwnTool = Tool | ToolSource | Callable[..., Any] | str


class AgentTools:
    """The tools of one agent, and their shared services.

    If `given` is None, the agent has all tools of `config`. Their concurrency is bounded together
    with that of a registry that is `shared`. Raises `UsageError` for an unknown
    name and for a tool that cannot be set up. Raises TypeError or ValueError for an item that
    cannot become a tool.
    """

    def __init__(
        self,
        given: Iterable[OwnTool] | None,
        config: Config | Path | str | None,
        shared: Registry | None = None,
    ) -> None:
        self._own: list[Tool] = []
        self._sources: list[ToolSource] = []
        self._starting: asyncio.Task[Registry] | None = None
        try:
            read = Config.load(Path(config)) if isinstance(config, str | Path) else config
            self.toolset = (read or Config()).toolset()
            if given is None and read is not None:
                self._own += self.toolset.enabled_tools()
                self._sources += self.toolset.sources
            for each in given or ():
                self._add(each)
        except SetupError as error:
            raise UsageError(str(error)) from None
        self.limits = Limits() if read is None else configured_limits(read.limits)
        self.registry = self.toolset.registry if shared is None else Registry(shared=shared)
        """The current tools, including those of the sources that have started."""
        self.registry.hold(map(self.toolset.ready, self._own))

    def selection(self) -> Registry:
        """Return a session's registry with the current tools; `fill` completes it."""
        return Registry(self.registry, shared=self.registry)

    async def fill(self, selection: Registry) -> None:
        """Start the sources once, and add the current tools to the selection.

        Raises `UsageError` if a required source fails to start.
        """
        if not self._sources:
            return
        if self._starting is None or _is_lost(self._starting):
            self._starting = asyncio.create_task(self.toolset.hold(self._own, self._sources))
        try:
            # Shielded: several sessions may wait for the same start.
            selection.hold(await asyncio.shield(self._starting))
        except SetupError as error:
            raise UsageError(str(error)) from None

    async def aclose(self) -> None:
        """Close the tools and stop the sources. The sources start again at the next run."""
        starting, self._starting = self._starting, None
        if starting is not None and not (starting.done() or starting.get_loop().is_closed()):
            starting.cancel()
            await asyncio.wait([starting])
        await self.toolset.aclose()

    def _add(self, given: OwnTool) -> None:
        if isinstance(given, str):
            self._add_named(given)
        elif isinstance(given, ToolSource):
            self._sources.append(given)
        elif isinstance(given, Tool) or callable(given):
            made = given if isinstance(given, Tool) else tool(given)
            if not made.description:
                LOG.warning("the tool %s has no description, by which a model chooses", made.name)
            self._own.append(made)
        else:
            raise UsageError(
                f"{given!r} is no tool: give typed functions, Tools, agents, sources of tools, or"
                " names"
            )

    def _add_named(self, name: str) -> None:
        servers = {source.name: source for source in self.toolset.sources}
        if name in self.toolset.names:
            self._own.append(self.toolset.make(name))
        elif name in servers:
            self._sources.append(servers[name])
        else:
            known = ", ".join((*self.toolset.names, *servers))
            raise UsageError(f"unknown tool {name!r}; choose from: {known}")


def listed(given: Iterable[Any] | None) -> Iterable[Any]:
    """Return the given tools. Raises `UsageError` for one tool that is no list."""
    if given is None:
        return ()
    if isinstance(given, str | Tool | ToolSource) or not isinstance(given, Iterable):
        name = given if isinstance(given, str) else getattr(given, "name", None)
        name = repr(given) if isinstance(given, str) else name or getattr(given, "__name__", "...")
        raise UsageError(f"tools is a list, got {type(given).__name__}: write tools=[{name}]")
    return given


def _is_lost(starting: asyncio.Task[Registry]) -> bool:
    """Return whether a start failed, or its event loop is closed."""
    if starting.get_loop().is_closed():
        return True
    return starting.done() and (starting.cancelled() or starting.exception() is not None)
