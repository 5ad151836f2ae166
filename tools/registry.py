"""The tools that a session may use, by name."""

import difflib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from caesura.tools.limits import Breakers, CallStats, Slots
from caesura.tools.tool import Tool

TOOL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")


class Registry:
    """Tools by name, in the order in which they were added.

    `limits` holds the tools' concurrency slots, `breakers` their circuit breakers, and `observed`
    the statistics of their calls. All dispatchers over one registry, or over a selection from it,
    share them.
    """

    def __init__(self, tools: Iterable[Tool] = (), *, shared: "Registry | None" = None) -> None:
        """Hold `tools`, sharing limits, breakers and statistics with the registry `shared`.

        Raises what `add` raises.
        """
        self.limits: Slots = Slots() if shared is None else shared.limits
        self.breakers: Breakers = Breakers() if shared is None else shared.breakers
        self.observed: defaultdict[str, CallStats] = (
            defaultdict(CallStats) if shared is None else shared.observed
        )
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            self.add(tool)

    def add(self, tool: Tool) -> Tool:
        """Add a tool and return it.

        Raises ValueError for a name that is taken or malformed, TypeError for another type.
        """
        if not isinstance(tool, Tool):
            raise TypeError(f"{tool!r} is not a Tool: decorate the function with @tool")
        if not TOOL_NAME.fullmatch(tool.name):
            raise ValueError(
                f"invalid tool name {tool.name!r}: use 1 to 64 letters, digits, '_' and '-', "
                "starting with a letter or '_'"
            )
        if tool.name in self._tools:
            raise ValueError(f"the tool name {tool.name!r} is taken; give the new tool another")
        self._tools[tool.name] = tool
        return tool

    def hold(self, tools: Iterable[Tool]) -> None:
        """Replace all tools by these; earlier selections stay as they are.

        Raises what `add` raises, and then keeps the tools that it held.
        """
        self._tools = Registry(tools, shared=self)._tools

    def get(self, name: str) -> Tool | None:
        """Return the tool of that name, or None."""
        return self._tools.get(name)

    @property
    def names(self) -> tuple[str, ...]:
        """The tools' names, in order."""
        return tuple(self._tools)

    def specs(self) -> list[dict[str, Any]]:
        """Return the tools in the form of OpenAI's chat API, in order."""
        return [tool.spec() for tool in self]

    def select(self, names: Iterable[str]) -> "Registry":
        """Return a registry of these tools in this order, sharing limits and statistics.

        Raises ValueError for an unknown name, with the nearest and all known ones, and for a name
        given twice.
        """
        selection = Registry(shared=self)
        for name in names:
            if name not in self._tools:
                raise ValueError(self.unknown(name))
            selection.add(self._tools[name])
        return selection

    def unknown(self, name: str) -> str:
        """Return the error text for an unknown name: the nearest name, and all known ones."""
        near = difflib.get_close_matches(name[:64], self._tools, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        known = f"known tools: {', '.join(self._tools)}" if self._tools else "there are no tools"
        return f"unknown tool {name[:64]!r}; {hint}{known}"

    def __iter__(self) -> Iterator[Tool]:
        """Yield the tools, in order."""
        return iter(self._tools.values())

    def __len__(self) -> int:
        """Return the number of tools."""
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        """Return whether a tool has that name."""
        return name in self._tools
