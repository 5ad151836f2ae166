"""What a chat completion request may hold: OpenAI's fields that Caesura honours, and our own.

Fields that are not named here are ignored, except the ones that `refuse_unsupported` names: whoever
sends those relies on an answer that would not come. `tool_choice` is honoured as `auto` and
`none`. A named tool restricts the tools that are shown to that one. `required` is accepted and
means `auto`: the model is not forced to call a tool. `parallel_tool_calls` is accepted, and the
model decides how many calls a turn holds.
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

from caesura.runtime.server.errors import ApiError, invalid
from caesura.scheduler.messages import Sampling, ToolSpec

MAX_MESSAGES = 65_536
"""Reading a message takes some microseconds of Python's lock, which no thread can take away."""
MAX_TOOLS = 4_096

Role = Literal["system", "developer", "user", "assistant", "tool"]


def _joined(content: object) -> object:
    """Content as one text: null is empty, text parts are joined by line breaks."""
    if content is None:
        return ""
    if not isinstance(content, list):
        return content
    return "\n".join(_part_text(number, part) for number, part in enumerate(content))


def _part_text(number: int, part: object) -> str:
    if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
        raise ValueError(f"part {number} must be an object with a type")
    if part["type"] != "text":
        raise ValueError(f"part {number} is of type {part['type']!r}; only text is supported")
    if not isinstance(part.get("text"), str):
        raise ValueError(f"part {number} must hold a text")
    return str(part["text"])


def _json_text(arguments: object) -> object:
    """Arguments as JSON text; some clients keep them as an object in their history."""
    return json.dumps(arguments) if isinstance(arguments, dict) else arguments


def _listed(value: object) -> object:
    if value is None:
        return []
    return [value] if isinstance(value, str) else value


Name = Annotated[str, Field(min_length=1, max_length=128)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class CalledFunction(_Part):
    """The function of a call in the history."""

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
            raise ValueError("a tool message must hold the tool_call_id that it answers")
        if self.role != "assistant" and self.tool_calls:
            raise ValueError("only an assistant message may hold tool_calls")
        return self

    def record(self) -> dict[str, Any]:
        """The message as an engine takes it; a developer speaks as the system."""
        role = "system" if self.role == "developer" else self.role
        message: dict[str, Any] = {"role": role, "content": self.content}
        if self.tool_calls:
            message["tool_calls"] = [call.model_dump() for call in self.tool_calls]
        if self.role == "tool":
            message["tool_call_id"] = self.tool_call_id
        return message


class ToolFunction(_Part):
    """What a client's tool is called and takes."""

    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ClientTool(_Part):
    """A tool that the client runs itself."""

    type: Literal["function"]
    function: ToolFunction

    def spec(self) -> ToolSpec:
        """The tool as an engine takes it."""
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
    """What a stream shall hold besides the answer."""

    include_usage: bool = False


class ChatRequest(_Part):
    """The body of `POST /v1/chat/completions`.

    `server_tools` is Caesura's own field: names of tools that the server runs inside the request.
    None runs unless it is named.
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
        """How many tokens the whole answer may hold; the newer of OpenAI's two fields wins."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def include_usage(self) -> bool:
        """Whether a stream shall end with a chunk of usage."""
        return self.stream_options is not None and self.stream_options.include_usage

    def sampling(self) -> Sampling:
        """How to decode."""
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
    """Read a request's body; raises `ApiError` that names the field which is wrong."""
    try:
        request = ChatRequest.model_validate_json(body)
    except ValidationError as error:
        raise _in_words(error) from None
    refuse_unsupported(request)
    return request


def refuse_unsupported(request: ChatRequest) -> None:
    """Raise `ApiError` for what would change the answer and cannot be had."""
    if request.n not in (None, 1):
        raise invalid("n must be 1: a request has one answer.", "n")
    if request.logprobs:
        raise invalid("logprobs are not supported.", "logprobs")
    if request.response_format and request.response_format.get("type") != "text":
        raise invalid("response_format may only be of type text.", "response_format")


def _in_words(error: ValidationError) -> ApiError:
    """The first thing that is wrong, by the path of its field."""
    first = error.errors(include_url=False, include_context=False)[0]
    if first["type"] == "json_invalid":
        return invalid(f"The body is not valid JSON: {first['msg'].partition(': ')[2]}.")
    path = _path(first["loc"])
    if not path:
        return invalid("The body must be a JSON object.")
    if first["type"] == "missing":
        return invalid(f"{path} is missing.", path)
    if first["type"] in ("too_short", "string_too_short"):
        return invalid(f"{path} must not be empty.", path)
    reason = first["msg"].removeprefix("Value error, ")
    return invalid(f"{path}: {reason[:1].lower()}{reason[1:]}.", path)


def _path(location: tuple[int | str, ...]) -> str:
    """`messages[0].content`; what pydantic adds for the arms of a union names no field."""
    path = ""
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step.isidentifier() and step != NamedChoice.__name__:
            path += f".{step}"
    return path.lstrip(".")
