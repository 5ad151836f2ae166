"""Reading documents into passages of about 200 words: text, Markdown, HTML and JSON lines.

A file's suffix names its format. A format is read into blocks, which are headings and paragraphs;
HTML without scripts, styles and navigation. Passages end at borders of blocks.
"""

import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from selectolax.lexbor import LexborHTMLParser, LexborNode

from caesura.tools.net import load_json

PASSAGE_WORDS = 200
"""The target length of a passage."""
MAX_WORDS = 260
"""The maximum length of a passage; a longer paragraph is split between sentences."""
_WORD_CHARACTERS = 6
"""Characters that count as one word in text without blanks."""
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+|(?<=[。！？])")
_MAX_TITLE_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of a document; level 1 is the topmost."""

    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A unit of text: a paragraph, a list item, a table cell."""

    text: str


Block = Heading | Paragraph


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a document, the unit of search."""

    title: str
    """The document's title and the headings above the passage: `Trees > Oak`."""
    text: str
    source: str


def split(blocks: Iterable[Block], title: str, source: str) -> Iterator[Passage]:
    """Yield the passages of a document.

    title: the document's title; a first heading with the same text is not repeated.
    """
    path: list[Heading] = []
    collected: list[str] = []
    size = 0.0

    def passage() -> Passage:
        heads = [title, *(heading.text for heading in path)]
        named = [head for number, head in enumerate(heads) if head and head not in heads[:number]]
        return Passage(" > ".join(named)[:_MAX_TITLE_CHARACTERS], "\n".join(collected), source)

    for block in blocks:
        if isinstance(block, Heading):
            if collected:
                yield passage()
                collected, size = [], 0.0
            path = [heading for heading in path if heading.level < block.level]
            path.append(Heading(block.level, " ".join(block.text.split())))
            continue
        for piece in _pieces(block.text):
            words = size_of(piece)
            if collected and size + words > MAX_WORDS:
                yield passage()
                collected, size = [], 0.0
            collected.append(piece)
            size += words
            if size >= PASSAGE_WORDS:
                yield passage()
                collected, size = [], 0.0
    if collected:
        yield passage()


def size_of(text: str) -> float:
    """Return the length of a text in words, where an overlong word counts as several."""
    return max(len(text.split()), len(text) / (2 * _WORD_CHARACTERS))


def _pieces(text: str) -> Iterator[str]:
    """Yield a paragraph in one piece, or in several if it is too long."""
    text = " ".join(text.split())
    if not text:
        return
    if size_of(text) <= MAX_WORDS:
        yield text
        return
    collected: list[str] = []
    size = 0.0
    for unit in _units(text):
        words = size_of(unit)
        if collected and size + words > PASSAGE_WORDS:
            yield " ".join(collected)
            collected, size = [], 0.0
        collected.append(unit)
        size += words
    yield " ".join(collected)


def _units(text: str) -> Iterator[str]:
    """Yield sentences, or runs of words or characters where those are too long."""
    most_characters = PASSAGE_WORDS * _WORD_CHARACTERS
    for sentence in _SENTENCE_END.split(text):
        if size_of(sentence) <= PASSAGE_WORDS:
            if sentence:
                yield sentence
            continue
        for word in sentence.split():
            for start in range(0, len(word), most_characters):
                yield word[start : start + most_characters]


MAX_MARKDOWN_NESTING = 100
"""The deepest nesting of lists and quotes; the parser leaves out what is deeper."""
MAX_INLINE_CHARACTERS = 10_000
"""A longer paragraph keeps its marks: the parser's time grows with the square of its length."""
_PARSER = (
    MarkdownIt("commonmark", {"maxNesting": MAX_MARKDOWN_NESTING}).enable("table").disable("inline")
)


def text_blocks(text: str) -> Iterator[Block]:
    """Yield the paragraphs of a plain text, which empty lines separate."""
    lines: list[str] = []
    for line in text.splitlines():
        if line.strip():
            lines.append(line)
        else:
            yield from _whole_paragraph(lines)
    yield from _whole_paragraph(lines)


def markdown_blocks(text: str) -> Iterator[Block]:
    """Yield the headings and paragraphs of a Markdown file, without marks of links and emphasis.

    A code block is one paragraph, and so is a table. Code is verbatim. Front matter and comments
    are left out.
    """
    level, mark = 0, ""
    rows: list[list[str]] = []
    in_table = False
    links: dict[str, Any] = {}
    for token in _PARSER.parse("\n".join(_without_head(text.splitlines())), links):
        match token.type:
            case "heading_open":
                level = int(token.tag[1:])
            case "list_item_open":
                mark = f"{token.info}{token.markup} "
            case "table_open" | "table_close":
                in_table = token.type == "table_open"
                yield from _whole_paragraph([" ".join(filter(None, row)) for row in rows])
                rows = []
            case "tr_open":
                rows.append([])
            case "inline" if in_table:
                rows[-1].append(_plain(token, links))
            case "inline" if level:
                yield Heading(level, _plain(token, links))
                level = 0
            case "inline":
                yield from _whole_paragraph([mark + _plain(token, links)])
                mark = ""
            case "fence" | "code_block" | "html_block":
                is_code = token.type != "html_block"
                yield from _whole_paragraph([_content(token) if is_code else _uncommented(token)])
            case _:
                pass


def _whole_paragraph(lines: list[str]) -> Iterator[Paragraph]:
    text = "\n".join(lines)
    lines.clear()
    if text.strip():
        yield Paragraph(text)


def _without_head(lines: list[str]) -> list[str]:
    if lines and lines[0].rstrip() == "---":
        for number, line in enumerate(lines[1:200], 1):
            if line.rstrip() in ("---", "..."):
                return lines[number + 1 :]
    return lines


def _plain(token: Token, links: dict[str, Any]) -> str:
    """Return the text of a paragraph, a heading or a cell; `links` are the document's."""
    if len(token.content) > MAX_INLINE_CHARACTERS:
        return token.content
    inner: list[Token] = []
    _PARSER.inline.parse(token.content, _PARSER, links, inner)
    return "".join(map(_content, inner)).strip()


def _content(token: Token) -> str:
    match token.type:
        case "softbreak" | "hardbreak":
            return "\n"
        case "html_inline":
            return _uncommented(token)
        case "image":
            return "".join(map(_content, token.children or ()))
        case _:
            return token.content.rstrip("\n")


def _uncommented(token: Token) -> str:
    kept, text, position = [], token.content, 0
    while (begin := text.find("<!--", position)) >= 0 and (end := text.find("-->", begin)) >= 0:
        kept.append(text[position:begin])
        position = end + 3
    return "".join((*kept, text[position:])).strip("\n")


MAX_NESTING = 1_000
"""The deepest nesting of elements; the parser's time grows with its square."""
_LEFT_OUT = {
    *("script", "style", "noscript", "template", "svg", "math", "iframe", "object", "canvas"),
    *("nav", "head", "button", "select", "textarea", "audio", "video"),
}
_BLOCKS = {
    *("address", "article", "aside", "blockquote", "body", "caption", "dd", "details", "div", "dl"),
    *("dt", "fieldset", "figcaption", "figure", "footer", "form", "header", "hr", "html", "legend"),
    *("li", "main", "ol", "p", "pre", "section", "summary", "table", "tbody", "tfoot", "thead"),
    *("tr", "ul"),
}
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_SPACED = {"br", "td", "th"}
_TAG = re.compile(rb"<(/?)([a-zA-Z][a-zA-Z0-9:-]{0,30})")
_DRAWING = re.compile(r"<(/?)(?:svg|math)(?![a-zA-Z0-9:-])[^<>]*>", re.IGNORECASE)
# Elements without an end tag, or with an optional one, which do not nest in themselves.
_UNCLOSED = {
    *(b"area", b"base", b"br", b"col", b"embed", b"hr", b"img", b"input", b"link", b"meta"),
    *(b"param", b"source", b"track", b"wbr", b"p", b"li", b"dt", b"dd", b"tr", b"td", b"th"),
    *(b"tbody", b"thead", b"tfoot", b"option", b"optgroup", b"colgroup", b"caption", b"rt", b"rp"),
    *(b"html", b"head", b"body", b"path"),
}


def nesting_of(data: bytes) -> int:
    """Return an upper estimate of the elements' nesting, by counting unclosed tags."""
    opened: Counter[bytes] = Counter()
    depth = deepest = 0
    for match in _TAG.finditer(data):
        name = match.group(2).lower()
        if name in _UNCLOSED:
            continue
        if not match.group(1):
            opened[name] += 1
            depth += 1
            deepest = max(deepest, depth)
        elif opened[name]:
            opened[name] -= 1
            depth -= 1
    return deepest


def without_drawings(text: str) -> str:
    """Return a document without its SVG and MathML; one without an end stays."""
    kept, position, depth, begin = [], 0, 0, 0
    for match in _DRAWING.finditer(text):
        if match.group(1):
            depth = max(0, depth - 1)
            if not depth and begin >= position:
                kept.append(text[position:begin])
                position = match.end()
        elif not match.group().endswith("/>"):
            if not depth:
                begin = match.start()
            depth += 1
    return "".join((*kept, text[position:]))


def html_blocks(data: bytes, text: str) -> tuple[str, Iterator[Block]]:
    """Return the document's title ("" without one), and its headings and paragraphs.

    data, text: the same document, before and after decoding. Raises ValueError if elements nest
    deeper than MAX_NESTING.
    """
    if nesting_of(data) > MAX_NESTING:
        # In drawings and formulas `/>` ends an element, and their text is left out anyway.
        text = without_drawings(text)
        data = text.encode("utf-8", "replace")
    if nesting_of(data) > MAX_NESTING:
        raise ValueError(f"its elements nest deeper than {MAX_NESTING} levels")
    tree = LexborHTMLParser(text)
    named = tree.css_first("head > title")
    title = " ".join(named.text().split()) if named is not None else ""
    return title, _blocks(tree)


def _blocks(tree: LexborHTMLParser) -> Iterator[Block]:
    """Walk the tree by its links, since a recursion could overflow the stack."""
    node: LexborNode | None = tree.body
    parts: list[str] = []
    while node is not None:
        tag = node.tag or ""
        if tag in _BLOCKS or tag in _HEADINGS:
            yield from _paragraph(parts)
        elif tag in _SPACED:
            parts.append(" ")
        elif tag == "-text":
            parts.append(node.text_content or "")
        inner = None if tag in _LEFT_OUT else node.first_child
        if inner is not None:
            node = inner
            continue
        while node is not None and node.next is None:
            yield from _closed(node.tag or "", parts)
            node = node.parent
        if node is not None:
            yield from _closed(node.tag or "", parts)
            node = node.next


def _closed(tag: str, parts: list[str]) -> Iterator[Block]:
    if tag in _HEADINGS:
        text = "".join(parts).strip()
        parts.clear()
        if text:
            yield Heading(_HEADINGS[tag], text)
    elif tag in _BLOCKS:
        yield from _paragraph(parts)


def _paragraph(parts: list[str]) -> Iterator[Block]:
    text = "".join(parts).strip()
    parts.clear()
    if text:
        yield Paragraph(text)


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
