"""Conversion of a server's list of tools into Tools."""

import copy
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from caesura.tools.mcp.patterns import without_lost_references, without_patterns
from caesura.tools.mcp.settings import ServerSettings
from caesura.tools.result import Output
from caesura.tools.source import free_name
from caesura.tools.tool import Tool

if TYPE_CHECKING:
    from mcp_types import Tool as Listed

LOG = logging.getLogger(__name__)

MAX_DESCRIPTION_CHARACTERS = 4000
MAX_SCHEMA_CHARACTERS = 64_000
MAX_LIST_CHARACTERS = 1_000_000
"""Limit for all schemas of a list: checking more would take seconds of processor time."""

Call = Callable[[str, dict[str, Any]], Awaitable[Output]]


def made(
    server: str,
    settings: ServerSettings,
    listed: Iterable["Listed"],
    before: Sequence[Tool],
    call: Call,
) -> Iterator[Tool]:
    """Yield the tools that the settings allow, reusing the object of each unchanged tool.

    An unusable tool is left out, with a warning that names it. Blocking.
    """
    known = {tool.name: tool for tool in before}
    taken: set[str] = set()
    characters = 0
    for each in listed:
        if not settings.uses(each.name):
            continue
        name = free_name(each.name, taken)
        try:
            size = len(json.dumps(each.input_schema))
            if size > MAX_SCHEMA_CHARACTERS:
                raise ValueError(f"its schema has more than {MAX_SCHEMA_CHARACTERS} characters")
            if characters + size > MAX_LIST_CHARACTERS:
                raise ValueError(f"all schemas have more than {MAX_LIST_CHARACTERS} characters")
            tool = _tool(name, settings, each, known.get(name), call)
        except (ValueError, TypeError, RecursionError) as error:
            LOG.warning("MCP server %r: skipped tool %r: %s", server, each.name[:64], _line(error))
            continue
        taken.add(name)
        characters += size
        yield tool


def _tool(
    name: str, settings: ServerSettings, listed: "Listed", old: Tool | None, call: Call
) -> Tool:
    schema: dict[str, Any] = copy.deepcopy(dict(listed.input_schema))
    without_patterns(schema)
    lost = without_lost_references(schema)
    description = (listed.description or listed.title or "")[:MAX_DESCRIPTION_CHARACTERS]
    known = (description, schema, _is_safe(listed))
    if old is not None and (old.description, old.parameters, old.safe_to_repeat) == known:
        return old
    if lost:
        LOG.warning(
            "tool %r: its schema lacks %s, to which it refers: any value is sent there",
            name,
            lost[0],
        )
    remote = listed.name

    async def run(**arguments: Any) -> Output:
        return await call(remote, arguments)

    return Tool.from_schema(
        name,
        description,
        schema,
        run,
        timeout_seconds=settings.timeout_seconds,
        concurrency=settings.concurrency,
        max_result_tokens=settings.max_result_tokens,
        breaker=settings.breaker,
        approval=settings.asks(listed.name),
        safe_to_repeat=_is_safe(listed),
    )


def _is_safe(listed: "Listed") -> bool:
    """Return whether the server says that a call can be repeated without a further effect."""
    hints = listed.annotations
    return hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)


def _line(error: Exception) -> str:
    return " ".join((str(error) or type(error).__name__).split())[:300]
