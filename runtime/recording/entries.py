"""The entries of a recording, which `docs/reference/records.md` and `docs/reference/spans.md` list.

Readers ignore unknown kinds and fields, and tolerate missing fields.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Self

from pydantic_core import PydanticSerializationError, to_json

from caesura.runtime.recording.conventions import CONTENT
from caesura.scheduler.records import GapRecord

Entry = dict[str, Any]
"""One entry: its `kind` and the fields of that kind.

Times are Unix seconds, and seconds since the start in a simulation.
"""

ARTIFACTS = "artifacts_directory"
"""The fact about a recording that says where its tools' files lie; it stays on this machine."""
SERVER = "server"
"""The fact about a recording that says by its name which of several servers made it."""
SOURCES = ("serve", "simulate", "what-if", "records", "sdk", "plan")


@dataclass(frozen=True, slots=True)
class Recording:
    """One run of one server, of one simulation, or one file of records."""

    id: int | str
    title: str
    source: str
    started: float
    ended: float | None = None
    """None if the recording is live, or if its end is unknown."""
    live: bool = False
    entries: int = 0
    content: bool = False
    """Whether the spans' attributes hold messages, arguments and results."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """Facts with free names and plain values, such as the model and the policies."""
    trimmed: int = 0
    """The number of the first entries that were deleted to make room."""
    note: str = ""
    """What a user wrote about it."""
    pinned: bool = False
    """Whether it is kept whatever the file's bounds on age and size."""
    sessions: int = 0
    """The number of sessions that ended; 0 if unknown."""

    def public(self) -> Entry:
        """Return the recording as plain data, without the places of files on this machine."""
        about = {name: self.about[name] for name in self.about if name != ARTIFACTS}
        return {**asdict(self), "about": about}

    @classmethod
    def from_public(cls, data: Mapping[str, Any]) -> Self:
        """Return a recording from the data of `public`; wrong or missing fields get defaults."""
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
    "note": str,
    "pinned": bool,
    "sessions": int,
}
"""The types of a recording's fields."""


class Row(NamedTuple):
    """An entry ready to be stored: the columns it is found by, and its JSON."""

    kind: str
    request: str | None
    body: str
    size: int
    """Bytes of the JSON, in UTF-8."""


def encoded(entry: Mapping[str, Any]) -> str:
    """Return the JSON of an entry for a browser: NaN and infinities become null."""
    return _encoded(entry).decode()


def _encoded(entry: Mapping[str, Any]) -> bytes:
    try:
        return to_json(entry, inf_nan_mode="null", fallback=str)
    except PydanticSerializationError:  # a lone surrogate, which JSON can escape
        return json.dumps(_finite(entry), separators=(",", ":"), default=str).encode()


def without_content(entry: Entry) -> Entry:
    """Return a span without its content attributes; return any other entry unchanged."""
    attributes = entry.get("attributes")
    if not isinstance(attributes, Mapping):
        return entry
    left = {name: attributes[name] for name in attributes if name not in CONTENT}
    return {**entry, "attributes": left}


def row_of(entry: Mapping[str, Any]) -> Row:
    """Return an entry as a row. Raises TypeError or ValueError if it cannot be encoded."""
    request = entry.get("request")
    kind = str(entry["kind"]) if "kind" in entry else ""
    found_by = _utf8(request) if isinstance(request, str) else None
    body = _encoded(entry)
    return Row(_utf8(kind), found_by, body.decode(), len(body))


def gap(at: float, lost: int, why: str) -> Entry:
    """Return the entry that stands for lost entries."""
    return GapRecord(at=at, lost=lost, why=why).entry()


def _utf8(text: str) -> str:
    """Return the text in UTF-8, which SQLite requires; JSON can escape any text."""
    return text.encode("utf-8", "replace").decode()


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value
