"""An agent as a server offers it: what its name adds to the requests that name it as a model."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from caesura.runtime.run.limits import Limits
from caesura.scheduler.messages import Sampling
from caesura.tools.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedAgent:
    """What a server knows of one agent."""

    name: str
    description: str = ""
    instructions: str | None = None
    """The model reads them before what a client tells it."""
    instruct: Callable[[], Awaitable[str | None]] | None = None
    """Returns the instructions of one request, where a function makes them."""
    tools: Callable[[], Registry]
    """Returns its tools, which run at the server."""
    sampling: Sampling = field(default_factory=Sampling)
    """What a request leaves out."""
    limits: Limits = field(default_factory=Limits)
    """Bounds of each run."""
    adapter: str | None = None
    """The LoRA adapter with which the model answers."""
    check: Callable[[str], Awaitable[None]] | None = None
    """Raises `InvalidOutput` for an answer that is not of the agent's output type."""


Agents = Mapping[str, ServedAgent]
"""The agents of a server by name."""
NO_AGENTS: Agents = MappingProxyType({})


async def instructed(agents: Agents, name: str | None) -> Agents:
    """Return the agents for a request, in which the named one has its instructions as a text.

    Raises what its function of instructions raises.
    """
    agent = None if name is None else agents.get(name)
    if agent is None or agent.instruct is None:
        return agents
    return {**agents, agent.name: replace(agent, instructions=await agent.instruct())}
