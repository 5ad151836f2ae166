"""The tables of an application's file, and their types and bounds."""

import difflib
from collections.abc import Iterable
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from caesura.planning.application.source import Place, Source

MAX_SAMPLES = 1024
"""The most samples of one row, in requests."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


Count = Annotated[int, Field(ge=1)]


class ApplicationTable(_Table):
    """`[application]`."""

    name: str = Field(min_length=1)
    seed: int = 0
    devices: int = Field(default=0, ge=0)


class ModelTable(_Table):
    """`[models.NAME]`; without a `path` it is the bundled model."""

    path: str = ""
    arguments: list[str] = []
    tensor_parallel: list[Count] = Field(default=[1], min_length=1)
    max_replicas: int = Field(default=0, ge=0)
    lengths: str = ""
    machines: dict[int, str] = {}
    config: str = ""


class TaskTable(_Table):
    """`[tasks.NAME]`: of one `model`, of each of several `models`, or of a `route` by shares."""

    model: str = ""
    models: list[str] = []
    route: dict[str, Annotated[float, Field(gt=0, le=1)]] = {}
    prompts: str = ""
    template: str = ""
    template_file: str = ""
    needs: list[str] = []
    loop: str = ""
    samples: int = Field(default=1, ge=1, le=MAX_SAMPLES)
    max_tokens: int = Field(default=256, ge=1)
    temperature: float = Field(default=0.0, ge=0, le=2)
    system: str = ""
    asks: list[str] = []
    tools: list[str] = []


Kind = TypeVar("Kind", bound=_Table)


def read_table(source: Source, place: Place, kind: type[Kind]) -> Kind:
    """Return the table at `place`; raises `ApplicationError` with the line of what is wrong."""
    values = table_at(source, place)
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        keys = tuple(str(each) for each in first["loc"])
        raise source.error((*place, *keys), _description(first, keys, kind)) from None


def table_at(source: Source, place: Place) -> dict[str, object]:
    """Return the values of the table at `place`; none if there is no such table."""
    found: object = source.values
    for key in place:
        found = found.get(key, {}) if isinstance(found, dict) else {}
    if not isinstance(found, dict):
        raise source.error(place, f"must be a table, got {found!r:.60}")
    return found


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """Return the message for an unknown name: the nearest one, and all known ones."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown {what} {name!r}; {hint}known: {', '.join(names) or 'none'}"


def _description(detail: ErrorDetails, keys: Place, kind: type[_Table]) -> str:
    if detail["type"] == "extra_forbidden":
        return unknown("key", keys[-1], kind.model_fields)
    if detail["type"] == "missing":
        return f"{'.'.join(keys)} is missing: add it"
    said = detail["msg"][:1].lower() + detail["msg"][1:]
    return f"{'.'.join(keys)}: {said}, got {detail['input']!r:.60}"
