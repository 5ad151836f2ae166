"""Sources of tools, such as MCP servers, whose tools are known only once they have started."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from caesura.tools.tool import Tool

MAX_NAME_CHARACTERS = 64


@runtime_checkable
class ToolSource(Protocol):
    """A source that must be started before its tools are known, and whose tools may change."""

    @property
    def name(self) -> str:
        """The source's name in messages, and the prefix of tools whose names collide."""

    @property
    def prefix(self) -> bool:
        """Whether all its tools are named `name_tool`, and not only those that collide."""

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The current tools."""

    async def start(self) -> list[Tool]:
        """Start the source and return its tools.

        Each start needs an `aclose`; the last one stops the source. Raises SetupError where the
        source is required and cannot be started.
        """

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` on the event loop whenever `tools` change.

        Returns a function that ends this.
        """

    async def aclose(self) -> None:
        """Undo one `start`."""


class Combined:
    """The caller's own tools and those of sources, each under a unique name.

    Own tools keep their names. A source's tool is named `source_tool` where the source sets
    `prefix` or an earlier tool has its name. Otherwise it keeps its name. `wrap` returns the tool
    to use for each tool, such as one that asks a person first.
    """

    def __init__(
        self,
        own: Iterable[Tool],
        sources: Sequence[ToolSource],
        wrap: Callable[[Tool], Tool] = lambda tool: tool,
    ) -> None:
        self.sources = tuple(sources)
        self.origins: dict[str, str] = {}
        """The source of each tool, by the tool's name; filled by `tools`."""
        self._own = {tool.name: wrap(tool) for tool in own}
        self._wrap = wrap
        self._made: dict[tuple[Tool, str], Tool] = {}

    def tools(self) -> list[Tool]:
        """Return the current tools; a tool that did not change is the same object as before."""
        taken = dict(self._own)
        made: dict[tuple[Tool, str], Tool] = {}
        self.origins = {}
        for source in self.sources:
            for tool in source.tools:
                name = tool.name
                if source.prefix or name in taken:
                    name = free_name(f"{source.name}_{name}", taken)
                # Reuse the object: slots and failures are counted by object.
                made[tool, name] = self._made.get((tool, name)) or self._named(tool, name)
                taken[name] = made[tool, name]
                self.origins[name] = source.name
        self._made = made
        return list(taken.values())

    def _named(self, tool: Tool, name: str) -> Tool:
        return self._wrap(tool if name == tool.name else replace(tool, name=name))


def valid_name(text: str) -> str:
    """Return the nearest valid name: letters, digits, `_` and `-`, at most 64 characters."""
    kept = "".join(
        each if each.isascii() and (each.isalnum() or each in "_-") else "_" for each in text
    )
    if not kept or not (kept[0].isalpha() or kept[0] == "_"):
        kept = f"_{kept}"
    return kept[:MAX_NAME_CHARACTERS]


def free_name(wanted: str, taken: Iterable[str]) -> str:
    """Return a valid name near `wanted` that is not in `taken`."""
    taken, name, number = set(taken), valid_name(wanted), 2
    while name in taken:
        ending = f"_{number}"
        name = valid_name(wanted)[: MAX_NAME_CHARACTERS - len(ending)] + ending
        number += 1
    return name
