"""Agents that `caesura.toml` describes: `[agents.NAME]`."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from caesura.tools.registry import TOOL_NAME
from caesura.tools.services import SetupError, settings_sentence, unknown_key


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class PriceSettings(_Section):
    """`[limits.prices]`: what a million tokens cost, in any currency."""

    prompt: float = Field(ge=0, description="of the context, as far as a turn computes it")
    completion: float = Field(ge=0, description="decoded ones")
    cached: float | None = Field(
        default=None, ge=0, description="of the context, where it is cached; default: as the others"
    )


class RunLimits(_Section):
    """Bounds of a run; a field that is left out keeps the default."""

    max_turns: int | None = Field(default=None, ge=1, description="model turns")
    max_tokens: int | None = Field(default=None, ge=1, description="completion tokens")
    max_seconds: float | None = Field(default=None, gt=0, description="wall time, tools included")
    max_requests: int | None = Field(
        default=None, ge=1, description="model turns, with those of sub-agents"
    )
    max_calls: int | None = Field(default=None, ge=1, description="calls of tools")
    max_cost: float | None = Field(default=None, gt=0, description="of all tokens, by the prices")
    max_wait_seconds: float | None = Field(
        default=None, ge=0, description="at a turn's end, for calls in the background"
    )
    prices: PriceSettings | None = None


class SamplingSettings(_Section):
    """`[agents.NAME.sampling]`: how its tokens are sampled where a request does not say it."""

    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1)
    min_p: float | None = Field(default=None, ge=0, le=1)
    seed: int | None = None
    stop: tuple[str, ...] = ()
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    repetition_penalty: float | None = Field(default=None, gt=0, le=2)


_OF_PYTHON = frozenset(("instructions", "instructions_file", "limits", "sampling"))
"""What an `Agent` of Python brings itself."""


class AgentSettings(_Section):
    """`[agents.NAME]`: an agent, which clients name as their model."""

    agent: str | None = Field(None, description="an `Agent` of Python, as module:attribute")
    description: str = Field("", description="what it is for; other agents choose by it")
    instructions: str | None = Field(None, description="what the model is told first")
    instructions_file: Path | None = Field(None, description="a text file with them")
    tools: tuple[str, ...] = Field((), description="tools, functions, MCP servers and agents")
    limits: RunLimits = RunLimits()
    sampling: SamplingSettings = SamplingSettings()
    adapter: str | None = Field(None, description="a LoRA adapter of the served model")

    @property
    def about(self) -> str:
        """What another agent reads of it."""
        return self.description or self.instructions or ""


def read_agents(
    given: Mapping[str, Any], known: Collection[str], path: Path
) -> dict[str, AgentSettings]:
    """Return the agents of the file at `path`, with the texts of their instructions.

    `known` are the names of tools and MCP servers. Raises `SetupError` for wrong settings, a name
    that is taken, an unknown tool, a file that cannot be read, and agents that call each other in a
    circle.
    """
    agents = {name: _read(name, each, path) for name, each in given.items()}
    for name, agent in agents.items():
        where = f"{path}: [agents.{name}]"
        if not TOOL_NAME.fullmatch(name):
            raise SetupError(
                f"{path}: [agents]: {name!r} is no name of an agent: use 1 to 64 letters, digits,"
                " '_' and '-', starting with a letter or '_'"
            )
        if name in known:
            raise SetupError(f"{where}: a tool is named {name!r} too: rename one of them")
        if agent.agent is not None and (own := agent.model_fields_set & _OF_PYTHON):
            raise SetupError(
                f"{where}: the agent {agent.agent!r} has its own {', '.join(sorted(own))}: set them"
                " in Python, and leave them out here"
            )
        for each in agent.tools:
            if each not in known and each not in agents:
                raise SetupError(f"{where}: tools: {unknown_key(each, [*known, *agents])}")
            if each in agents:
                _check_tool(where, each, agents[each])
        if (circle := _circle(name, agents)) is not None:
            raise SetupError(
                f"{where}: the agents {' -> '.join(circle)} call each other in a circle: take one"
                " out of the tools of another"
            )
    return agents


def needed(name: str, agents: Mapping[str, AgentSettings]) -> list[str]:
    """Return the tools and MCP servers that an agent uses, with those of its own agents."""
    found: dict[str, None] = {}
    for each in agents[name].tools:
        found |= dict.fromkeys(needed(each, agents) if each in agents else [each])
    return list(found)


def _read(name: str, given: Any, path: Path) -> AgentSettings:
    where = f"{path}: [agents.{name}]"
    if not isinstance(given, dict):
        raise SetupError(f"{path}: [agents]: {name!r} must be a table, [agents.{name}]")
    try:
        read = AgentSettings.model_validate(given)
    except ValidationError as error:
        raise SetupError(f"{where}: {settings_sentence(error, AgentSettings)}") from None
    if read.instructions_file is None:
        return read
    if read.instructions is not None:
        raise SetupError(
            f"{where}: instructions and instructions_file {read.instructions_file} exclude each"
            " other: keep one"
        )
    file = path.parent / read.instructions_file.expanduser()
    try:
        text = file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        told = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SetupError(f"{where}: instructions_file {file}: cannot be read: {told}") from None
    return read.model_copy(update={"instructions": text})


def _check_tool(where: str, name: str, agent: AgentSettings) -> None:
    """Raise `SetupError` for an agent that cannot be another one's tool."""
    if not agent.about and agent.agent is None:
        raise SetupError(
            f"{where}: tools: the agent {name!r} has nothing that tells what it is for: give"
            f" [agents.{name}] a description"
        )
    if agent.adapter is not None:
        raise SetupError(
            f"{where}: tools: the agent {name!r} has the adapter {agent.adapter!r}, with which it"
            " answers clients alone: leave one of the two out"
        )


def _circle(name: str, agents: Mapping[str, AgentSettings]) -> list[str] | None:
    """Return the agents by which an agent calls itself, or None."""

    def found(way: list[str]) -> list[str] | None:
        for each in agents[way[-1]].tools:
            if each == name:
                return [*way, each]
            if each in agents and each not in way and (longer := found([*way, each])) is not None:
                return longer
        return None

    return found([name])
