"""The text of an application's file: its tables, their types, and the lines of their keys."""

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from caesura.distribution import install
from caesura.planning.application.application import ApplicationError

Place = tuple[str, ...]
"""The keys that lead to a value, such as `("tasks", "judge", "needs")`."""

YAML = (".yaml", ".yml")

_NAME = r"(?:[\w-]+|\"[^\"]*\"|'[^']*')"
_HEADER = re.compile(rf"\s*\[\[?\s*({_NAME}(?:\s*\.\s*{_NAME})*)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(rf"\s*({_NAME}(?:\s*\.\s*{_NAME})*)\s*=")
_QUOTES = ('"""', "'''")


@dataclass(frozen=True, slots=True)
class Source:
    """A file's values, and the lines at which their keys stand."""

    path: Path
    values: Mapping[str, Any]
    lines: Mapping[Place, int]

    def error(self, place: Place, message: str) -> ApplicationError:
        """Return an error that names the file, the line of the nearest known key, and the table."""
        known = (place[:length] for length in range(len(place), 0, -1))
        line = next((self.lines[each] for each in known if each in self.lines), None)
        where = f"{self.path}" + ("" if line is None else f", line {line}")
        table = f"[{'.'.join(place[:2])}] " if place else ""
        return ApplicationError(f"{where}: {table}{message}")


def read_source(path: Path) -> Source:
    """Read a TOML file, or a YAML file by its suffix; raises `ApplicationError`."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise ApplicationError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ApplicationError(f"{path}: is not UTF-8 text") from None
    if path.suffix in YAML:
        return _read_yaml(path, text)
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ApplicationError(f"{path}: not valid TOML: {error}") from None
    lines: dict[Place, int] = {}
    for place, line in _toml_lines(text):
        lines.setdefault(place, line)
    return Source(path, values, lines)


def _toml_lines(text: str) -> Iterator[tuple[Place, int]]:
    """Yield the keys of TOML text and their lines, keys of inline tables left out.

    A table that has several headers is yielded with each.
    """
    table: Place = ()
    within = ""
    for number, line in enumerate(text.splitlines(), 1):
        if within:
            within = "" if within in line else within
            continue
        if header := _HEADER.match(line):
            table = _names(header[1])
            yield from ((table[:length], number) for length in range(1, len(table) + 1))
        elif key := _KEY.match(line):
            yield (*table, *_names(key[1])), number
        opened = [quote for quote in _QUOTES if line.count(quote) % 2]
        within = opened[0] if opened else ""


def _names(dotted: str) -> Place:
    return tuple(name.strip("\"'") for name in re.findall(_NAME, dotted))


def _read_yaml(path: Path, text: str) -> Source:
    try:
        import yaml
    except ModuleNotFoundError:
        raise ApplicationError(
            f"{path}: reading YAML takes PyYAML: install it ({install('planning')}), or"
            " write the application as TOML"
        ) from None
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        values = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ApplicationError(f"{path}, line {line}: not valid YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise ApplicationError(f"{path}: not valid YAML: {error}") from None
    if not isinstance(values, dict):
        raise ApplicationError(f"{path}: must be a mapping of tables, got {values!r:.60}")
    lines: dict[Place, int] = {}
    for place, line in _yaml_lines(root, ()):
        if place in lines:
            raise ApplicationError(
                f"{path}, line {line}: the key {'.'.join(place)!r} is given twice, first in line"
                f" {lines[place]}: remove one"
            )
        lines[place] = line
    return Source(path, values, lines)


def _yaml_lines(node: Any, place: Place) -> Iterator[tuple[Place, int]]:
    if not isinstance(node.value, list) or node.id != "mapping":
        return
    for key, value in node.value:
        inner = (*place, str(key.value))
        yield inner, key.start_mark.line + 1
        yield from _yaml_lines(value, inner)


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
