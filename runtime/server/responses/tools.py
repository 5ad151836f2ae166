"""The tools and the tool choice of a request, in the forms of the Responses API."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, TypeAdapter, ValidationError, model_validator

from caesura.runtime.server.api.custom import shown_function
from caesura.runtime.server.api.fields import MAX_TOOLS, Listed, Name, Part, Pattern, in_words
from caesura.runtime.server.api.hosted import PYTHON, SHELL, WEB_SEARCH
from caesura.runtime.server.http.errors import invalid
from caesura.runtime.server.responses.store import Item
from caesura.scheduler.messages import InputGrammar, ToolSpec

NAMESPACE_SEPARATOR = "__"
TOOL_SEARCH = "tool_search"
SERVER_LABEL = "caesura"
"""The `server_label` under which a request names this server's own tools."""
Async = Annotated[bool | None, Field(alias="async")]
"""Whether the model goes on while a call of a tool runs, and is told the result later."""
_OPTIONAL = ("defer_loading", "async")
FOREIGN = ("server_url", "connector_id", "tunnel_id", "authorization", "headers")
"""Fields of `mcp` tools that lie on another server."""


def flat_name(name: str, namespace: str | None) -> str:
    """Return the name under which the model sees a tool of a namespace."""
    return f"{namespace}{NAMESPACE_SEPARATOR}{name}" if namespace else name


class FunctionTool(Part):
    """A tool that the client runs itself."""

    type: Literal["function"] = "function"
    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    defer_loading: bool | None = None
    async_: Async = None

    def spec(self, namespace: str | None = None) -> ToolSpec:
        """Return the tool in the engine's form, under the flat name of its namespace."""
        function = {
            "name": flat_name(self.name, namespace),
            "description": self.description or "",
            "parameters": self.parameters or {"type": "object", "properties": {}},
        }
        return {"type": "function", "function": function}

    def public(self) -> dict[str, Any]:
        """Return the tool as a response tells it, with every key that clients require."""
        told = _without_deferral(self.model_dump(by_alias=True))
        return told | {"strict": bool(self.strict)}


def _without_deferral(told: dict[str, Any]) -> dict[str, Any]:
    """Return a tool as it is told, without `defer_loading` and `async` that it does not have."""
    return {name: each for name, each in told.items() if name not in _OPTIONAL or each}


class Grammar(Part):
    """What the input of a custom tool may be; a grammar is told the model too."""

    type: Literal["text", "grammar"]
    syntax: Literal["lark", "regex"] | None = None
    definition: Pattern | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.type == "grammar" and None in (self.syntax, self.definition):
            raise ValueError("a grammar needs a syntax and a definition")
        return self


class CustomTool(Part):
    """A tool that the client runs itself on a free text; the model sees a function of one text."""

    type: Literal["custom"]
    name: Name
    description: str | None = None
    format: Grammar | None = None
    defer_loading: bool | None = None
    async_: Async = None

    @property
    def strict(self) -> bool:
        """Whether calls follow the parameters' schema."""
        return False

    @property
    def grammar(self) -> InputGrammar | None:
        """The grammar of the input, or None for free text."""
        given = self.format
        if given is None or given.syntax is None or given.definition is None:
            return None
        return InputGrammar(given.syntax, given.definition)

    def spec(self, namespace: str | None = None) -> ToolSpec:
        """Return the tool in the engine's form, under the flat name of its namespace."""
        return shown_function(flat_name(self.name, namespace), self.description, self.grammar)

    def public(self) -> dict[str, Any]:
        """Return the tool as a response tells it."""
        form = (
            {"type": "text"} if self.format is None else self.format.model_dump(exclude_none=True)
        )
        dumped = _without_deferral(self.model_dump(by_alias=True))
        return {**dumped, "description": self.description or "", "format": form}


def _is_custom(tool: Any) -> str:
    kind = tool.get("type") if isinstance(tool, dict) else getattr(tool, "type", None)
    return CustomTool.__name__ if kind == "custom" else FunctionTool.__name__


ClientTool = Annotated[
    Annotated[FunctionTool, Tag(FunctionTool.__name__)]
    | Annotated[CustomTool, Tag(CustomTool.__name__)],
    Discriminator(_is_custom),
]


class NamespaceTool(Part):
    """A group of the client's tools; the model sees each as `<namespace>__<name>`."""

    type: Literal["namespace"]
    name: Name
    description: str | None = None
    tools: Annotated[list[ClientTool], Field(max_length=MAX_TOOLS)]

    def public(self) -> dict[str, Any]:
        """Return the tool as a response tells it."""
        told = [tool.public() for tool in self.tools]
        return {
            "type": self.type,
            "name": self.name,
            "description": self.description or "",
            "tools": told,
        }


class ToolSearchTool(Part):
    """A search of deferred tools, which the client runs; the model sees a function."""

    type: Literal["tool_search"]
    execution: Literal["client"]
    description: str | None = None
    parameters: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """The name of the function that the model sees."""
        return TOOL_SEARCH

    @property
    def strict(self) -> bool:
        """Whether calls follow the parameters' schema."""
        return False

    @property
    def defer_loading(self) -> bool:
        """Whether the search has to be found itself."""
        return False

    @property
    def async_(self) -> bool:
        """Whether the model goes on while a search runs."""
        return False

    def spec(self, namespace: str | None = None) -> ToolSpec:
        """Return the tool in the engine's form."""
        parameters = self.parameters or _QUERY
        told = self.description or "Find tools that are not in the list yet."
        return FunctionTool(name=self.name, description=told, parameters=parameters).spec(namespace)

    def public(self) -> dict[str, Any]:
        """Return the tool as a response tells it."""
        return self.model_dump(exclude_none=True)


_QUERY = {
    "type": "object",
    "properties": {"query": {"type": "string"}},
    "required": ["query"],
}


class ToolFilter(Part):
    """A selection of tools by their names."""

    tool_names: list[str] = []


class ApprovalFilter(Part):
    """The tools whose calls always, or never, need an approval."""

    always: ToolFilter | None = None
    never: ToolFilter | None = None


class ServerTools(Part):
    """Tools of this server, named in the form of an MCP server."""

    type: Literal["mcp"]
    server_label: str
    allowed_tools: list[str] | ToolFilter | None = None
    require_approval: Literal["always", "never"] | ApprovalFilter | None = None
    server_url: str | None = None
    connector_id: str | None = None
    tunnel_id: str | None = None
    authorization: str | None = None
    headers: dict[str, str] | None = None
    async_: Async = None

    @property
    def names(self) -> list[str] | None:
        """The allowed tools, or None for all of them."""
        if isinstance(self.allowed_tools, ToolFilter):
            return self.allowed_tools.tool_names
        return self.allowed_tools

    @property
    def foreign(self) -> bool:
        """Whether the tools lie on another server."""
        return any(getattr(self, name) is not None for name in FOREIGN)

    def asks_approval(self, name: str) -> bool:
        """Return whether the request wants to approve each call of the tool `name` itself."""
        asked = self.require_approval
        if isinstance(asked, ApprovalFilter):
            return asked.always is not None and name in asked.always.tool_names
        return asked == "always"

    def public(self) -> dict[str, Any]:
        """Return the tool as a response tells it."""
        return self.model_dump(exclude=set(FOREIGN), exclude_none=True, by_alias=True)


HOSTED = re.compile(
    "(apply_patch|code_interpreter|computer(_use)?|file_search|image_generation|local_shell"
    "|programmatic_tool_calling|shell|tool_search|web_search)(_preview)?([-_0-9]*)"
)
"""The types of OpenAI's own tools; some have a date behind them."""


def hosted_kind(kind: str) -> str | None:
    """Return a type of OpenAI's own tools without a date, or None for any other type."""
    found = HOSTED.fullmatch(kind)
    return None if found is None else found[1]


class Filters(Part):
    """The domains of the pages that a search may find."""

    allowed_domains: list[str] | None = None
    blocked_domains: list[str] | None = None


class WebSearchTool(Part):
    """OpenAI's search of the web, which this server runs where it has a tool for it."""

    type: str
    filters: Filters | None = None
    search_context_size: Literal["low", "medium", "high"] | None = None
    user_location: dict[str, Any] | None = None
    external_web_access: bool | None = None

    @property
    def here(self) -> str:
        """The name of this server's tool that runs it."""
        return WEB_SEARCH

    def left_out(self) -> list[str]:
        """Return the fields that have no meaning here."""
        return ["user_location"] if self.user_location else []

    def settings(self) -> dict[str, Any]:
        """Return what it says to the tool `web_search`."""
        filters = self.filters or Filters()
        return {**filters.model_dump(), "context_size": self.search_context_size}

    def public(self) -> dict[str, Any]:
        """Return the tool as a response tells it."""
        return self.model_dump(exclude_none=True)


class Container(Part):
    """What a request says of the container that its code is to run in."""

    type: str
    container_id: str | None = None
    file_ids: list[str] | None = None
    memory_limit: str | None = None
    network_policy: dict[str, Any] | None = None
    skills: list[Any] | None = None

    def left_out(self) -> list[str]:
        """Return the fields that have no meaning here."""
        told = self.model_dump(exclude={"type", "container_id"})
        return [name for name, value in told.items() if value]


class CodeInterpreterTool(Part):
    """OpenAI's code interpreter, which this server runs where it has the tool `python`."""

    type: Literal["code_interpreter"]
    container: str | Container | None = None

    @property
    def here(self) -> str:
        """The name of this server's tool that runs it."""
        return PYTHON

    @property
    def container_id(self) -> str | None:
        """The container that the request names."""
        return self.container if isinstance(self.container, str) else None

    def left_out(self) -> list[str]:
        """Return the fields that have no meaning here."""
        told = self.container.left_out() if isinstance(self.container, Container) else []
        return [f"container.{name}" for name in told]

    def settings(self) -> dict[str, Any]:
        """Return what it says to the tool `python`."""
        return {}

    def public(self) -> dict[str, Any]:
        """Return the tool as a response tells it."""
        return self.model_dump(exclude_none=True)


class ShellTool(Part):
    """OpenAI's shell, which this server runs where it has the tool `shell`."""

    type: Literal["shell"]
    environment: Container | None = None

    @property
    def here(self) -> str:
        """The name of this server's tool that runs it."""
        return SHELL

    def left_out(self) -> list[str]:
        """Return the fields that have no meaning here."""
        told = [] if self.environment is None else self.environment.left_out()
        return [f"environment.{name}" for name in told]

    def settings(self) -> dict[str, Any]:
        """Return what it says to the tool `shell`."""
        return {}

    def public(self) -> dict[str, Any]:
        """Return the tool as a response tells it."""
        return self.model_dump(exclude_none=True)


HostedTool = WebSearchTool | CodeInterpreterTool | ShellTool
"""One of OpenAI's own tools that this server may run."""


class OtherTool(Part):
    """A tool that this server does not have."""

    type: str

    @property
    def hosted(self) -> str | None:
        """The type without a date if it is one of OpenAI's own, or None."""
        return hosted_kind(self.type)


_KINDS = {
    "custom": CustomTool.__name__,
    "function": FunctionTool.__name__,
    "namespace": NamespaceTool.__name__,
    "mcp": ServerTools.__name__,
}


_HERE = {
    "web_search": WebSearchTool,
    "code_interpreter": CodeInterpreterTool,
    "shell": ShellTool,
}
"""The classes of OpenAI's own tools that this server may run, by type without a date."""


def here_of(kind: str) -> str | None:
    """Return the name of this server's tool for a type of OpenAI's own tools, or None."""
    names = {"web_search": WEB_SEARCH, "code_interpreter": PYTHON, "shell": SHELL}
    return names.get(hosted_kind(kind) or "")


def _hosted_class(kind: str, tool: Any) -> str | None:
    """Return the class of a tool that this server may run; the client runs a local shell."""
    environment = tool.get("environment") if isinstance(tool, dict) else None
    if isinstance(environment, dict) and environment.get("type") == "local":
        return None
    found = _HERE.get(hosted_kind(kind) or "")
    return None if found is None else found.__name__


def _kind(tool: Any) -> str:
    kind = tool.get("type") if isinstance(tool, dict) else getattr(tool, "type", None)
    if not isinstance(kind, str):
        return OtherTool.__name__
    execution = tool.get("execution") if isinstance(tool, dict) else tool
    if kind == TOOL_SEARCH and (execution == "client" or isinstance(tool, ToolSearchTool)):
        return ToolSearchTool.__name__
    if not isinstance(tool, OtherTool) and (name := _hosted_class(kind, tool)) is not None:
        return name
    return _KINDS.get(kind, OtherTool.__name__)


Tool = Annotated[
    Annotated[FunctionTool, Tag(FunctionTool.__name__)]
    | Annotated[CustomTool, Tag(CustomTool.__name__)]
    | Annotated[NamespaceTool, Tag(NamespaceTool.__name__)]
    | Annotated[ServerTools, Tag(ServerTools.__name__)]
    | Annotated[ToolSearchTool, Tag(ToolSearchTool.__name__)]
    | Annotated[WebSearchTool, Tag(WebSearchTool.__name__)]
    | Annotated[CodeInterpreterTool, Tag(CodeInterpreterTool.__name__)]
    | Annotated[ShellTool, Tag(ShellTool.__name__)]
    | Annotated[OtherTool, Tag(OtherTool.__name__)],
    Discriminator(_kind),
]


ClientFunction = FunctionTool | CustomTool | ToolSearchTool
"""A tool that the client runs, as the model sees it."""


def functions_of(tool: Tool) -> list[tuple[ClientFunction, str | None]]:
    """Return the client's functions in a tool of a request, with their namespace."""
    if isinstance(tool, NamespaceTool):
        return [(function, tool.name) for function in tool.tools]
    return [(tool, None)] if isinstance(tool, ClientFunction) else []


_TOOLS: TypeAdapter[list[Tool]] = TypeAdapter(list[Tool])


def found_in(item: Item) -> list[tuple[ClientFunction, str | None]]:
    """Return the functions in the output of a search that the client ran.

    Raises `ApiError` 400 for a tool that cannot be read.
    """
    try:
        tools = _TOOLS.validate_python(item["tools"])
    except ValidationError as error:
        why = in_words(error).message
        raise invalid(f"input: a tool that was found cannot be read: {why}", "input") from None
    return [each for tool in tools for each in functions_of(tool)]


class ChosenFunction(Part):
    """`tool_choice`: one tool of the client's, which the model has to call."""

    type: Literal["function", "custom"]
    name: Name


class ChosenHosted(Part):
    """`tool_choice`: one of OpenAI's own tools."""

    type: Annotated[str, Field(pattern=f"^{HOSTED.pattern}$")]


class ChosenServerTool(Part):
    """`tool_choice`: this server's tools, or one of them."""

    type: Literal["mcp"]
    server_label: str
    name: Name | None = None


Chosen = ChosenFunction | ChosenServerTool | ChosenHosted


class AllowedTools(Part):
    """`tool_choice`: the tools that the model may call, out of those that it is shown."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"] = "auto"
    tools: Annotated[list[Chosen], Field(min_length=1)]


Tools = Annotated[list[Tool], Field(max_length=MAX_TOOLS), Listed]
ToolChoice = Literal["none", "auto", "required"] | Chosen | AllowedTools
