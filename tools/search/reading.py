"""Reading documents into passages of about 200 words: text, Markdown, HTML and JSON lines.

A file's suffix names its format. A format is read into blocks, which are headings and paragraphs;
HTML without scripts, styles, navigation and hidden elements. Passages end at borders of blocks.
"""

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from html.entities import name2codepoint
from pathlib import Path
from typing import Any, BinaryIO

from lxml import etree
from lxml.html import defs
from markdown_it import MarkdownIt
from markdown_it.token import Token
from w3lib.encoding import html_body_declared_encoding, read_bom

from caesura.tools.net import load_json


class ReadError(ValueError):
    """A file does not have the format of its suffix. The message says why."""


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

    A code block is one paragraph, and so is a table. Code is verbatim. HTML is read as such, but
    for unknown tags within a line. Front matter and comments are left out.
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
                yield from _whole_blocks(token)
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
            return _inline_tag(token.content)
        case "image":
            return "".join(map(_content, token.children or ()))
        case _:
            return token.content.rstrip("\n")


def _whole_blocks(token: Token) -> Iterator[Block]:
    """Yield a block of code as it is, and of HTML what is shown unless it is nested too deeply."""
    if token.type == "html_block":
        with suppress(ReadError):
            yield from html_blocks(token.content)[1]
            return
    yield from _whole_paragraph([_content(token)])


def _inline_tag(tag: str) -> str:
    """Return what is shown of a tag or comment: `<T>` is no element, but an author's text."""
    name = re.match(r"</?([a-zA-Z][a-zA-Z0-9]*)", tag)
    if name is None:
        return "" if tag.startswith("<!--") else tag
    if name.group(1).lower() == "br":
        return "\n"
    return "" if name.group(1).lower() in defs.tags else tag


MAX_NESTING = 1_000
"""The deepest nesting of elements; the parser's time grows with its square."""
_LEFT_OUT = {
    *("script", "style", "noscript", "template", "svg", "math", "iframe", "object", "canvas"),
    *("nav", "head", "title", "button", "select", "textarea", "audio", "video"),
}
_BLOCKS = {
    *("address", "article", "aside", "blockquote", "body", "caption", "dd", "details", "div", "dl"),
    *("dt", "fieldset", "figcaption", "figure", "footer", "form", "header", "hr", "html", "legend"),
    *("li", "main", "nav", "ol", "p", "pre", "section", "summary", "table", "tbody", "tfoot"),
    *("thead", "tr", "ul"),
}
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_SPACED = {"br", "td", "th"}
_ENTITIES = "".join(
    f'<!ENTITY {name} "&#{code};">'
    for name, code in name2codepoint.items()
    if name not in ("lt", "gt", "amp", "quot")
)


class _Page:
    """Collects a page's title and blocks from what a parser of lxml meets; it builds no tree."""

    @classmethod
    def read(cls, data: bytes, make_parser: Callable[..., Any]) -> "_Page":
        """Return the page that the parser makes of the data; raises XMLSyntaxError, ReadError."""
        # `etree.parse` would ask a `BytesIO` for all of its bytes at once.
        file = io.BufferedReader(io.BytesIO(data))
        page: _Page = etree.parse(file, make_parser(target=cls(file)))
        return page

    def __init__(self, file: BinaryIO) -> None:
        self.title = ""
        self.blocks: list[Block] = []
        self._file = file
        self._open: list[str] = []
        self._parts: list[str] = []
        self._level = 0
        """The level of the heading that is open and has no text yet, or 0."""
        self._unseen = 0
        """How many open elements are left out, or within one that is."""

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Enter an element; raises ReadError if it is nested too deeply."""
        name = tag.rpartition("}")[2].lower()
        self._open.append(name)
        if len(self._open) > MAX_NESTING:
            self._file.seek(0, io.SEEK_END)  # an exception stops no parser: it reads to the end
            raise ReadError(f"its elements nest deeper than {MAX_NESTING} levels")
        if not self._unseen:
            if name in _BLOCKS or name in _HEADINGS:
                self._end_block()
                self._level = _HEADINGS.get(name, self._level)
            elif name in _SPACED:
                self._parts.append(" ")
        if self._unseen or name in _LEFT_OUT or _is_hidden(attributes):
            self._unseen += 1

    def end(self, tag: str) -> None:
        """Leave an element."""
        name = self._open.pop()
        if self._unseen:
            self._unseen -= 1
        elif name in _BLOCKS or name in _HEADINGS:
            self._end_block()
            self._level = 0 if name in _HEADINGS else self._level

    def data(self, text: str) -> None:
        """Take a piece of text."""
        if not self._unseen:
            self._parts.append(text)
        elif self._open[-2:] == ["head", "title"]:
            self.title += text

    def close(self) -> "_Page":
        """Return the page."""
        self._end_block()
        self.title = " ".join(self.title.split())
        return self

    def _end_block(self) -> None:
        text = "".join(self._parts).strip()
        self._parts.clear()
        if text:
            self.blocks.append(Heading(self._level, text) if self._level else Paragraph(text))
            self._level = 0  # one without an end holds no more than its first block


def _is_hidden(attributes: Mapping[str, str]) -> bool:
    """Return whether no reader sees the element; one that waits behind a tab is seen."""
    if "hidden" in attributes:
        return attributes["hidden"] != "until-found" and attributes.get("role") != "tabpanel"
    return "display:none" in attributes.get("style", "").replace(" ", "").lower()


class _Definitions(etree.Resolver):  # type: ignore[misc]
    """Answers whatever definition a document asks for with the names of HTML's characters."""

    def resolve(self, system_url: str, public_id: str, context: Any) -> Any:
        """Return the definition; nothing is fetched or opened."""
        return self.resolve_string(_ENTITIES, context)


def _xml_parser(target: _Page) -> etree.XMLParser:
    parser = etree.XMLParser(
        target=target, encoding="utf-8", load_dtd=True, no_network=True, resolve_entities=False
    )
    parser.resolvers.add(_Definitions())
    return parser


def html_blocks(text: str, *, is_xml: bool = False) -> tuple[str, list[Block]]:
    """Return the document's title ("" without one), and its headings and paragraphs.

    is_xml: the document is XHTML; one that is not well-formed is read as HTML. Raises ReadError if
    elements nest deeper than MAX_NESTING.
    """
    data = text.encode("utf-8", "replace")
    page: _Page | None = None
    if is_xml:
        with suppress(etree.XMLSyntaxError):
            page = _Page.read(data, _xml_parser)
    page = page or _Page.read(data, partial(etree.HTMLParser, encoding="utf-8", huge_tree=True))
    return page.title, page.blocks


MAX_FILE_BYTES = 256 * 2**20
MAX_HTML_BYTES = 32 * 2**20
"""A page is parsed into a tree, which takes many times its size."""


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
    return _page(data, stem, source)


def _xhtml(data: bytes, stem: str, source: str, fields: Fields) -> Iterator[Passage]:
    return _page(data, stem, source, is_xml=True)


def _page(data: bytes, stem: str, source: str, *, is_xml: bool = False) -> Iterator[Passage]:
    title, blocks = read_page(data, is_xml=is_xml)
    return split(blocks, title or stem, source)


def read_page(data: bytes, *, is_xml: bool = False) -> tuple[str, list[Block]]:
    """Return the title and the blocks of HTML or XHTML, as `html_blocks`, in its own encoding."""
    if len(data) > MAX_HTML_BYTES:
        raise ReadError(
            f"larger than {MAX_HTML_BYTES // 2**20} MiB, the limit for a page; split it"
        )
    return html_blocks(_decoded(data, _declared(data)), is_xml=is_xml)


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


_LEGACY = re.compile("cp|iso|koi8|mac|gb|big5|euc|shift|johab|tis|kz")
"""Codecs that a page may name. What can be read as ASCII is no UTF-16, whatever it says."""


def _declared(data: bytes) -> str:
    """Return the encoding of a page: that of its byte order mark, UTF-8, or what it declares.

    What is valid UTF-8 is taken for that, since pages are often converted to it and go
    on to declare what they were in.
    """
    encoding, _ = read_bom(data)
    if encoding is not None:
        return encoding
    with suppress(UnicodeDecodeError):
        if not data.isascii() and data.decode():
            return "utf-8"
    declared = html_body_declared_encoding(data) or ""
    return declared if _LEGACY.match(declared) else "utf-8"


def _decoded(data: bytes, encoding: str = "utf-8") -> str:
    """Return a file's text; raises ReadError for binary data and for another encoding."""
    try:
        text = data.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        name = encoding.upper() if encoding == "utf-8" else f"{encoding}, as it says"
        raise ReadError(f"not in {name} (byte {error.start})") from None
    if "\0" in text:
        raise ReadError("not a text: it contains zero bytes")
    return text


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
    ".xhtml": _xhtml,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
}
SUFFIXES = tuple(_READERS)
"""The suffixes of readable files."""
