"""Exports of recordings: a standalone HTML page, JSON, JSON lines, or a trace for Perfetto."""

import base64
import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from caesura.runtime.errors import UsageError
from caesura.runtime.recording.entries import Entry, Recording, encoded
from caesura.runtime.recording.files.page import built
from caesura.runtime.recording.files.perfetto import perfetto
from caesura.runtime.tracing import conventions as names
from caesura.tools.artifacts import ArtifactStore

MAX_ARTIFACT_BYTES = 20 * 2**20
"""The most bytes of pictures and sounds in one export."""
SHOWN = ("image/", "audio/")

Held = tuple[Recording, Iterable[Entry | str]]
"""A recording with its entries; an entry may be its JSON."""


@dataclass(slots=True)
class Exported:
    """Counts of what an export holds."""

    entries: int = 0
    artifacts: int = 0
    left_out: int = 0
    """The number of tools' files that were deleted or did not fit."""


@dataclass(slots=True)
class _Export:
    """One export: counts entries, and collects the names of tools' files in them."""

    artifacts: ArtifactStore | None
    done: Exported = field(default_factory=Exported)
    named: dict[str, None] = field(default_factory=dict)

    def bodies(self, recording: Recording, entries: Iterable[Entry | str]) -> Iterator[str]:
        for entry in entries:
            body = entry if isinstance(entry, str) else encoded(entry)
            self.done.entries += 1
            if recording.content and names.TOOL_ARTIFACTS in body:
                attributes = json.loads(body).get("attributes")
                made = attributes.get(names.TOOL_ARTIFACTS) if isinstance(attributes, dict) else ()
                self.named.update(dict.fromkeys(map(str, made or ())))
            yield body

    def files(self) -> Iterator[tuple[str, str, bytes]]:
        """Yield the name, media type and bytes of each named file that exists and fits."""
        left = MAX_ARTIFACT_BYTES
        for name in self.named if self.artifacts is not None else ():
            data = self._read(name, left)
            if data is None:
                self.done.left_out += 1
                continue
            left -= len(data[1])
            self.done.artifacts += 1
            yield name, *data

    def _read(self, name: str, most: int) -> tuple[str, bytes] | None:
        found = self.artifacts.get(name) if self.artifacts is not None else None
        if found is None or found.size_bytes > most or not found.media_type.startswith(SHOWN):
            return None
        try:
            return found.media_type, found.path.read_bytes()
        except OSError:
            return None


def document(held: Sequence[Held], export: _Export) -> Iterator[str]:
    """Yield the JSON text of recordings with their entries and files, in pieces."""
    yield '{"recordings":['
    for index, (recording, entries) in enumerate(held):
        yield f'{"," if index else ""}{encoded(recording.public())[:-1]},"data":['
        for number, body in enumerate(export.bodies(recording, entries)):
            yield f",\n{body}" if number else body
        yield "]}"
    yield '],"artifacts":{'
    for index, (name, media_type, data) in enumerate(export.files()):
        described = {"type": media_type, "base64": base64.b64encode(data).decode()}
        yield f"{',' if index else ''}{json.dumps(name)}:{json.dumps(described)}"
    yield "}}"


def lines(held: Sequence[Held], export: _Export) -> Iterator[str]:
    """Yield JSON lines: a line of kind `recording` for each recording, then its entries."""
    for recording, entries in held:
        yield f"{encoded({'kind': 'recording', **recording.public()})}\n"
        for body in export.bodies(recording, entries):
            yield f"{body}\n"


def trace(held: Sequence[Held], export: _Export) -> Iterator[str]:
    """Yield one recording in Perfetto's JSON format. Raises `UsageError` for several."""
    if len(held) != 1:
        raise UsageError(
            f"a trace for Perfetto holds one recording, got {len(held)}: export them one by one"
        )
    recording, entries = held[0]
    read = (json.loads(body) for body in export.bodies(recording, entries))
    return perfetto(recording.public(), read)


def page(held: Sequence[Held], export: _Export) -> Iterator[str]:
    """Yield the HTML page that holds the recordings."""
    return built().standalone(document(held, export))


FORMATS: Mapping[str, Callable[[Sequence[Held], _Export], Iterator[str]]] = {
    "html": page,
    "json": document,
    "jsonl": lines,
    "perfetto": trace,
}


def pieces(
    form: str, held: Sequence[Held], artifacts: ArtifactStore | None = None
) -> tuple[Iterator[str], Exported]:
    """Return an export's pieces and its counts, which are complete after the last piece.

    `form` is one of `FORMATS`. A page or a JSON document of recordings with content also holds
    the tools' files in `artifacts`. Raises `UsageError`.
    """
    export = _Export(artifacts)
    return FORMATS[form](held, export), export.done


def write(
    form: str, held: Sequence[Held], path: Path, artifacts: ArtifactStore | None = None
) -> Exported:
    """Write an export to a file atomically; return its counts. Raises `UsageError` on failure."""
    texts, done = pieces(form, held, artifacts)
    # Only the file's owner may read content.
    mode = 0o600 if any(recording.content for recording, _ in held) else 0o666
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):  # a pipe, a device
            with path.open("w", encoding="utf-8") as file:
                file.writelines(texts)
        else:
            _replace(Path(os.path.realpath(path)), texts, mode)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from None
    return done


def _replace(path: Path, texts: Iterable[str], mode: int) -> None:
    made = path.with_name(f".export-{secrets.token_hex(8)}")
    try:
        made.touch(mode, exist_ok=False)
        with made.open("w", encoding="utf-8") as file:
            file.writelines(texts)
        made.replace(path)
    except BaseException:
        with suppress(OSError):
            made.unlink()
        raise


def write_html(
    recordings: Sequence[tuple[Recording, Iterable[Entry]]],
    path: Path,
    artifacts: ArtifactStore | None = None,
) -> Exported:
    """Write one HTML file that shows the recordings and makes no network requests.

    Raises `UsageError` if the page was not built or the file cannot be written.
    """
    return write("html", recordings, path, artifacts)
