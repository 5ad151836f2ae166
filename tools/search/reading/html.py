"""Reads HTML files into blocks, without scripts, styles and navigation."""

import re
from collections import Counter
from collections.abc import Iterator

from selectolax.lexbor import LexborHTMLParser, LexborNode

from caesura.tools.search.reading.passages import Block, Heading, Paragraph

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
