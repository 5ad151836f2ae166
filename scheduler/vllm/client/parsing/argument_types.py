"""What the JSON schema of a tool says of one argument that a model wrote as bare text.

References are looked up in the whole schema, and combinations are followed, since nested models
and enumerations stand behind them. Only types, constants and enumerations are looked at: a value
takes as long to read as its schema is long, whatever that refers to.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from vllm.tool_parsers.utils import coerce_to_schema_type, extract_types_from_schema

KINDS = ("null", "integer", "number", "boolean", "object", "array", "string")
"""The types of JSON, in the order in which vLLM tries to read a text as each."""
_ALIASES = {
    "int": "integer",
    "float": "number",
    "double": "number",
    "bool": "boolean",
    "dict": "object",
    "list": "array",
    "str": "string",
}
"""Names of types that are no JSON schema, and that vLLM takes."""
_ANY: Any = object()


class ArgumentTypes:
    """The types of one argument, and the value that a text is by them."""

    def __init__(self, parameters: Mapping[str, Any], schemas: list[Any]) -> None:
        """Create it for an argument; one of `schemas`, at least, describes it in `parameters`."""
        self._schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
        self._root = parameters
        allowed = [kind for kind in KINDS if self._allows(kind)]
        # A schema that says nothing allows a text, and one that allows nothing helps nobody.
        told = 0 < len(allowed) < len(KINDS)
        self._kinds = allowed if told else _in_order(extract_types_from_schema(self._schema))

    @property
    def is_text(self) -> bool:
        """Whether the argument may be nothing but a text."""
        return self._kinds == ["string"]

    @property
    def only(self) -> str | None:
        """The type of all values but null; None if there are several, or none."""
        kinds = {*self._kinds} - {"null", "integer" if "number" in self._kinds else "null"}
        return kinds.pop() if len(kinds) == 1 else None

    def value(self, text: str) -> Any:
        """Return the first value that the text may be and that the schema allows, or vLLM's choice.

        Raises `RecursionError` for deep nesting.
        """
        for kind in self._kinds:
            value = coerce_to_schema_type(text, kind)
            made = kind_of(value)
            named = made == kind or (made == "integer" and kind == "number")
            if named and self._allows(made, value):
                return value
        return coerce_to_schema_type(text, self._kinds)

    def _allows(self, kind: str, value: Any = _ANY) -> bool:
        return _Question(self._root, kind, value).allowed_by(self._schema)


def types_of(parameters: Any, name: str) -> ArgumentTypes | None:
    """Return the types of an argument by its tool's parameters, or None if they do not name it."""
    if not isinstance(parameters, Mapping):
        return None
    try:
        schemas = list(_described(parameters, parameters, name, set()))
        return ArgumentTypes(parameters, schemas) if schemas else None
    except RecursionError:
        return None


def with_types(parameters: Any) -> Any:
    """Return a tool's parameters, with the types of arguments where parsers of vLLM's look."""
    if not isinstance(parameters, Mapping) or not isinstance(parameters.get("properties"), Mapping):
        return parameters
    typed = {}
    for name, schema in parameters["properties"].items():
        types = types_of(parameters, name) if isinstance(schema, Mapping) else None
        only = types.only if types is not None and "type" not in schema else None
        typed[name] = {**schema, "type": only} if only else schema
    return {**parameters, "properties": typed}


def kind_of(value: Any) -> str:
    """Return the JSON type of a value; a whole number is an integer."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def _in_order(types: list[str]) -> list[str]:
    """Return types of vLLM's as those of JSON, in the order in which they are tried."""
    named = {_ALIASES.get(each.strip().lower(), each.strip().lower()) for each in types}
    return [kind for kind in KINDS if kind in named] or sorted(named)


def _described(root: Mapping[str, Any], schema: Any, name: str, seen: set[int]) -> Iterator[Any]:
    """Yield what a schema of an object, and what it combines, says of one of its members."""
    if not isinstance(schema, Mapping) or id(schema) in seen:
        return
    seen.add(id(schema))
    members = schema.get("properties")
    if isinstance(members, Mapping) and name in members:
        yield members[name]
    elif isinstance(others := schema.get("additionalProperties"), Mapping) and others:
        yield others
    for part in _parts(root, schema):
        yield from _described(root, part, name, seen)


def _parts(root: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the schemas that a schema refers to or combines."""
    if isinstance(reference := schema.get("$ref"), str):
        yield _referred(root, reference)
    for keyword in ("allOf", "anyOf", "oneOf"):
        parts = schema.get(keyword)
        yield from parts if isinstance(parts, list) else ()
    yield from (schema[keyword] for keyword in ("then", "else") if keyword in schema)


def _referred(root: Mapping[str, Any], reference: str) -> Any:
    """Return the part of the schema at a JSON pointer; True, which allows all, if none is there."""
    path, found = unquote(reference), root
    if not path.startswith("#"):
        return True
    for step in path[1:].split("/")[1:]:
        key: Any = step.replace("~1", "/").replace("~0", "~")
        try:
            found = found[int(key) if isinstance(found, list) else key]
        except (LookupError, TypeError, ValueError):
            return True
    return True if path[1:2] not in ("", "/") else found


@dataclass
class _Question:
    """Whether a schema allows values of a kind, or one value of it; each part is asked once."""

    root: Mapping[str, Any]
    kind: str
    value: Any
    answers: dict[int, bool] = field(default_factory=dict)

    def allowed_by(self, schema: Any) -> bool:
        if not isinstance(schema, Mapping):
            return schema is not False
        if id(schema) not in self.answers:
            self.answers[id(schema)] = False  # a schema that stands within itself adds nothing
            self.answers[id(schema)] = self._meets(schema)
        return self.answers[id(schema)]

    def _meets(self, schema: Mapping[str, Any]) -> bool:
        if not self._is_typed(schema.get("type")):
            return False
        if "const" in schema and not self._is_one_of([schema["const"]]):
            return False
        if isinstance(values := schema.get("enum"), list) and not self._is_one_of(values):
            return False
        reference, every = schema.get("$ref"), schema.get("allOf")
        needed = [*every] if isinstance(every, list) else []
        needed += [_referred(self.root, reference)] if isinstance(reference, str) else []
        choices = [
            schema[name] for name in ("anyOf", "oneOf") if isinstance(schema.get(name), list)
        ]
        return all(map(self.allowed_by, needed)) and all(
            any(map(self.allowed_by, choice)) for choice in choices
        )

    def _is_typed(self, given: Any) -> bool:
        types = [given] if isinstance(given, str) else given
        if not isinstance(types, list) or not types:
            return True
        named = {_ALIASES.get(each, each) for each in types if isinstance(each, str)}
        return self.kind in named or (self.kind == "integer" and "number" in named)

    def _is_one_of(self, values: list[Any]) -> bool:
        alike = (each for each in values if _alike(kind_of(each), self.kind))
        return any(self.value is _ANY or each == self.value for each in alike)


def _alike(kind: str, other: str) -> bool:
    """Whether values of the two kinds may be equal; `True` is no 1, but 1.0 is."""
    numbers = ("integer", "number")
    return kind == other or (kind in numbers and other in numbers)
