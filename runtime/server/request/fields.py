"""The parts of which the schemas of all APIs are made."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

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
