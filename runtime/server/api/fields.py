"""The fields that requests of several APIs share, their checks, and errors of them in words.

The fields say what the model may write (formats and tool choices), how tokens are sampled, and what
the model's chat template is told.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    ValidationError,
    field_validator,
    model_validator,
)

from caesura.runtime.server.http.errors import ApiError, invalid
from caesura.runtime.server.http.wording import without_classes
from caesura.scheduler.messages import Sampling, TextFormat

MAX_MESSAGES = 65_536
"""Parsing a message holds Python's GIL for some microseconds, so the number needs a bound."""
MAX_TOOLS = 4_096
MAX_NAME_CHARACTERS = 128
Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARACTERS)]
NotEmpty = Annotated[str, Field(min_length=1)]
Priority = Annotated[int, Field(ge=-(2**31), lt=2**31)]
"""Where vLLM schedules by priority; larger integers cannot be sent to the engine."""


class Part(BaseModel):
    """A part of a request; fields that it does not name are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Strict(BaseModel):
    """A part of a request that has no other fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _listed(value: object) -> object:
    if value is None:
        return []
    return [value] if isinstance(value, str) else value


Listed = BeforeValidator(_listed)
"""Marks a list that may be sent as null, which is an empty list, or as one text."""


class BackgroundName(str):
    """The name of a tool of the server for whose results the model does not wait."""

    __slots__ = ()


class NamedServerTool(Strict):
    """A tool of the server, and whether the model goes on while its calls run."""

    name: str
    async_: Annotated[bool | None, Field(alias="async")] = None


def _server_tool(given: str | NamedServerTool) -> str:
    if isinstance(given, str):
        return given
    return BackgroundName(given.name) if given.async_ else given.name


ServerToolNames = Annotated[
    list[Annotated[str | NamedServerTool, AfterValidator(_server_tool)]], Listed
]
"""The names of the server's tools in a request, some of them in the background."""


def sent_again(names: Sequence[Any]) -> list[Any]:
    """Return names of the server's tools as a request may hold them."""
    return [
        {"name": str(each), "async": True} if isinstance(each, BackgroundName) else each
        for each in names
    ]


def _waits(given: bool | None) -> bool | None:
    if given:
        raise ValueError(
            "is not possible here, where a call ends the answer: use /v1/responses, where the model"
            " goes on behind the call of an async tool"
        )
    return given


Waits = Annotated[bool | None, Field(alias="async"), AfterValidator(_waits)]
"""`async` of a client's tool, where an answer ends with its calls."""
MAX_CHOICE_TEXTS = 1024
MAX_PATTERN_CHARACTERS = 65_536
"""The longest regular expression or grammar; compiling one takes time that grows with it."""
Pattern = Annotated[str, Field(min_length=1, max_length=MAX_PATTERN_CHARACTERS)]


def valid_schema(schema: Any) -> Any:
    """Return a JSON schema; raise `ValueError` if it is not one."""
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise ValueError(f"not a valid JSON schema: {error.message:.200}") from None
    return schema


class JsonSchema(Part):
    """The named schema of `response_format`; it is enforced whether `strict` or not."""

    name: Name
    schema_: dict[str, Any] = Field(alias="schema")

    _valid = field_validator("schema_")(valid_schema)


class ResponseFormat(Part):
    """OpenAI's `response_format`."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @model_validator(mode="after")
    def _has_schema(self) -> Self:
        if self.type == "json_schema" and self.json_schema is None:
            raise ValueError("json_schema is missing: it holds the name and the schema")
        return self

    def text(self) -> TextFormat | None:
        """Return the format of the answer, or None for free text."""
        if self.json_schema is not None and self.type == "json_schema":
            return TextFormat("json_schema", self.json_schema.schema_)
        return TextFormat("json_object") if self.type == "json_object" else None


class StructuredOutputs(Strict):
    """vLLM's `structured_outputs`: one of the ways to constrain the answer's text."""

    json_: dict[str, Any] | None = Field(None, alias="json")
    json_object: Literal[True] | None = None
    regex: Pattern | None = None
    choice: Annotated[list[Name], Field(min_length=1, max_length=MAX_CHOICE_TEXTS)] | None = None
    grammar: Pattern | None = None

    @field_validator("json_")
    @classmethod
    def _valid(cls, schema: Any) -> Any:
        return schema if schema is None else valid_schema(schema)

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = sum(value is not None for _, value in self)
        if given != 1:
            raise ValueError(f"exactly one constraint must be given, got {given}")
        return self

    def text(self) -> TextFormat:
        """Return the format of the answer."""
        if self.json_ is not None:
            return TextFormat("json_schema", self.json_)
        if self.regex is not None:
            return TextFormat("regex", self.regex)
        if self.choice is not None:
            return TextFormat("choice", tuple(self.choice))
        if self.grammar is not None:
            return TextFormat("grammar", self.grammar)
        return TextFormat("json_object")


class ChosenFunction(Part):
    """The function that a tool choice names."""

    name: Name


class NamedChoice(Part):
    """`tool_choice` as an object: the one tool to call."""

    type: Literal["function"]
    function: ChosenFunction

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self.function.name


class CustomChoice(Part):
    """`tool_choice` as an object: the one custom tool to call."""

    type: Literal["custom"]
    custom: ChosenFunction

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self.custom.name


class AllowedTools(Part):
    """The tools that may be called among those that are shown."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedChoice | CustomChoice], Field(min_length=1)]


class AllowedChoice(Part):
    """`tool_choice` with a list of allowed tools."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the allowed tools."""
        return tuple(tool.name for tool in self.allowed_tools.tools)


ToolChoice = NamedChoice | CustomChoice | AllowedChoice
MAX_TOP_LOGPROBS = 20
MAX_STOPS = 64
"""Each stop text is looked for at every token, in the engine too."""
MAX_BAD_WORDS = 1_024
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
Penalty = Annotated[FiniteFloat, Field(ge=-2, le=2)]


class SamplingFields(BaseModel):
    """Fields of OpenAI's and vLLM's that set how tokens are sampled."""

    temperature: Annotated[FiniteFloat, Field(ge=0, le=2)] | None = None
    top_p: Annotated[FiniteFloat, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    min_p: Annotated[FiniteFloat, Field(ge=0, le=1)] | None = None
    min_tokens: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: Annotated[list[NotEmpty], Field(max_length=MAX_STOPS), Listed] = []
    stop_token_ids: Annotated[list[TokenId], Field(max_length=MAX_BAD_WORDS), Listed] = []
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[FiniteFloat, Field(gt=0, le=2)] | None = None
    logit_bias: dict[TokenId, Annotated[FiniteFloat, Field(ge=-100, le=100)]] | None = None
    bad_words: Annotated[list[NotEmpty], Field(max_length=MAX_BAD_WORDS), Listed] = []
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    structured_outputs: StructuredOutputs | None = None

    def sampling_with(
        self, max_tokens: int | None, logprobs: bool, text: TextFormat | None
    ) -> Sampling:
        """Return the sampling settings; the answer's text has the form `text`, if any."""
        return Sampling(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            max_tokens=max_tokens,
            seed=self.seed,
            stop=tuple(self.stop),
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            repetition_penalty=self.repetition_penalty,
            min_p=self.min_p,
            min_tokens=self.min_tokens,
            stop_token_ids=tuple(self.stop_token_ids),
            logit_bias=self.logit_bias or {},
            bad_words=tuple(self.bad_words),
            logprobs=(self.top_logprobs or 0) if logprobs else None,
            text=text,
        )


RESERVED = frozenset(
    {
        "add_generation_prompt",
        "chat_template",
        "continue_final_message",
        "conversation",
        "messages",
        "return_dict",
        "return_tensors",
        "tokenize",
        "tools",
    }
)
"""Variables of chat templates that a request must not set."""


def _free(variables: dict[str, Any]) -> dict[str, Any]:
    for name in sorted(RESERVED & set(variables)):
        raise ValueError(f"may not set {name}, which the server sets itself")
    return variables


TemplateVariables = Annotated[dict[str, Any], AfterValidator(_free)]
"""vLLM's field `chat_template_kwargs`."""


def template_variables(effort: str | None, variables: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the variables for the template, as vLLM's server names them.

    `effort` is that of the request's reasoning; `variables` come before what it implies.
    """
    given: dict[str, Any] = {}
    if effort is not None:
        given["reasoning_effort"] = effort
        given["enable_thinking"] = effort != "none"
    return given | dict(variables or {})


def in_words(error: ValidationError) -> ApiError:
    """Return the first validation error as an `ApiError` with the path of its field."""
    first = error.errors(include_url=False, include_context=False)[0]
    if first["type"] == "json_invalid":
        return invalid(f"The body is not valid JSON: {first['msg'].partition(': ')[2]}.")
    path = _path(first["loc"])
    if not path:
        return invalid("The body must be a JSON object.")
    if first["type"] == "missing":
        return invalid(f"{path} is missing.", path)
    if first["type"] == "extra_forbidden":
        return invalid(f"{path} is not a field that this server knows: leave it out.", path)
    if first["type"] in ("too_short", "string_too_short"):
        return invalid(f"{path} must not be empty.", path)
    return invalid(f"{path}: {without_classes(first['msg'])}.", path)


def _path(location: tuple[int | str, ...]) -> str:
    """Return a path such as `messages[0].content`, without pydantic's names of union members.

    The members are classes, whose names begin with a capital, and literals in brackets.
    """
    path = ""
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step.isidentifier() and not step[:1].isupper():
            path += f".{step}"
    return path.lstrip(".")
