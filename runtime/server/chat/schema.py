"""The schema of a chat completion request: the OpenAI fields that Caesura honours, and its own.

The server ignores all other fields. `refuse_unsupported` refuses those that would change the
answer. `tool_choice` may be `auto` or `none`. A named tool reduces the tools that are shown to
that one. `required` means `auto`: the model is not forced to call a tool. `parallel_tool_calls`
has no effect: the model decides how many calls a turn holds.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    ValidationError,
    model_validator,
)

from caesura.runtime.server.chat.validation import in_words
from caesura.runtime.server.http.errors import invalid
from caesura.scheduler.messages import Sampling, ToolSpec

MAX_MESSAGES = 65_536
"""Parsing a message holds Python's GIL for some microseconds, so the number needs a bound."""
MAX_TOOLS = 4_096

Role = Literal["system", "developer", "user", "assistant", "tool"]


def _joined(content: object) -> object:
    """Return the content as one text: null becomes empty, line breaks join text parts."""
    if content is None:
        return ""
    if not isinstance(content, list):
        return content
    return "\n".join(_part_text(number, part) for number, part in enumerate(content))


def _part_text(number: int, part: object) -> str:
    if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
        raise ValueError(f"part {number} must be an object whose type is a string")
    if part["type"] != "text":
        raise ValueError(f"part {number} is of type {part['type']!r}; only text is supported")
    if not isinstance(part.get("text"), str):
        raise ValueError(f"part {number} must have a text that is a string")
    return str(part["text"])


def _json_text(arguments: object) -> object:
    """Return arguments as JSON text; some clients keep them as an object in their history."""
    return json.dumps(arguments) if isinstance(arguments, dict) else arguments


def _listed(value: object) -> object:
    if value is None:
        return []
    return [value] if isinstance(value, str) else value


Name = Annotated[str, Field(min_length=1, max_length=128)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class CalledFunction(_Part):
    """The function that a call in the history names."""

    name: Name
    arguments: Annotated[str, BeforeValidator(_json_text)] = "{}"


class HistoryCall(_Part):
    """A call that an earlier assistant message made."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class ChatMessage(_Part):
    """One message of the conversation."""

    role: Role
    content: Annotated[str, BeforeValidator(_joined)] = ""
    tool_calls: Annotated[list[HistoryCall], BeforeValidator(_listed)] = []
    tool_call_id: str | None = None

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        if self.role == "tool" and not self.tool_call_id:
            raise ValueError("a tool message must have the tool_call_id of the call it answers")
        if self.role != "assistant" and self.tool_calls:
            raise ValueError(f"only an assistant message may have tool_calls, not a {self.role}'s")
        return self

    def record(self) -> dict[str, Any]:
        """Return the message in the engine's form; the role `developer` becomes `system`."""
        role = "system" if self.role == "developer" else self.role
        message: dict[str, Any] = {"role": role, "content": self.content}
        if self.tool_calls:
            message["tool_calls"] = [call.model_dump() for call in self.tool_calls]
        if self.role == "tool":
            message["tool_call_id"] = self.tool_call_id
        return message


class ToolFunction(_Part):
    """The name, description and parameters of a client's tool."""

    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ClientTool(_Part):
    """A tool that the client runs itself."""

    type: Literal["function"]
    function: ToolFunction

    def spec(self) -> ToolSpec:
        """Return the tool in the engine's form."""
        function = {
            "name": self.function.name,
            "description": self.function.description or "",
            "parameters": self.function.parameters or {"type": "object", "properties": {}},
        }
        return {"type": "function", "function": function}


class NamedChoice(_Part):
    """`tool_choice` as an object: the one tool to show."""

    type: Literal["function"]
    function: ToolFunction


class StreamOptions(_Part):
    """Options of a streamed answer."""

    include_usage: bool = False


class ChatRequest(_Part):
    """The body of `POST /v1/chat/completions`.

    `server_tools` is Caesura's own field: the names of the tools that the server runs inside the
    request. The server runs no other tool.
    """

    model: str
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES)]
    tools: Annotated[list[ClientTool], Field(max_length=MAX_TOOLS), BeforeValidator(_listed)] = []
    tool_choice: Literal["none", "auto", "required"] | NamedChoice | None = None
    server_tools: Annotated[list[str], BeforeValidator(_listed)] = []
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    stop: Annotated[list[Annotated[str, Field(min_length=1)]], BeforeValidator(_listed)] = []
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[FiniteFloat, Field(ge=0, le=2)] | None = None
    top_p: Annotated[FiniteFloat, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    user: str | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    presence_penalty: Annotated[FiniteFloat, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[FiniteFloat, Field(ge=-2, le=2)] | None = None
    logprobs: bool | None = None
    response_format: dict[str, Any] | None = None

    @property
    def token_limit(self) -> int | None:
        """The most tokens of the whole answer; the newer of OpenAI's two fields wins."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a chunk of usage."""
        return self.stream_options is not None and self.stream_options.include_usage

    def sampling(self) -> Sampling:
        """Return the sampling settings."""
        return Sampling(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            max_tokens=self.token_limit,
            seed=self.seed,
            stop=tuple(self.stop),
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
        )


def parse(body: bytes) -> ChatRequest:
    """Return the request in a body; raise an `ApiError` that names the wrong field."""
    try:
        request = ChatRequest.model_validate_json(body)
    except ValidationError as error:
        raise in_words(error) from None
    refuse_unsupported(request)
    return request


def refuse_unsupported(request: ChatRequest) -> None:
    """Raise `ApiError` for unsupported fields that would change the answer."""
    if request.n not in (None, 1):
        raise invalid(f"n must be 1, got {request.n}: a request has one answer.", "n")
    if request.logprobs:
        raise invalid("logprobs are not supported: leave the field out.", "logprobs")
    if request.response_format and request.response_format.get("type") != "text":
        given = str(request.response_format.get("type"))[:40]
        raise invalid(f"response_format must be of type text, got {given!r}.", "response_format")
