"""Reads text and Markdown files into blocks."""

from collections.abc import Iterator
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

from caesura.tools.search.reading.passages import Block, Heading, Paragraph

MAX_NESTING = 100
"""The deepest nesting of lists and quotes; the parser leaves out what is deeper."""
MAX_INLINE_CHARACTERS = 10_000
"""A longer paragraph keeps its marks: the parser's time grows with the square of its length."""
_PARSER = MarkdownIt("commonmark", {"maxNesting": MAX_NESTING}).enable("table").disable("inline")


def text_blocks(text: str) -> Iterator[Block]:
    """Yield the paragraphs of a plain text, which empty lines separate."""
    lines: list[str] = []
    for line in text.splitlines():
        if line.strip():
            lines.append(line)
        else:
            yield from _paragraph(lines)
    yield from _paragraph(lines)


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
                yield from _paragraph([" ".join(filter(None, row)) for row in rows])
                rows = []
            case "tr_open":
                rows.append([])
            case "inline" if in_table:
                rows[-1].append(_plain(token, links))
            case "inline" if level:
                yield Heading(level, _plain(token, links))
                level = 0
            case "inline":
                yield from _paragraph([mark + _plain(token, links)])
                mark = ""
            case "fence" | "code_block" | "html_block":
                is_code = token.type != "html_block"
                yield from _paragraph([_content(token) if is_code else _uncommented(token)])
            case _:
                pass


def _paragraph(lines: list[str]) -> Iterator[Paragraph]:
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
