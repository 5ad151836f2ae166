"""Handoffs: an agent passes its conversation to another one, which goes on with it."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from caesura.runtime.engine import Engine
from caesura.runtime.errors import UsageError
from caesura.runtime.events import ToolReturned
from caesura.runtime.sdk.instructions import Instructions
from caesura.tools import Registry, Tool
from caesura.tools.result import ToolCall

if TYPE_CHECKING:
    from caesura.runtime.sdk.settings import SessionSettings

_NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class Role:
    """What an agent brings to a session: its model, tools, settings and instructions."""

    engine: Callable[[], Awaitable[Engine]]
    registry: Registry
    settings: "SessionSettings"
    instructions: Instructions
    name: str | None


Roles = Mapping[str, Callable[[], Role]]
"""The agents that a conversation may be passed to, by the names of the tools that do so."""


class Handing:
    """Sees which call of a run passes the conversation on. The first one counts."""

    def __init__(self, roles: Roles) -> None:
        self._roles = roles
        self.call: ToolCall | None = None
        """The call that passed it on."""

    def note(self, returned: ToolReturned) -> None:
        """Take the result of a call."""
        passes_on = returned.call.name in self._roles and returned.result.error is None
        if passes_on and self.call is None:
            self.call = returned.call

    def role(self) -> Role:
        """Return who goes on."""
        if self.call is None:
            raise LookupError("nobody was given the conversation")
        return self._roles[self.call.name]()


def handoff_tool(name: str | None, instructions: Instructions) -> Tool:
    """Return the tool by which a model passes the conversation to the agent of that name.

    Raises `UsageError` without a name.
    """
    if not name:
        raise UsageError(f"an agent of handoffs needs a name, got {name!r}: write Agent(name=...)")

    async def transfer() -> str:
        return f"{name} goes on with the conversation."

    told = f"Pass the conversation to {name}, which goes on with it."
    if instructions.text:
        told += f" Its instructions: {instructions.text}"
    slug = re.sub(r"[^a-zA-Z0-9_-]+", "_", name)[:50]
    return Tool.from_schema(f"transfer_to_{slug}", told, _NOTHING, transfer, safe_to_repeat=True)


def with_tools(registry: Registry, tools: Iterable[Tool]) -> None:
    """Add those of the tools that a registry lacks."""
    for tool in tools:
        if registry.get(tool.name) is not tool:
            registry.add(tool)
