"""What a recording is made of: plain entries, as `docs/serving.md` and `docs/tracing.md` list them.

Readers ignore kinds and fields that they do not know, and do without those that are missing.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple, Self

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
        """Read `public` back; whatever is missing gets its default."""
        known = {each.name: data[each.name] for each in fields(cls) if each.name in data}
        defaults: Entry = {"id": "recording", "title": "", "source": "records", "started": 0.0}
        return cls(**{**defaults, **known})


class Row(NamedTuple):
    """An entry ready to be stored: what it is found by, and its JSON."""

    kind: str
    request: str | None
    body: str


def encoded(entry: Mapping[str, Any]) -> str:
    """The JSON of an entry, always an object that a browser takes: numbers that are none go."""
    try:
        return json.dumps(entry, separators=(",", ":"), allow_nan=False, default=str)
    except ValueError:
        return json.dumps(_finite(entry), separators=(",", ":"), default=str)


def row_of(entry: Mapping[str, Any]) -> Row:
    """Encode an entry. Raises TypeError or ValueError for what is none."""
    request = entry.get("request")
    kind = str(entry["kind"]) if "kind" in entry else ""
    return Row(kind, request if isinstance(request, str) else None, encoded(entry))


def gap(at: float, lost: int, why: str) -> Entry:
    """The entry that stands for others which were lost."""
    return {"kind": "gap", "at": at, "lost": lost, "why": why}


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value
