"""Recordings as files: the HTML page, JSON, JSON lines, or a trace for Perfetto.

Files of JSON lines, which `caesura serve --records` and exports write, are read again.
"""

import base64
import hashlib
import json
import os
import re
import secrets
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Self

from caesura.runtime.recording import conventions as names
from caesura.runtime.recording.entries import Entry, Recording, encoded
from caesura.runtime.recording.perfetto import perfetto
from caesura.runtime.recording.window import times_of
from caesura.scheduler.errors import UsageError
from caesura.tools.artifacts import ArtifactStore

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


NAMES = ("index.html", "ui.js", "ui.css")
NOT_BUILT = "the page was not built: run `npm ci` and `npm run build` in the folder ui"
PIECE_BYTES = 3 * 2**16
"""A multiple of three bytes, so that the base64 texts of pieces can be concatenated."""

_SCRIPT = re.compile(r"<script\b[^>]*\bsrc=[^>]*></script>\s*")
_STYLES = re.compile(r"<link\b[^>]*\brel=\"?stylesheet\"?[^>]*>\s*")
_POLICY = re.compile(r"<meta\b[^>]*Content-Security-Policy[^>]*>\s*", re.IGNORECASE)
_TAG = re.compile(r"<(?=/?script)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class BuiltPage:
    """The page's three files."""

    html: str
    script: str
    styles: str

    @classmethod
    def load(cls) -> Self:
        """Return the page from its files. Raises `UsageError` if the page was not built."""
        # The path starts at the package, since a development checkout may link to this module.
        static = files("caesura").joinpath("runtime", "static")
        try:
            html, script, styles = (static.joinpath(name).read_text("utf-8") for name in NAMES)
        except OSError:
            raise UsageError(NOT_BUILT) from None
        return cls(html, script, styles)

    def standalone(self, data: Iterable[str]) -> Iterator[str]:
        """Yield the pieces of one HTML file that holds the page and data, and loads nothing.

        `data` is the JSON text that `ui/src/sources/embedded.ts` reads.
        """
        # Escaped, a `</script>` in a JavaScript string does not end the HTML tag.
        script = _TAG.sub(r"\\x3c", self.script)
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy = (
            f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline';"
            " img-src data: blob:; media-src data: blob:; base-uri 'none'; form-action 'none'"
        )
        html = _POLICY.sub("", _STYLES.sub("", _SCRIPT.sub("", self.html)))
        head, found, tail = html.partition("<head>")
        body, end, rest = tail.rpartition("</body>")
        if not found or not end:
            raise UsageError(NOT_BUILT)
        yield f'{head}{found}\n<meta http-equiv="Content-Security-Policy" content="{policy}">'
        yield f"\n<style>{self.styles}</style>{body}"
        yield '<script type="application/octet-stream" id="caesura-data">'
        yield from packed(data)
        yield f'</script>\n<script type="module">{script}</script>\n{end}{rest}'


@cache
def built() -> BuiltPage:
    """Return the page, which is read once. Raises `UsageError` if it was not built."""
    return BuiltPage.load()


def packed(texts: Iterable[str]) -> Iterator[str]:
    """Yield texts as gzip in base64, in pieces; the same text gives the same output."""
    packer = zlib.compressobj(6, wbits=31)
    left = b""
    for text in texts:
        left += packer.compress(text.encode())
        if len(left) >= PIECE_BYTES:
            whole = len(left) // 3 * 3
            yield base64.b64encode(left[:whole]).decode()
            left = left[whole:]
    yield base64.b64encode(left + packer.flush()).decode()


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

    artifacts: Sequence[ArtifactStore]
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
        for name in self.named if self.artifacts else ():
            data = self._read(name, left)
            if data is None:
                self.done.left_out += 1
                continue
            left -= len(data[1])
            self.done.artifacts += 1
            yield name, *data

    def _read(self, name: str, most: int) -> tuple[str, bytes] | None:
        stored = (store.get(name) for store in self.artifacts)
        found = next((each for each in stored if each is not None), None)
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


def html(held: Sequence[Held], export: _Export) -> Iterator[str]:
    """Yield the HTML page that holds the recordings."""
    return built().standalone(document(held, export))


FORMATS: Mapping[str, Callable[[Sequence[Held], _Export], Iterator[str]]] = {
    "html": html,
    "json": document,
    "jsonl": lines,
    "perfetto": trace,
}


def pieces(
    form: str, held: Sequence[Held], artifacts: Sequence[ArtifactStore] = ()
) -> tuple[Iterator[str], Exported]:
    """Return an export's pieces and its counts, which are complete after the last piece.

    `form` is one of `FORMATS`. A page or a JSON document of recordings with content also holds
    the tools' files in `artifacts`. Raises `UsageError`.
    """
    export = _Export(artifacts)
    return FORMATS[form](held, export), export.done


def write(
    form: str, held: Sequence[Held], path: Path, artifacts: Sequence[ArtifactStore] = ()
) -> Exported:
    """Write an export to a file atomically; return its counts. Raises `UsageError` on failure."""
    texts, done = pieces(form, held, artifacts)
    write_texts(texts, path, private=any(recording.content for recording, _ in held))
    return done


def write_texts(texts: Iterable[str], path: Path, *, private: bool) -> None:
    """Write texts to a file atomically; a private one only its owner may read.

    Raises `UsageError` if the file cannot be written.
    """
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):  # a pipe, a device
            with path.open("w", encoding="utf-8") as file:
                file.writelines(texts)
        else:
            _replace(Path(os.path.realpath(path)), texts, 0o600 if private else 0o666)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from None


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
    artifacts: Sequence[ArtifactStore] = (),
) -> Exported:
    """Write one HTML file that shows the recordings and makes no network requests.

    Raises `UsageError` if the page was not built or the file cannot be written.
    """
    return write("html", recordings, path, artifacts)
