"""Reads text and Markdown files into blocks."""

import re
from collections.abc import Iterator

from caesura.tools.search.reading.passages import Block, Heading, Paragraph

_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+|$)")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_LIST_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]+")
_LINK = re.compile(r"!?\[([^\[\]\n]{0,500})\](?:\([^()\n]{0,2000}\)|\[[^\[\]\n]{0,200}\])")
_COMMENT = re.compile(r"<!--[^\n]{0,1000}?-->")
_EMPHASIS = re.compile(r"\*{2,3}|__|`+")


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

    A code block is one paragraph and contains no headings. Front matter is left out.
    """
    lines: list[str] = []
    fence = ""
    for line in _without_head(text.splitlines()):
        if fence:
            if _closes(line, fence):
                fence = ""
            else:
                lines.append(line)
            continue
        heading = _HEADING.match(line)
        if level := _underlined(line, lines):
            yield Heading(level, lines.pop())
        elif opened := _FENCE.match(line):
            yield from _paragraph(lines)
            fence = opened.group(1)
        elif heading:
            yield from _paragraph(lines)
            yield Heading(len(heading.group(1)), _plain(line[heading.end() :]).rstrip("# \t"))
        else:
            if not line.strip() or _LIST_ITEM.match(line):
                yield from _paragraph(lines)
            if line.strip():
                lines.append(_plain(line))
    yield from _paragraph(lines)


def _paragraph(lines: list[str]) -> Iterator[Paragraph]:
    text = "\n".join(lines)
    lines.clear()
    if text.strip():
        yield Paragraph(text)


def _closes(line: str, fence: str) -> bool:
    line = line.strip()
    return line.startswith(fence) and not line.strip(fence[0])


def _underlined(line: str, lines: list[str]) -> int:
    """Return the level of the heading whose underline this line is; 0 if it is none."""
    match = _UNDERLINE.match(line) if len(lines) == 1 and lines[0].strip() else None
    return 0 if match is None else 1 if match.group(1)[0] == "=" else 2


def _without_head(lines: list[str]) -> list[str]:
    if lines and lines[0].rstrip() == "---":
        for number, line in enumerate(lines[1:200], 1):
            if line.rstrip() in ("---", "..."):
                return lines[number + 1 :]
    return lines


def _plain(line: str) -> str:
    if "-" in line and not line.strip(" \t|:-"):  # a rule, or the line below a table's head
        return ""
    line = _COMMENT.sub("", line)
    line = _LINK.sub(r"\1", line)
    line = _EMPHASIS.sub("", line)
    return line.replace("|", " ") if line.lstrip().startswith("|") else line
