"""Reads one file into passages, by the format that its suffix names."""

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from caesura.tools.net.body import load_json
from caesura.tools.search.reading.html import html_blocks
from caesura.tools.search.reading.markdown import markdown_blocks, text_blocks
from caesura.tools.search.reading.passages import Heading, Passage, split

MAX_FILE_BYTES = 256 * 2**20
MAX_HTML_BYTES = 32 * 2**20
"""A page is parsed into a tree, which takes many times its size."""


class ReadError(ValueError):
    """A file does not have the format of its suffix. The message says why."""


@dataclass(frozen=True, slots=True)
class Fields:
    """The names of the fields in JSON lines."""

    title: str = "title"
    text: str = "text"
    source: str = "url"
    """The field may be missing in a line; its file and line number then serve as source."""


def read_passages(
    data: bytes, path: Path, source: str, fields: Fields | None = None
) -> Iterator[Passage]:
    """Yield the passages of a file's content.

    source: the file's name in results. fields: the names of JSON lines' fields. Raises ReadError
    when the iteration reaches invalid content.
    """
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise ReadError(f"unsupported format; supported suffixes: {', '.join(SUFFIXES)}")
    return reader(data, path.stem, source, fields or Fields())


def _text(data: bytes, stem: str, source: str, fields: Fields) -> Iterator[Passage]:
    return split(text_blocks(_decoded(data)), stem, source)


def _markdown(data: bytes, stem: str, source: str, fields: Fields) -> Iterator[Passage]:
    blocks = list(markdown_blocks(_decoded(data)))
    first = next((each for each in blocks if isinstance(each, Heading)), None)
    titled = first is not None and first.level == 1 and first.text
    return split(blocks, first.text if first is not None and titled else stem, source)


def _html(data: bytes, stem: str, source: str, fields: Fields) -> Iterator[Passage]:
    if len(data) > MAX_HTML_BYTES:
        raise ReadError(
            f"larger than {MAX_HTML_BYTES // 2**20} MiB, the limit for a page; split it"
        )
    try:
        title, blocks = html_blocks(data, _decoded(data))
    except ValueError as error:
        raise ReadError(str(error)) from None
    return split(blocks, title or stem, source)


def _json_lines(data: bytes, stem: str, source: str, fields: Fields) -> Iterator[Passage]:
    for number, line in enumerate(io.BytesIO(data), 1):
        if not line.strip():
            continue
        try:
            record = load_json(line)
        except ValueError as error:
            raise ReadError(f"line {number} is not valid JSON: {error}") from None
        if not isinstance(record, dict):
            raise ReadError(f"line {number} is not a JSON object")
        values = [record.get(name, "") for name in (fields.title, fields.text, fields.source)]
        title, text, place = ["" if value is None else value for value in values]
        if not isinstance(text, str) or not text.strip():
            raise ReadError(f"line {number} has no text in its field {fields.text!r}")
        if not isinstance(title, str) or not isinstance(place, str):
            raise ReadError(f"line {number}: {fields.title!r} and {fields.source!r} must be text")
        yield from split(
            text_blocks(_valid(text)), _valid(title), _valid(place) or f"{source}:{number}"
        )


def _decoded(data: bytes) -> str:
    """Return a file's text; raises ReadError for binary data and for other encodings than UTF-8."""
    if b"\0" in data:
        raise ReadError("not a text: it contains zero bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ReadError(f"not in UTF-8 (byte {error.start})") from None


def _valid(text: str) -> str:
    """Return the text with zero bytes and lone surrogates replaced."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode()


_Reader = Callable[[bytes, str, str, Fields], Iterator[Passage]]
_READERS: dict[str, _Reader] = {
    ".md": _markdown,
    ".markdown": _markdown,
    ".txt": _text,
    ".text": _text,
    ".rst": _text,
    ".html": _html,
    ".htm": _html,
    ".xhtml": _html,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
}
SUFFIXES = tuple(_READERS)
"""The suffixes of readable files."""
