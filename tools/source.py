"""Where tools come from that are not known before something is started, such as an MCP server."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from caesura.tools.tool import Tool

MAX_NAME_CHARACTERS = 64


@runtime_checkable
class ToolSource(Protocol):
    """Something that has to be started before its tools are known, and whose tools may change."""

    @property
    def name(self) -> str:
        """What it is called in messages, and before its tools' names where those collide."""

    @property
    def prefix(self) -> bool:
        """Whether all its tools are called `name_tool`, and not only those that collide."""

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools as they are now."""

    async def start(self) -> list[Tool]:
        """Start it and return its tools. Each start needs an `aclose`; the last one ends it.

        Raises SetupError where it cannot be started and somebody said that it must.
        """

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Have `changed` called, on the event loop, whenever `tools` are not what they were.

        It is not called any more once what this returns was.
        """

    async def aclose(self) -> None:
        """Undo one `start`."""


class Combined:
    """Tools of one's own and those of sources, under names that are each there once.

    Own tools keep their names. So does a source's tool, unless the name is taken by one that
    comes before it or the source says `prefix`: then it is `source_tool`. `wrap` makes of each
    tool the one that is used, such as one that asks a person first.
    """

    def __init__(
        self,
        own: Iterable[Tool],
        sources: Sequence[ToolSource],
        wrap: Callable[[Tool], Tool] = lambda tool: tool,
    ) -> None:
        self.sources = tuple(sources)
        self.origins: dict[str, str] = {}
        """Which source a tool is from, by the tools' names; filled by `tools`."""
        self._own = {tool.name: wrap(tool) for tool in own}
        self._wrap = wrap
        self._made: dict[tuple[Tool, str], Tool] = {}

    def tools(self) -> list[Tool]:
        """The tools as they are now; one that did not change is the same object as before."""
        taken = dict(self._own)
        made: dict[tuple[Tool, str], Tool] = {}
        self.origins = {}
        for source in self.sources:
            for tool in source.tools:
                name = tool.name
                if source.prefix or name in taken:
                    name = free_name(f"{source.name}_{name}", taken)
                # The same object as before: slots and failures are counted by object.
                made[tool, name] = self._made.get((tool, name)) or self._named(tool, name)
                taken[name] = made[tool, name]
                self.origins[name] = source.name
        self._made = made
        return list(taken.values())

    def _named(self, tool: Tool, name: str) -> Tool:
        return self._wrap(tool if name == tool.name else replace(tool, name=name))


def valid_name(text: str) -> str:
    """The nearest name that a tool may have: letters, digits, `_` and `-`, at most 64."""
    kept = "".join(
        each if each.isascii() and (each.isalnum() or each in "_-") else "_" for each in text
    )
    if not kept or not (kept[0].isalpha() or kept[0] == "_"):
        kept = f"_{kept}"
    return kept[:MAX_NAME_CHARACTERS]


def free_name(wanted: str, taken: Iterable[str]) -> str:
    """A valid name near `wanted` that is not `taken`."""
    taken, name, number = set(taken), valid_name(wanted), 2
    while name in taken:
        ending = f"_{number}"
        name = valid_name(wanted)[: MAX_NAME_CHARACTERS - len(ending)] + ending
        number += 1
    return name
