"""An agent as a server offers it: what its name adds to the requests that name it as a model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
    tools: Callable[[], Registry]
    """Returns its tools, which run at the server."""
    sampling: Sampling = field(default_factory=Sampling)
    """What a request leaves out."""
    limits: Limits = field(default_factory=Limits)
    """Bounds of each run."""
    adapter: str | None = None
    """The LoRA adapter with which the model answers."""


Agents = Mapping[str, ServedAgent]
"""The agents of a server by name."""
NO_AGENTS: Agents = MappingProxyType({})
