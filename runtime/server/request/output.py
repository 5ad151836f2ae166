"""The fields of a request that constrain what the model may write: formats and tool choices."""

from typing import Annotated, Any, Literal, Self

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from pydantic import Field, field_validator, model_validator

from caesura.runtime.server.request.fields import Name, Part, Strict
from caesura.scheduler.messages import TextFormat

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


class AllowedTools(Part):
    """The tools that may be called among those that are shown."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedChoice], Field(min_length=1)]


class AllowedChoice(Part):
    """`tool_choice` with a list of allowed tools."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the allowed tools."""
        return tuple(tool.function.name for tool in self.allowed_tools.tools)


ToolChoice = NamedChoice | AllowedChoice
