"""Recordings in files of JSON lines, which `caesura serve --records` and exports write."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from caesura.runtime.errors import UsageError
from caesura.runtime.recording.entries import Recording
from caesura.runtime.recording.window import times_of

MAX_SHOWN_CHARACTERS = 40
Read = tuple[Recording, list[str]]
"""A recording and the JSON of its entries."""


def read_lines(path: Path) -> list[Read]:
    """Return the recordings of a file. A file of records is one recording without a header line.

    Raises `UsageError` for a file that is unreadable or holds no records.
    """
    found: list[_Reading] = []
    for body, entry in _lines(path):
        if entry.get("kind") == "recording":
            found.append(_Reading(entry))
            continue
        if not found:
            found.append(_Reading({"id": path.stem, "title": path.name}))
        found[-1].take(body, entry)
    if not found:
        raise UsageError(f"{path} holds no records: `caesura serve --records` writes such files")
    return [each.done() for each in found]


class _Reading:
    """One recording while its lines are read."""

    def __init__(self, described: dict[str, Any]) -> None:
        self._described = described
        self._bodies: list[str] = []
        self._first: float | None = None
        self._last: float | None = None

    def take(self, body: str, entry: dict[str, Any]) -> None:
        self._bodies.append(body)
        times = times_of(entry)
        if times is not None:
            self._first = times[0] if self._first is None else min(self._first, times[0])
            self._last = times[1] if self._last is None else max(self._last, times[1])

    def done(self) -> Read:
        seen = {"started": self._first or 0.0, "ended": self._last, "entries": len(self._bodies)}
        described = {**seen, **self._described, "live": False, "entries": len(self._bodies)}
        if described["ended"] is None:
            described["ended"] = self._last
        return Recording.from_public(described), self._bodies


def _lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each line with its entry; skip an incomplete last line."""
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                body = line.strip()
                if not body:
                    continue
                try:
                    entry = json.loads(body)
                except ValueError:
                    if not line.endswith("\n"):
                        return
                    entry = None
                if not isinstance(entry, dict):
                    raise UsageError(
                        f"{path}, line {number}: {body[:MAX_SHOWN_CHARACTERS]!r} is not a JSON"
                        " object; delete the line, or choose a file of records"
                    )
                yield body, entry
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} cannot be read: it is not UTF-8 text") from None
