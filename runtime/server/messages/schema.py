"""The schema of a request to `/v1/messages`: Anthropic's fields that Caesura honours, and its own.

`HARMLESS` fields change nothing in the answer and are ignored. `NEUTRAL` fields may have the value
that changes nothing. Every other field is refused with its name. Fields that the parts of a message
or of a tool do not name are ignored.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator
from pydantic import BeforeValidator as Before

from caesura.runtime.server.chat.schema import ChatRequest, refuse_unsupported
from caesura.runtime.server.http.errors import NO_THREADS, invalid
from caesura.runtime.server.messages.blocks import MessageParam, SystemBlocks, system_text
from caesura.runtime.server.request.fields import (
    MAX_MESSAGES,
    MAX_TOOLS,
    Listed,
    Name,
    NotEmpty,
    Part,
)
from caesura.runtime.server.request.output import valid_schema
from caesura.runtime.server.request.sampling import MAX_STOPS
from caesura.runtime.server.request.validation import in_words

HARMLESS = {
    "billing_policy",
    "cache_control",
    "diagnostics",
    "inference_geo",
    "service_tier",
    "user_profile_id",
    "workspace_id",
}
"""Fields of Anthropic's that do not change the answer."""
NEUTRAL: Mapping[str, tuple[object, ...]] = {"mcp_servers": ([],), "speed": ("standard",)}
"""Unsupported fields, and the values with which they change nothing; null always does."""


class ClientTool(Part):
    """A tool that the client runs itself. With `strict`, its calls follow the schema."""

    type: str | None = None
    name: Name
    description: str | None = None
    input_schema: Annotated[dict[str, Any], Field(default_factory=dict)]
    strict: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _is_a_clients(cls, tool: Any) -> Any:
        kind = tool.get("type") if isinstance(tool, dict) else None
        if kind not in (None, "custom"):
            raise ValueError(
                f"a tool of type {str(kind)[:64]!r} is not run here: name this server's own tools "
                "in server_tools"
            )
        return tool

    def function(self) -> dict[str, Any]:
        """Return the tool in the form of chat completions."""
        parameters = self.input_schema or {"type": "object", "properties": {}}
        function: dict[str, Any] = {"name": self.name, "parameters": parameters}
        function |= {"description": self.description, "strict": self.strict}
        return {"type": "function", "function": function}


class ToolChoice(Part):
    """Which tools the model must or may call."""

    type: Literal["auto", "any", "none", "tool"]
    name: Name | None = None
    disable_parallel_tool_use: bool = False

    @model_validator(mode="after")
    def _names_it(self) -> Self:
        if self.type == "tool" and self.name is None:
            raise ValueError("name is missing: it names the tool to call")
        return self

    def chat(self) -> dict[str, Any]:
        """Return the choice as fields of a chat completion request."""
        named = {"type": "function", "function": {"name": self.name}}
        choice = {"any": "required", "tool": named}.get(self.type, self.type)
        single = self.disable_parallel_tool_use
        return {"tool_choice": choice, "parallel_tool_calls": False if single else None}


class Metadata(Part):
    """Who asks."""

    user_id: str | None = None


class Thinking(Part):
    """Whether the model thinks; its chat template decides how."""

    type: Literal["adaptive", "disabled", "enabled"]

    @model_validator(mode="after")
    def _has_no_budget(self) -> Self:
        if self.type == "enabled":
            raise ValueError("a budget of thinking is not kept here: send type adaptive instead")
        return self


class OutputFormat(Part):
    """A JSON schema that the text of the answer follows."""

    type: Literal["json_schema"]
    schema_: Annotated[dict[str, Any], Field(alias="schema"), Before(valid_schema)]


class OutputConfig(Part):
    """How the model writes its answer."""

    effort: str | None = None
    format: OutputFormat | None = None


class MessagesRequest(BaseModel):
    """The body of `POST /v1/messages`.

    `server_tools` is Caesura's own field, as in chat completions. `cache_salt` and
    `chat_template_kwargs` are vLLM's.
    """

    model: str
    max_tokens: Annotated[int, Field(ge=1)]
    messages: Annotated[list[MessageParam], Field(min_length=1, max_length=MAX_MESSAGES)]
    system: SystemBlocks = []
    tools: Annotated[list[ClientTool], Field(max_length=MAX_TOOLS), Listed] = []
    tool_choice: ToolChoice | None = None
    server_tools: Annotated[list[str], Listed] = []
    stream: bool | None = None
    stop_sequences: Annotated[list[NotEmpty], Field(max_length=MAX_STOPS), Listed] = []
    temperature: Annotated[FiniteFloat, Field(ge=0, le=2)] | None = None
    top_p: Annotated[FiniteFloat, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    metadata: Metadata | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    context_management: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    cache_salt: NotEmpty | None = None

    model_config = ConfigDict(extra="allow", frozen=True)

    def chat(self) -> ChatRequest:
        """Return the chat completion request that asks for the same."""
        fields: dict[str, Any] = {
            "model": self.model,
            "messages": self._messages(),
            "tools": [tool.function() for tool in self.tools],
            "server_tools": self.server_tools,
            "max_tokens": self.max_tokens,
            "stop": self.stop_sequences,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "user": None if self.metadata is None else self.metadata.user_id,
            "chat_template_kwargs": self._template(),
            "cache_salt": self.cache_salt,
            "continue_final_message": self.messages[-1].role == "assistant",
        }
        if self.tool_choice is not None:
            fields |= self.tool_choice.chat()
        return ChatRequest.model_validate(fields | self._output())

    def _messages(self) -> list[dict[str, Any]]:
        records = [record for message in self.messages for record in message.records()]
        system = system_text(self.system)
        return [{"role": "system", "content": system}, *records] if system else records

    def _template(self) -> dict[str, Any] | None:
        if self.thinking is None:
            return self.chat_template_kwargs
        thinks = {"enable_thinking": self.thinking.type != "disabled"}
        return thinks | (self.chat_template_kwargs or {})

    def _output(self) -> dict[str, Any]:
        config = self.output_config or OutputConfig()
        fields: dict[str, Any] = {"reasoning_effort": config.effort}
        if config.format is not None:
            schema = {"name": "answer", "schema": config.format.schema_}
            fields["response_format"] = {"type": "json_schema", "json_schema": schema}
        return fields


def parse(body: bytes) -> tuple[MessagesRequest, ChatRequest]:
    """Return the request in a body, and as one of chat; raise `ApiError` naming a wrong field."""
    try:
        request = MessagesRequest.model_validate_json(body)
    except ValidationError as error:
        raise in_words(error) from None
    for name, value in (request.model_extra or {}).items():
        if name not in HARMLESS and value is not None and value not in NEUTRAL.get(name, ()):
            shown = name[:64]
            code = NO_THREADS if name == "thread" else None
            raise invalid(f"{shown} is not supported here: leave the field out.", shown, code)
    _refuse_conflicts(request)
    try:
        chat = request.chat()
    except ValidationError as error:
        raise in_words(error) from None
    refuse_unsupported(chat)
    return request, chat


def _refuse_conflicts(request: MessagesRequest) -> None:
    """Raise `ApiError` for tools of one name, and for fields that cannot be honoured."""
    names = set(request.server_tools)
    for number, tool in enumerate(request.tools):
        if tool.name in names:
            param = f"tools[{number}].name"
            raise invalid(f"{param}: there is already a tool named {tool.name!r}.", param)
        names.add(tool.name)
    for edit in (request.context_management or {}).get("edits") or ():
        kind = str(edit.get("type") if isinstance(edit, dict) else edit)
        if not kind.startswith("clear_thinking"):  # the chat template decides
            raise invalid(
                f"context_management: an edit of type {kind[:64]!r} is not made here: remove it.",
                "context_management",
            )
    last = request.messages[-1]
    if last.role == "assistant" and any(block.type == "tool_use" for block in last.content):
        raise invalid(
            "The last message calls tools: send their results behind it, as tool_result blocks.",
            "messages",
        )
