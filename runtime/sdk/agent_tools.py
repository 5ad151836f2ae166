"""The tools of one agent: its functions, built-in tools, and sources that start on demand."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from caesura.runtime.errors import UsageError
from caesura.runtime.run.limits import Limits, configured_limits
from caesura.runtime.sdk.background import BACKGROUND, BackgroundLoop
from caesura.runtime.sdk.carried import CarriedSource, carried
from caesura.tools import Registry, Tool, tool
from caesura.tools.config.caesura_toml import Config
from caesura.tools.config.toolset import BUILTINS
from caesura.tools.people import Callback, People, people_of
from caesura.tools.people.asking import ApprovedCall
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
        background: BackgroundLoop = BACKGROUND,
    ) -> None:
        self._background = background
        self._own: list[Tool] = []
        self._sources: list[ToolSource] = []
        self._starting: asyncio.Task[Registry] | None = None
        self._waiting = 0
        """How many runs wait for the start."""
        try:
            read = Config.load(Path(config)) if isinstance(config, str | Path) else config
            self.toolset = (read or Config()).toolset()
            if given is None and read is not None:
                self._own += map(self._at_home, self.toolset.enabled_tools())
                self._sources += map(self._carried_source, self.toolset.sources)
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
        """Start the sources once, on the background loop, and add their tools to the selection.

        Raises `UsageError` if a required source fails to start.
        """
        if not self._sources:
            return
        try:
            selection.hold(await self._background.carry(self._started))
        except SetupError as error:
            raise UsageError(str(error)) from None

    def asked(self, on_question: Callback, on_approval: Callback) -> People:
        """Return who answers questions and approves calls: these, on the background loop."""
        people = people_of(self.toolset.services)
        people.where = lambda: self._background.loop
        people.on_question, people.on_approval = on_question, on_approval
        return people

    def refuse_approvals(self, registry: Registry) -> None:
        """Raise `UsageError` for tools whose calls the agent's people would have to approve."""
        nobody = people_of(self.toolset.services)
        asking = [
            tool.name
            for tool in registry
            if isinstance(tool.call, ApprovedCall) and tool.call.people is nobody
        ]
        if asking:
            raise UsageError(
                f"calls of {', '.join(asking)} need a person's approval, and nobody is asked: give"
                " Agent(on_approval=...) a function that decides, use agent.session() with"
                " session.approve(id) and session.deny(id), or take the approval off the tool"
            )

    async def aclose(self) -> None:
        """Close the tools and stop the sources. The sources start again at the next run."""
        if self._background.is_running:
            await self._background.carry(self._close)
        else:
            await self._close()

    async def _started(self) -> Registry:
        """Return all tools, on the background loop."""
        starting = self._starting
        if starting is None or _is_lost(starting):
            starting = asyncio.create_task(self.toolset.hold(self._own, self._sources))
            self._starting, self._waiting = starting, 0
        self._waiting += 1
        try:
            # Shielded: several sessions may wait for the same start.
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            if self._waiting == 1 and self._starting is starting:
                starting.cancel()  # nobody else waits
            raise
        finally:
            if self._starting is starting:
                self._waiting -= 1

    async def _close(self) -> None:
        starting, self._starting = self._starting, None
        if starting is not None and not starting.done():
            starting.cancel()
            await asyncio.wait([starting])
        await self.toolset.aclose()

    def _at_home(self, tool: Tool) -> Tool:
        """Return a tool of the configuration, which runs on the background loop if it is ours."""
        return carried(tool, lambda: self._background.loop) if tool.name in BUILTINS else tool

    def _carried_source(self, source: ToolSource) -> ToolSource:
        return CarriedSource(source, self._background)

    def _add(self, given: OwnTool) -> None:
        if isinstance(given, str):
            self._add_named(given)
        elif isinstance(given, ToolSource):
            self._sources.append(self._carried_source(given))
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
            self._own.append(self._at_home(self.toolset.make(name)))
        elif name in servers:
            self._sources.append(self._carried_source(servers[name]))
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
    """Return whether a start failed, or was given up."""
    if starting.cancelling():
        return True
    return starting.done() and (starting.cancelled() or starting.exception() is not None)
