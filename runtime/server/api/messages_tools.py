"""The tools that a request to `/v1/messages` declares: the client's own, and Anthropic's.

Of Anthropic's, the client runs `bash`, `text_editor` and `memory`: the model sees each as a
function with Anthropic's arguments. This server runs `web_search` and `web_fetch` where it has such
tools, and the searches of tools. Others are left out with a note.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag, model_validator

from caesura.runtime.events import ToolReturned
from caesura.runtime.server.api.deferred import SEARCHES, names_in, search_tool
from caesura.runtime.server.api.fields import Name, Part, Waits
from caesura.runtime.server.api.hosted import (
    MAX_USES,
    WEB_FETCH,
    WEB_SEARCH,
    bound,
    counted,
)
from caesura.scheduler.messages import ToolSpec
from caesura.tools.registry import Registry
from caesura.tools.search.page import NOT_ALLOWED, page_in
from caesura.tools.search.web import pages_in
from caesura.tools.tool import Tool

_TEXT, _NUMBER = {"type": "string"}, {"type": "integer"}
_RANGE = {"type": "array", "items": _NUMBER, "description": "first and last line; -1: the end"}
_EDITS = {
    "path": {"type": "string", "description": "absolute path of the file or directory"},
    "file_text": {"type": "string", "description": "for create: the content of the file"},
    "old_str": {"type": "string", "description": "for str_replace: the only place of this text"},
    "new_str": {"type": "string", "description": "for str_replace: what stands there then"},
    "insert_line": {"type": "integer", "description": "for insert: the line before; 0: the begin"},
    "insert_text": {"type": "string", "description": "for insert: the text"},
    "view_range": _RANGE | {"description": "for view: first and last line; -1: the end"},
}
_MOVES = {"old_path": _TEXT, "new_path": _TEXT}


def _commands(names: str, fields: Mapping[str, Any], required: Collection[str]) -> dict[str, Any]:
    command = {"type": "string", "enum": names.split()}
    return {
        "type": "object",
        "properties": {"command": command, **fields},
        "required": ["command", *required],
    }


_BASH = {
    "type": "object",
    "properties": {
        "command": {"type": "string", "description": "the command to run"},
        "restart": {"type": "boolean", "description": "start the shell again instead"},
    },
}
_EDITOR = "view create str_replace insert"
_CLIENTS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "bash": ("Run commands in a shell, which keeps its state between calls.", _BASH),
    "text_editor": (
        "View, create and edit files.",
        _commands(_EDITOR, _EDITS, ["path"]),
    ),
    "memory": (
        "Keep notes in files below /memories, which outlive the conversation.",
        _commands(f"{_EDITOR} delete rename", _EDITS | _MOVES, []),
    ),
}
"""What the model is told of the tools of Anthropic's that clients run, by kind."""
_DATED = re.compile(r"([a-z][a-z0-9_]*?)(_\d{8})?")
_HOSTED = frozenset(
    {
        *("advisor", "browser_toolset", "code_execution", "computer", "computer_toolset"),
        *("mcp_toolset", WEB_SEARCH, WEB_FETCH, *SEARCHES),
    }
)
"""Kinds of Anthropic's tools that the client does not run."""


class ClientTool(Part):
    """A tool that the client runs itself. With `strict`, its calls follow the schema."""

    type: str | None = None
    name: Name
    description: str | None = None
    input_schema: Annotated[dict[str, Any], Field(default_factory=dict)]
    strict: bool | None = None
    defer_loading: bool | None = None
    async_: Waits = None

    def function(self) -> dict[str, Any] | None:
        """Return the tool in the form of chat completions."""
        parameters = self.input_schema or {"type": "object", "properties": {}}
        return _function(self.name, self.description, parameters, self.strict)


class AnthropicTool(Part):
    """A tool of Anthropic's own, with the fields of those that run here."""

    type: str
    name: Name | None = None
    strict: bool | None = None
    defer_loading: bool | None = None
    allowed_domains: list[str] | None = None
    blocked_domains: list[str] | None = None
    max_content_tokens: Annotated[int, Field(ge=1)] | None = None
    max_uses: Annotated[int, Field(ge=1)] | None = None
    user_location: dict[str, Any] | None = None

    @property
    def kind(self) -> str:
        """The type without its date."""
        found = _DATED.fullmatch(self.type)
        return "" if found is None else found[1]

    @model_validator(mode="after")
    def _is_known(self) -> "AnthropicTool":
        if self.kind not in _CLIENTS.keys() | _HOSTED:
            raise ValueError(
                f"a tool of type {self.type[:64]!r} is not run here: name this server's own tools "
                "in server_tools"
            )
        if self.kind in _CLIENTS and self.name is None:
            raise ValueError("name is missing")
        return self

    def function(self) -> dict[str, Any] | None:
        """Return the tool in the form of chat completions, or None if no client runs it."""
        if self.kind not in _CLIENTS or self.name is None:
            return None
        told, parameters = _CLIENTS[self.kind]
        if self.type == "text_editor_20250124":  # before its text had a name of its own
            fields = {name: each for name, each in _EDITS.items() if name != "insert_text"}
            parameters = _commands(f"{_EDITOR} undo_edit", fields, ["path"])
        return _function(self.name, told, parameters, self.strict)

    def left_out(self, run_here: Collection[str]) -> list[str]:
        """Return what is left out: the tool unless it is run, or a part of it."""
        if self.kind in _CLIENTS:
            return []
        if self.kind not in run_here:
            return [f"tool {self.kind}"]
        place = "field user_location of the tool"
        return [f"{place} {self.kind}"] if self.user_location else []

    def applied(self, tool: Tool) -> Tool:
        """Return the server's tool for a request that declares this one."""
        settings: dict[str, Any] = {
            "allowed_domains": self.allowed_domains,
            "blocked_domains": self.blocked_domains,
        }
        if self.kind == WEB_FETCH:
            settings |= {"max_tokens": self.max_content_tokens}
        (made,) = counted([bound(tool, settings)], self.max_uses, MAX_USES)
        return made


def _function(
    name: str, description: str | None, parameters: dict[str, Any], strict: bool | None
) -> dict[str, Any]:
    function = {"name": name, "parameters": parameters, "description": description}
    return {"type": "function", "function": function | {"strict": strict}}


def _kind(tool: Any) -> str:
    kind = tool.get("type") if isinstance(tool, Mapping) else getattr(tool, "type", None)
    own = isinstance(kind, str) and kind != "custom"
    return (AnthropicTool if own else ClientTool).__name__


DeclaredTool = Annotated[
    Annotated[ClientTool, Tag(ClientTool.__name__)]
    | Annotated[AnthropicTool, Tag(AnthropicTool.__name__)],
    Discriminator(_kind),
]


def spec_of(function: Mapping[str, Any]) -> ToolSpec:
    """Return a function of chat completions in the engine's form."""
    told = function["function"]
    about = {"name": told["name"], "description": told["description"] or ""}
    return {"type": "function", "function": about | {"parameters": told["parameters"]}}


def with_declared(
    tools: Registry, declared: Mapping[str, AnthropicTool], deferred: Sequence[ToolSpec]
) -> Registry:
    """Return the server's tools, of which those that are declared, by name, work as they say.

    Searches of tools find those that are `deferred`.
    """
    if not declared:
        return tools
    made = [declared[each.name].applied(each) if each.name in declared else each for each in tools]
    searches = [search_tool(name, deferred) for name in declared if name in SEARCHES]
    return Registry([*made, *searches], shared=tools)


def result_type(name: str) -> str:
    """Return the type of the block with the result of a hosted tool."""
    return "tool_search_tool_result" if name in SEARCHES else f"{name}_tool_result"


# -- The blocks of an answer -----------------------------------------------------------------------


def result_block(tool_use_id: str, name: str, returned: ToolReturned | None) -> dict[str, Any]:
    """Return the block with the result of a tool that ran here; None: the run ended before it."""
    content = _error(name, "unavailable") if returned is None else _content(name, returned)
    return {"type": result_type(name), "tool_use_id": tool_use_id, "content": content}


def _content(name: str, returned: ToolReturned) -> Any:
    result = returned.result
    if result.error == "invalid_arguments":
        return _error(name, "invalid_tool_input")
    if result.error is not None and MAX_USES in result.content:
        return _error(name, "max_uses_exceeded")
    if result.error is not None and name != WEB_FETCH:
        return _error(name, "invalid_tool_input" if name in SEARCHES else "unavailable")
    if name in SEARCHES:
        found = [{"type": "tool_reference", "tool_name": each} for each in names_in(result.content)]
        return {"type": "tool_search_tool_search_result", "tool_references": found}
    if name == WEB_SEARCH:
        return [
            {
                "type": "web_search_result",
                "url": page.source,
                "title": page.title,
                "page_age": None,
                "encrypted_content": "",  # the answer is spliced, so nothing has to come back
            }
            for page in pages_in(result.content)
        ]
    page = None if result.error is not None else page_in(result.content)
    if page is None:
        refused = NOT_ALLOWED in result.content
        return _error(name, "url_not_allowed" if refused else "url_not_accessible")
    title, address, text = page
    source = {"type": "text", "media_type": "text/plain", "data": text}
    return {
        "type": "web_fetch_result",
        "url": address,
        "content": {"type": "document", "source": source, "title": title, "citations": None},
        "retrieved_at": datetime.now(UTC).isoformat(),
    }


def _error(name: str, code: str) -> dict[str, str]:
    return {"type": f"{result_type(name)}_error", "error_code": code}
