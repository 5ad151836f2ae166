"""Tools that clients expect a server to have, and that this one runs by tools of its own.

These are searches of the web and its pages, Python and a shell, as Responses and Messages declare
them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from caesura.tools.code.python import Python
from caesura.tools.code.shell import Shell
from caesura.tools.context import current
from caesura.tools.errors import Permanent
from caesura.tools.registry import Registry
from caesura.tools.search.page import WebFetch
from caesura.tools.search.web import WebSearch
from caesura.tools.tool import Tool

WEB_SEARCH, WEB_FETCH = "web_search", "web_fetch"
PYTHON, SHELL = "python", "shell"
MAX_USES = "no more calls of this tool are allowed in this answer"
"""Why a call beyond a limit of a tool is refused."""
_KINDS: Mapping[str, type] = {
    WEB_SEARCH: WebSearch,
    WEB_FETCH: WebFetch,
    PYTHON: Python,
    SHELL: Shell,
}


def run_here(tools: Registry) -> frozenset[str]:
    """Return the names of the hosted tools that are among this server's own."""
    found = ((name, tools.get(name), kind) for name, kind in _KINDS.items())
    return frozenset(
        name for name, tool, kind in found if tool is not None and isinstance(tool.function, kind)
    )


def bound(tool: Tool, settings: Mapping[str, Any]) -> Tool:
    """Return a hosted tool whose calls have these settings of a request's as arguments."""
    given = {name: value for name, value in settings.items() if value}

    async def call(**arguments: Any) -> Any:
        return await tool.call(**arguments, **given)

    return replace(tool, call=call) if given else tool


def counted(tools: Iterable[Tool], most: int | None, why: str) -> list[Tool]:
    """Return the tools, which together take `most` calls and refuse others; None is no limit."""
    if most is None:
        return list(tools)
    made: set[str] = set()

    def limited(tool: Tool) -> Tool:
        async def call(**arguments: Any) -> Any:
            call_id = current().call.id  # a retry is the same call
            if call_id not in made and len(made) >= most:
                raise Permanent(why)
            made.add(call_id)
            return await tool.call(**arguments)

        return replace(tool, call=call)

    return [limited(tool) for tool in tools]
