"""The agents of a configuration, on an engine: for a server, for a terminal, for each other."""

from collections.abc import Iterator

from caesura.runtime.engine import Engine
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.run.limits import Limits, configured_limits
from caesura.runtime.run.served_agent import ServedAgent
from caesura.runtime.sdk.agent import Agent
from caesura.scheduler.messages import Sampling
from caesura.tools.config.agents import AgentSettings
from caesura.tools.config.caesura_toml import Config
from caesura.tools.config.toolset import Toolset
from caesura.tools.registry import Registry
from caesura.tools.services import SetupError
from caesura.tools.tool import Tool


class ConfiguredAgents:
    """The agents of a configuration, with the tools of a toolset that has started.

    Raises `SetupError` for a tool that cannot be set up, and for an MCP server that is disabled.
    """

    def __init__(
        self,
        config: Config,
        toolset: Toolset,
        engine: Engine,
        recorder: Recorder | None = None,
        only: str | None = None,
    ) -> None:
        """Make the tools of all agents, or of `only` one and those that it calls."""
        self._config = config
        self._toolset = toolset
        self._engine = engine
        self._recorder = recorder
        self._tools: dict[str, Tool] = {}
        """The tools that are agents, by name."""
        for name in config.agents if only is None else (only, *self._below(only)):
            for each in config.agents[name].tools:
                self._check(name, each)

    def served(self) -> dict[str, ServedAgent]:
        """Return the agents for a server."""
        return {name: self._served(name, each) for name, each in self._config.agents.items()}

    def agent(self, name: str) -> Agent[str]:
        """Return an agent for this process; the caller closes it.

        Raises `SetupError` for one with an adapter.
        """
        settings = self._config.agents[name]
        if settings.adapter is not None:
            raise SetupError(
                f"[agents.{name}]: the adapter {settings.adapter!r} is of a server: ask"
                " `caesura serve` for this agent"
            )
        return Agent(
            self._engine,
            self._registry(name),
            name=name,
            instructions=settings.instructions,
            sampling=_sampling(settings),
            limits=self._limits(settings),
            recorder=self._recorder,
        )

    def _served(self, name: str, settings: AgentSettings) -> ServedAgent:
        return ServedAgent(
            name=name,
            description=settings.description,
            instructions=settings.instructions,
            tools=lambda: self._registry(name),
            sampling=_sampling(settings),
            limits=self._limits(settings),
            adapter=settings.adapter,
        )

    def _below(self, name: str) -> Iterator[str]:
        """Yield the agents that an agent calls."""
        for each in self._config.agents[name].tools:
            if each in self._config.agents:
                yield each
                yield from self._below(each)

    def _check(self, name: str, used: str) -> None:
        if used in self._toolset.names:
            self._toolset.tool(used)
        elif used in self._config.agents:
            self._tools[used] = self._as_tool(used)
        elif used not in {source.name for source in self._toolset.sources}:
            raise SetupError(
                f"[agents.{name}]: tools: the MCP server {used!r} is disabled: enable it, or take"
                " it out"
            )

    def _registry(self, name: str) -> Registry:
        """Return an agent's present tools; those of MCP servers may change."""
        found: dict[str, Tool] = {}
        for each in self._config.agents[name].tools:
            if each in self._toolset.names:
                tools = [self._toolset.tool(each)]
            elif each in self._tools:
                tools = [self._tools[each]]
            else:
                tools = self._toolset.of_source(each)
            for tool in tools:
                found.setdefault(tool.name, tool)
        return Registry(found.values(), shared=self._toolset.registry)

    def _as_tool(self, name: str) -> Tool:
        settings = self._config.agents[name]

        async def work(task: str) -> str:
            async with self.agent(name) as agent:
                return str(await agent.as_tool(name, settings.about).call(task=task))

        like = self.agent(name).as_tool(name, settings.about)
        return Tool.from_schema(
            name, like.description, like.parameters, work, timeout_seconds=like.timeout_seconds
        )

    def _limits(self, settings: AgentSettings) -> Limits:
        limits = settings.limits
        given = {name: getattr(limits, name) for name in limits.model_fields_set}
        return configured_limits(self._config.limits.model_copy(update=given))


def _sampling(settings: AgentSettings) -> Sampling:
    return Sampling(**settings.sampling.model_dump(exclude_none=True))
