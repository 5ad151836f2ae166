"""The schema of a request to `/v1/responses`.

A field of chat completions or of vLLM's that changes the answer is refused, and any other field
that is not listed here is left out with a note. These have no effect on the answer, and a response
returns them: `metadata`, `prompt_cache_key`, `reasoning.summary`, `safety_identifier`,
`user` and `text.verbosity`. These have no effect at all: `service_tier`, `stream_options`,
`prompt_cache_retention`, `prompt_cache_options` beside `prewarm` and `comparison_response_id`, and
`client_metadata`.
"""

from collections.abc import Collection, Sequence
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from caesura.runtime.server.api.chat_request import HARMLESS, NEUTRAL, ChatRequest
from caesura.runtime.server.api.fields import (
    Listed,
    NotEmpty,
    Part,
    Priority,
    SamplingFields,
    ServerToolNames,
    TemplateVariables,
    in_words,
    template_variables,
    valid_schema,
)
from caesura.runtime.server.api.notes import UNSUPPORTED, left_out_of
from caesura.runtime.server.http.errors import invalid
from caesura.runtime.server.http.lineage import named_in
from caesura.runtime.server.responses.items import (
    LEFT_OUT,
    SEARCHES,
    code_result,
    is_clients_search,
    items_of,
)
from caesura.runtime.server.responses.store import Item
from caesura.runtime.server.responses.tools import (
    HostedTool,
    OtherTool,
    ToolChoice,
    Tools,
    hosted_kind,
)
from caesura.scheduler.messages import Sampling, TextFormat
from caesura.scheduler.programs import Origin

Body = TypeVar("Body", bound=BaseModel)
Asked = TypeVar("Asked", bound="Prompt")

MAX_METADATA_PAIRS = 16
MAX_METADATA_KEY_CHARACTERS = 64
MAX_METADATA_VALUE_CHARACTERS = 512
LOGPROBS = "message.output_text.logprobs"
ENCRYPTED = "reasoning.encrypted_content"

INCLUDABLE = frozenset(
    {
        "code_interpreter_call.outputs",
        "computer_call_output.output.image_url",
        "file_search_call.results",
        "message.input_image.image_url",
        "message.output_text.logprobs",
        "reasoning.encrypted_content",
        "web_search_call.action.sources",
        "web_search_call.results",
    }
)
"""Most of these concern items that no response of this server has."""
Metadata = Annotated[
    dict[
        Annotated[str, Field(max_length=MAX_METADATA_KEY_CHARACTERS)],
        Annotated[str, Field(max_length=MAX_METADATA_VALUE_CHARACTERS)],
    ],
    Field(max_length=MAX_METADATA_PAIRS),
]


def _identified(value: object) -> object:
    return value.get("id") if isinstance(value, dict) else value


class Reasoning(Part):
    """What the client asks of the model's thinking."""

    effort: str | None = None
    summary: str | None = None


class Format(Part):
    """The form of the answer's text."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    strict: bool | None = None

    @model_validator(mode="after")
    def _has_schema(self) -> Self:
        if self.type == "json_schema" and (self.schema_ is None or not self.name):
            raise ValueError("a json_schema needs a name and a schema")
        return self

    @field_validator("schema_")
    @classmethod
    def _valid(cls, schema: Any) -> Any:
        return schema if schema is None else valid_schema(schema)

    def constraint(self) -> TextFormat | None:
        """Return the format for the engine, or None for free text."""
        if self.type == "json_schema":
            return TextFormat("json_schema", self.schema_)
        return TextFormat("json_object") if self.type == "json_object" else None

    def public(self) -> dict[str, Any]:
        """Return the format as a response tells it."""
        if self.type != "json_schema":
            return {"type": self.type}
        return {
            "type": self.type,
            "name": self.name,
            "description": self.description,
            "schema": self.schema_,
            "strict": bool(self.strict),
        }


class Text(Part):
    """Settings of the answer's text."""

    format: Format | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class Continued(BaseModel):
    """The fields of a request that tell its input, and what came before it."""

    model_config = ConfigDict(extra="allow", frozen=True)

    input: Any = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: Annotated[str | None, BeforeValidator(_identified)] = None


class Prompt(Continued):
    """The fields of a request that make up the model's prompt."""

    tools: Tools = []
    tool_choice: ToolChoice | None = None
    server_tools: ServerToolNames = []
    text: Text | None = None
    reasoning: Reasoning | None = None
    truncation: Literal["auto", "disabled"] | None = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: TemplateVariables | None = None

    def template(self) -> dict[str, Any]:
        """Return the variables for the model's chat template."""
        effort = None if self.reasoning is None else self.reasoning.effort
        return template_variables(effort, self.chat_template_kwargs)


class ResponseRequest(Prompt, SamplingFields):
    """The body of `POST /v1/responses`.

    `server_tools` is Caesura's own field, as in chat completions. `cache_salt` and `priority` are
    those of chat completions too.
    """

    model: str
    include: Annotated[list[str], Listed] = []
    metadata: Metadata | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    max_tool_calls: Annotated[int, Field(ge=1)] | None = None
    cache_salt: NotEmpty | None = None
    priority: Priority = 0
    stream: bool | None = None
    store: bool | None = None
    background: bool | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: dict[str, Any] | None = None
    service_tier: str | None = None
    stream_options: dict[str, Any] | None = None
    client_metadata: dict[str, Any] | None = None
    generate: bool | None = None

    @property
    def generates(self) -> bool:
        """Whether the model is to write anything; otherwise only the KV cache is filled."""
        return self.generate is not False and not (self.prompt_cache_options or {}).get("prewarm")

    @property
    def compared_with(self) -> str | None:
        """The response with whose prompt the cache's use is to be compared."""
        named = (self.prompt_cache_options or {}).get("comparison_response_id")
        return named if isinstance(named, str) else None

    @property
    def who(self) -> str | None:
        """The client's user; OpenAI's newer field stands in for `user`."""
        return self.user or self.safety_identifier

    @property
    def origin(self) -> Origin:
        """The session and its parent, where the body names them."""
        key, told = self.prompt_cache_key, self.client_metadata
        return named_in({"prompt_cache_key": key, "client_metadata": told})

    @property
    def stored(self) -> bool:
        """Whether the response is stored, which is the default."""
        return self.store is not False

    def sampling(self) -> Sampling:
        """Return the sampling settings."""
        logprobs = LOGPROBS in self.include
        return self.sampling_with(self.max_output_tokens, logprobs, self._constraint())

    @property
    def format(self) -> Format | None:
        """The form of the answer's text, or None if the request leaves it out."""
        return None if self.text is None else self.text.format

    def _constraint(self) -> TextFormat | None:
        if self.structured_outputs is not None:
            return self.structured_outputs.text()
        return None if self.format is None else self.format.constraint()


class TokenCountRequest(Prompt):
    """The body of `POST /v1/responses/input_tokens`; without `model` the served one is meant."""

    model: str | None = None


class CompactRequest(Prompt):
    """The body of `POST /v1/responses/compact`.

    OpenAI's has no tools. With those of the conversation, its tokens are in the prefix cache.
    """

    model: str
    cache_salt: NotEmpty | None = None


def parse(body: bytes | str) -> tuple[ResponseRequest, list[Item]]:
    """Return the request in a body, and its items; raise an `ApiError` for a wrong field."""
    request = parsed_as(ResponseRequest, body)
    refuse_unsupported(request)
    return request, items_of(request.input)


def parse_count(body: bytes) -> tuple[TokenCountRequest, list[Item]]:
    """Return the request for a count of tokens, and its items; raise an `ApiError`."""
    request = parsed_as(TokenCountRequest, body)
    _refuse_tools(request)
    return request, items_of(request.input)


def parse_compact(body: bytes) -> tuple[CompactRequest, list[Item]]:
    """Return the request for a compaction, and its items; raise an `ApiError`."""
    request = parsed_as(CompactRequest, body)
    _refuse_tools(request)
    return request, items_of(request.input)


def parsed_as(kind: type[Body], body: bytes | str) -> Body:
    """Return a body as `kind`; raise an `ApiError` that names the wrong field."""
    try:
        request = kind.model_validate_json(body)
    except ValidationError as error:
        raise in_words(error) from None
    if isinstance(request, Continued):
        left_out(request)
    return request


def refuse_unsupported(request: ResponseRequest) -> None:
    """Raise `ApiError` for fields that exclude each other, and for tools of another kind."""
    if request.previous_response_id is not None and request.conversation is not None:
        message = "previous_response_id and conversation exclude each other: send one of them."
        raise invalid(message, "previous_response_id")
    if request.background and not request.stored:
        message = "background needs store: leave store out or send true, got false."
        raise invalid(message, "background")
    if request.structured_outputs is not None and request.format is not None:
        message = "structured_outputs and text.format exclude each other: send one of them."
        raise invalid(message, "structured_outputs")
    if request.top_logprobs and LOGPROBS not in request.include:
        raise invalid(f"top_logprobs needs {LOGPROBS!r} in include beside it.", "top_logprobs")
    _refuse_tools(request)


def _refuse_tools(request: Prompt) -> None:
    for number, tool in enumerate(request.tools):
        if isinstance(tool, OtherTool) and tool.hosted is None:
            field = f"tools[{number}].type"
            raise invalid(
                f"{field}: tools of type {tool.type[:40]!r} are not supported; send function, "
                "custom, namespace, or mcp with this server's label.",
                field,
            )


def with_hosted(request: Asked, run_here: Collection[str]) -> Asked:
    """Return the request, whose tools of OpenAI's own are left out where nothing here runs them.

    Nothing does where a tool of the client's own has the name of the one that would.
    """
    runs = set(run_here) - {getattr(tool, "name", "") for tool in request.tools}
    tools = [
        OtherTool(type=tool.type)
        if isinstance(tool, HostedTool) and tool.here not in runs
        else tool
        for tool in request.tools
    ]
    return request if tools == request.tools else request.model_copy(update={"tools": tools})


_ITEMS = {"web_search": "web_search_call", "python": "code_interpreter_call"}
"""The items of tools that this server runs, which are not left out of an input with such a tool."""


REFUSED = UNSUPPORTED | {"messages", "previous_input_messages", "prompt"}
"""Fields that change the answer and that are refused, beside those of chat completions."""


def left_out(request: Continued) -> list[str]:
    """Return what a request has that is not here and is left out, each kind once.

    These are unknown fields, OpenAI's own tools, and items of such tools in the input, unless
    this server runs the tool. Raises `ApiError` for a field that cannot be left out.
    """
    refused = REFUSED | (set(ChatRequest.model_fields) - set(type(request).model_fields))
    extra = request.model_extra
    fields = left_out_of(extra, harmless=HARMLESS, neutral=NEUTRAL, refused=refused)
    told: dict[str, None] = dict.fromkeys(fields)
    if isinstance(request, ResponseRequest):
        told |= {f"include {name[:64]}": None for name in request.include if name not in INCLUDABLE}
    own = set()
    for tool in request.tools if isinstance(request, Prompt) else ():
        if isinstance(tool, OtherTool):
            told[f"tool {tool.hosted}"] = None
        elif isinstance(tool, HostedTool):
            own.add(_ITEMS.get(tool.here, ""))
            kind = hosted_kind(tool.type)
            told |= {f"field {name} of the tool {kind}": None for name in tool.left_out()}
    for item in request.input if isinstance(request.input, list) else ():
        kind = item.get("type") if isinstance(item, dict) else None
        if kind in SEARCHES and is_clients_search(item):
            continue
        if kind == "code_interpreter_call" and code_result(item) is not None:
            continue  # the model is shown it
        if isinstance(kind, str) and kind in {*LEFT_OUT, *SEARCHES} - own:
            told[f"item {kind}"] = None
    return list(told)


def unread(items: Sequence[Item]) -> list[str]:
    """Return a note if the items have reasoning that was encrypted for another server.

    Such reasoning is left out, as a history may leave out all of it.
    """
    found = any(
        item["type"] == "reasoning" and item.get("encrypted_content") and not item.get("content")
        for item in items
    )
    return ["reasoning that was not encrypted for this key"] if found else []
