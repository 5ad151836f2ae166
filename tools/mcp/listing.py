"""A server's list of tools, as ours."""

import copy
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from caesura.tools.mcp.patterns import without_patterns
from caesura.tools.mcp.settings import ServerSettings
from caesura.tools.result import Output
from caesura.tools.source import free_name
from caesura.tools.tool import Tool

if TYPE_CHECKING:
    from mcp_types import Tool as Listed

LOG = logging.getLogger(__name__)

MAX_DESCRIPTION_CHARACTERS = 4000
MAX_SCHEMA_CHARACTERS = 64_000

Call = Callable[[str, dict[str, Any]], Awaitable[Output]]


def made(
    server: str,
    settings: ServerSettings,
    listed: Iterable["Listed"],
    before: Sequence[Tool],
    call: Call,
) -> Iterator[Tool]:
    """The tools that the settings let through; one that is as it was `before` is the same object.

    A tool that cannot be used is left out, with a warning that names it.
    """
    known = {tool.name: tool for tool in before}
    taken: set[str] = set()
    for each in listed:
        if not settings.uses(each.name):
            continue
        name = free_name(each.name, taken)
        try:
            tool = _tool(name, settings, each, call)
        except (ValueError, TypeError, RecursionError) as error:
            LOG.warning("the MCP server %r: no tool %r: %s", server, each.name[:64], _line(error))
            continue
        taken.add(name)
        old = known.get(name)
        yield old if old is not None and _same(old, tool) else tool


def _tool(name: str, settings: ServerSettings, listed: "Listed", call: Call) -> Tool:
    schema: dict[str, Any] = copy.deepcopy(dict(listed.input_schema))
    if len(json.dumps(schema)) > MAX_SCHEMA_CHARACTERS:
        raise ValueError(f"its schema has more than {MAX_SCHEMA_CHARACTERS} characters")
    schema.pop("$schema", None)
    without_patterns(schema)
    remote = listed.name

    async def run(**arguments: Any) -> Output:
        return await call(remote, arguments)

    return Tool.from_schema(
        name,
        (listed.description or listed.title or "")[:MAX_DESCRIPTION_CHARACTERS],
        schema,
        run,
        timeout_seconds=settings.timeout_seconds,
        concurrency=settings.concurrency,
        max_result_tokens=settings.max_result_tokens,
        breaker=settings.breaker,
        approval=settings.asks(listed.name),
    )


def _same(one: Tool, other: Tool) -> bool:
    return one.description == other.description and one.parameters == other.parameters


def _line(error: Exception) -> str:
    return " ".join((str(error) or type(error).__name__).split())[:300]
