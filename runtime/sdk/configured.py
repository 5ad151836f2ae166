"""The agents of a configuration, on an engine: for a server, for a terminal, for each other."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from caesura.runtime.engine import Engine
from caesura.runtime.errors import InvalidOutput, UsageError
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.run.limits import Limits, configured_limits
from caesura.runtime.run.served_agent import ServedAgent
from caesura.runtime.sdk.agent import Agent, parts_of
from caesura.runtime.sdk.output import OutputForm, Unfit
from caesura.runtime.sdk.settings import AgentParts
from caesura.scheduler.messages import Sampling
from caesura.tools.config.agents import AgentSettings
from caesura.tools.config.caesura_toml import Config
from caesura.tools.config.functions import imported
from caesura.tools.config.toolset import Toolset
from caesura.tools.registry import Registry
from caesura.tools.run_view import Context, misfit
from caesura.tools.services import SetupError
from caesura.tools.source import ToolSource
from caesura.tools.tool import Tool, tool

_TIES = {
    "model": "the model of the server answers, so leave the model or the engine out",
    "config": "this file configures its tools, so leave config out",
    "hooks": "a server asks no hooks, so check arguments within the tools, or give a tool"
    " approval=True",
    "handoffs": "a server's run has one agent, so make the others tools: Agent(tools=[other])",
    "on_question": "people answer at the server, so leave on_question out",
    "on_approval": "people approve calls at the server, so leave on_approval out",
    "tracing": "the server traces its runs, so leave tracing out",
    "recorder": "the server records its runs, so leave recorder out",
    "trajectories": "`caesura serve --trajectories` keeps those of all, so leave trajectories out",
}
"""Why arguments of an `Agent` do not fit one that is served, and what to do."""


def python_agents(config: Config, only: str | None = None) -> dict[str, AgentParts]:
    """Import the agents of Python that a configuration names, or `only` one and those it calls.

    Raises `SetupError` for what cannot be imported, is no `Agent`, or cannot be served.
    """
    names = config.agents if only is None else (only, *_below(config, only))
    return {name: _imported(config, name) for name in names if config.agents[name].agent}


def _imported(config: Config, name: str) -> AgentParts:
    reference = config.agents[name].agent
    assert reference is not None and config.path is not None
    try:
        found = imported(reference, config.path.parent)
        if not isinstance(found, Agent):
            raise SetupError(_no_agent(reference, found))
        parts = parts_of(found)
        for reason in _reasons(parts):
            raise SetupError(f"the agent {reference!r} cannot be served: {reason}")
    except (SetupError, UsageError) as error:
        raise SetupError(f"{config.path}: [agents.{name}]: {error}") from error
    return parts


def _no_agent(reference: str, found: object) -> str:
    told = f"{reference!r} is of type {type(found).__name__}: name an Agent of the module"
    if isinstance(found, Tool) or callable(found):
        told += (
            ", such as helper = Agent(...); for a tool, write [tools.NAME]"
            f' function = "{reference}"'
        )
    return told


def _reasons(parts: AgentParts) -> Iterator[str]:
    """Yield why an agent cannot be served, each with what to do."""
    yield from (f"it has {name}: {why}" for name, why in _TIES.items() if name in parts.ties)
    if parts.form is not None and parts.form.is_function:
        yield "its output is a function, whose result no client would get: give a type"
    for each in parts.tools:
        if isinstance(each, ToolSource):
            yield (
                f"its tools come from {each.name!r}: name the MCP server in [mcpServers], and in"
                " the tools of [agents] beside agent"
            )
    for who, hint in parts.wanted_deps:
        if (kind := misfit(None, hint)) is not None:
            yield (
                f"{who} needs dependencies of type {kind}, and a server gives none: bind them, by"
                " functools.partial or as a method"
            )


def _below(config: Config, name: str) -> Iterator[str]:
    """Yield the agents that an agent calls."""
    for each in config.agents[name].tools:
        if each in config.agents:
            yield each
            yield from _below(config, each)


class ConfiguredAgents:
    """The agents of a configuration, with the tools of a toolset that has started.

    Raises `SetupError` for a tool that cannot be set up, for an MCP server that is disabled, and
    for what `python_agents` refuses.
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
        self._parts = python_agents(config, only)
        self._own = {name: self._made(name, each) for name, each in self._parts.items()}
        """The tools of agents of Python, by the agents' names."""
        for name in config.agents if only is None else (only, *_below(config, only)):
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
        parts, agent = self._parts.get(name), partial(Agent[Any], self._engine)
        given = {"name": name, "limits": self._limits(name), "recorder": self._recorder}
        if parts is None:
            told, sampling = settings.instructions, _sampling(settings)
            return agent(self._registry(name), instructions=told, sampling=sampling, **given)
        return agent(
            self._registry(name),
            instructions=parts.instructions.given,
            output=parts.output,
            output_retries=parts.output_retries,
            sampling=replace(parts.sampling, text=None) if parts.form else parts.sampling,
            **given,
        )

    def _served(self, name: str, settings: AgentSettings) -> ServedAgent:
        parts = self._parts.get(name)
        served = ServedAgent(
            name=name,
            description=settings.description,
            instructions=settings.instructions,
            tools=lambda: self._registry(name),
            sampling=_sampling(settings) if parts is None else parts.sampling,
            limits=self._limits(name),
            adapter=settings.adapter,
        )
        if parts is None:
            return served
        told = parts.instructions
        return replace(
            served,
            instructions=told.fixed,
            instruct=partial(told.told, Context(None)) if callable(told.given) else None,
            check=None if parts.form is None else partial(_check_fit, name, parts.form),
        )

    def _made(self, name: str, parts: AgentParts) -> list[Tool]:
        """Return the tools of an agent of Python: those that it names are the server's own."""
        try:
            return [
                self._toolset.tool(each)
                if isinstance(each, str)
                else self._toolset.ready(each if isinstance(each, Tool) else tool(each))
                for each in parts.tools
                if not isinstance(each, ToolSource)
            ]
        except SetupError as error:
            raise SetupError(f"[agents.{name}]: {error}") from None

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
        found = {each.name: each for each in self._own.get(name, ())}
        for each in self._config.agents[name].tools:
            if each in self._toolset.names:
                tools = [self._toolset.tool(each)]
            elif each in self._tools:
                tools = [self._tools[each]]
            else:
                tools = self._toolset.of_source(each)
            for made in tools:
                found.setdefault(made.name, made)
        return Registry(found.values(), shared=self._toolset.registry)

    def _as_tool(self, name: str) -> Tool:
        settings = self._config.agents[name]

        async def work(task: str) -> str:
            async with self.agent(name) as agent:
                return str(await agent.as_tool(name, settings.about).call(task=task))

        try:
            like = self.agent(name).as_tool(name, settings.about)
        except UsageError:
            raise SetupError(
                f"[agents.{name}]: the agent has nothing that tells other agents what it is for:"
                " give it a description"
            ) from None
        return Tool.from_schema(
            name, like.description, like.parameters, work, timeout_seconds=like.timeout_seconds
        )

    def _limits(self, name: str) -> Limits:
        parts = self._parts.get(name)
        if parts is not None and parts.limits is not None:
            return parts.limits
        limits = self._config.agents[name].limits
        given = {name: getattr(limits, name) for name in limits.model_fields_set}
        return configured_limits(self._config.limits.model_copy(update=given))


async def _check_fit(name: str, form: OutputForm[Any], text: str) -> None:
    """Raise `InvalidOutput` for an answer that does not fit an agent's output type."""
    try:
        await form.read(text)
    except Unfit as error:
        raise InvalidOutput(
            f"the answer of {name!r} does not fit its type: {error}", text
        ) from None


def _sampling(settings: AgentSettings) -> Sampling:
    return Sampling(**settings.sampling.model_dump(exclude_none=True))
