"""What a recording is made of: plain entries, as `docs/serving.md` and `docs/tracing.md` list them.

Readers ignore kinds and fields that they do not know, and do without those that are missing.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Self

from pydantic_core import PydanticSerializationError, to_json

from caesura.runtime.tracing.conventions import CONTENT
from caesura.scheduler.records import GapRecord

Entry = dict[str, Any]
"""One entry: `kind`, and what that kind tells. Times are Unix seconds; simulations begin at 0."""

SOURCES = ("serve", "simulate", "records", "sdk")


@dataclass(frozen=True, slots=True)
class Recording:
    """One run of one server, of one simulation, or one file of records."""

    id: int | str
    title: str
    source: str
    started: float
    ended: float | None = None
    """None: it is live, or nobody knows."""
    live: bool = False
    entries: int = 0
    content: bool = False
    """Whether what was said is among the spans' attributes."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """The model, the policies, the machine: free names and plain values."""
    trimmed: int = 0
    """So many of its first entries were deleted to make room."""

    def public(self) -> Entry:
        """As plain data."""
        return {**asdict(self), "about": dict(self.about)}

    @classmethod
    def from_public(cls, data: Mapping[str, Any]) -> Self:
        """Read `public` back; whatever is missing, or is something else, gets its default."""
        known = {name: data[name] for name in TYPES if isinstance(data.get(name, ...), TYPES[name])}
        defaults: Entry = {"id": "recording", "title": "", "source": "records", "started": 0.0}
        return cls(**{**defaults, **known})


TYPES: dict[str, Any] = {
    "id": int | str,
    "title": str,
    "source": str,
    "started": int | float,
    "ended": int | float | None,
    "live": bool,
    "entries": int,
    "content": bool,
    "about": Mapping,
    "trimmed": int,
}
"""What the fields of a recording are."""


class Row(NamedTuple):
    """An entry ready to be stored: what it is found by, and its JSON."""

    kind: str
    request: str | None
    body: str
    size: int
    """Bytes of the JSON, in UTF-8."""


def encoded(entry: Mapping[str, Any]) -> str:
    """The JSON of an entry, always an object that a browser takes: numbers that are none go."""
    return _encoded(entry).decode()


def _encoded(entry: Mapping[str, Any]) -> bytes:
    try:
        return to_json(entry, inf_nan_mode="null", fallback=str)
    except PydanticSerializationError:  # text that is no Unicode, for which JSON has a way
        return json.dumps(_finite(entry), separators=(",", ":"), default=str).encode()


def without_content(entry: Entry) -> Entry:
    """A span without what was said in it; any other entry as it is."""
    attributes = entry.get("attributes")
    if not isinstance(attributes, Mapping):
        return entry
    left = {name: attributes[name] for name in attributes if name not in CONTENT}
    return {**entry, "attributes": left}


def row_of(entry: Mapping[str, Any]) -> Row:
    """Encode an entry. Raises TypeError or ValueError for what is none."""
    request = entry.get("request")
    kind = str(entry["kind"]) if "kind" in entry else ""
    found_by = _utf8(request) if isinstance(request, str) else None
    body = _encoded(entry)
    return Row(_utf8(kind), found_by, body.decode(), len(body))


def gap(at: float, lost: int, why: str) -> Entry:
    """The entry that stands for others which were lost."""
    return GapRecord(at=at, lost=lost, why=why).entry()


def _utf8(text: str) -> str:
    """The text as SQLite takes it, where JSON has a way to write everything."""
    return text.encode("utf-8", "replace").decode()


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value
