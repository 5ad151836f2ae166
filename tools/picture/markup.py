"""Makes untrusted SVG safe to draw: bounded, of a known size, without outside references.

A parser reads the text, and only what is allowed is written again. So the library that draws it
sees no declaration, entity, file name or address. The library leaves out a text whose fonts are not
installed, but includes a sans-serif font: every list of families ends with it.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

LAST_RESORT = "sans-serif"
_AS_THEY_ARE = {"", "inherit", "initial", "unset"}
_WIDE = re.compile(r"mono|courier|consol|menlo", re.IGNORECASE)
_SERIF = re.compile(
    r"(?<!sans)(?<!sans[- ])serif|times|georgia|garamond|palatino|cambria", re.IGNORECASE
)
_DECLARED = re.compile(r"(?P<property>\bfont(?:-family)?\s*:)(?P<families>[^;{}!]+)", re.IGNORECASE)


def with_fallback(families: str) -> str:
    """Return a list of font families that ends with available families of its kind."""
    families = families.strip().rstrip(",")
    if families.lower() in _AS_THEY_ARE:
        return families
    kind = "monospace, " if _WIDE.search(families) else "serif, " if _SERIF.search(families) else ""
    return f"{families}, {kind}{LAST_RESORT}"


def css_with_fallback(css: str) -> str:
    """Return CSS in which every list of font families has a fallback."""
    return _DECLARED.sub(
        lambda found: f"{found['property']} {with_fallback(found['families'])}", css
    )


MAX_CHARACTERS = 1_000_000
MAX_ELEMENTS = 20_000
MAX_DEPTH = 100
"""The deepest nesting of elements; the drawing library recurses and could overflow its stack."""
MAX_SIDE = 2048
"""The longest side of a picture, in pixels; a larger one is scaled down."""
DEFAULT_SIDE = 200.0
"""The side of a picture without a size."""

_NAMESPACES = {
    "xmlns": "http://www.w3.org/2000/svg",
    "xmlns:xlink": "http://www.w3.org/1999/xlink",
}
_LENGTH = re.compile(
    r"\s*(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(?P<unit>px|pt|pc|mm|cm|in|em|ex|%)?\s*"
)
_PIXELS = {"px": 1, "pt": 4 / 3, "pc": 16, "mm": 96 / 25.4, "cm": 96 / 2.54, "in": 96, "em": 16}
_PIXELS |= {"": 1, "ex": 8}
_PICTURE = re.compile(r"data:image/(?:png|jpe?g|gif|webp);base64,[A-Za-z0-9+/=\s]*")
_OUTSIDE = re.compile(r"url\(\s*[\"']?\s*(?!#|\s|[\"'])|@import", re.IGNORECASE)


class DrawingError(ValueError):
    """A drawing is refused. The message is one sentence for the model."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """An SVG that is safe to draw, and its size in pixels."""

    svg: str
    width: int
    height: int


def safe_drawing(
    text: str,
    *,
    max_side: int = MAX_SIDE,
    max_characters: int = MAX_CHARACTERS,
    max_elements: int = MAX_ELEMENTS,
) -> Drawing:
    """Return the SVG in `text`, made safe; text around it, such as a Markdown fence, is dropped.

    Namespaces missing in the root are added. Raises DrawingError, and no other exception.
    """
    text = text[text.find("<") : text.rfind(">") + 1]
    if len(text) > max_characters:
        raise DrawingError(
            f"the SVG has {len(text)} characters; at most {max_characters} are allowed"
        )
    filtered = _Filter(max_elements)
    try:
        filtered.read(text.encode("utf-8", "replace").decode())
    except expat.ExpatError as error:
        reason = expat.errors.messages[error.code]
        raise DrawingError(
            f"the SVG is not well-formed XML: {reason} (line {error.lineno}, column {error.offset})"
        ) from None
    width, height, box = _size(filtered.root, max_side)
    shown = {"width": str(width), "height": str(height), "viewBox": box}
    root = {"font-family": LAST_RESORT} | filtered.root | _NAMESPACES | shown
    return Drawing(f"<svg{_attributes(root)}>{''.join(filtered.parts)}</svg>", width, height)


class _Filter:
    """Expat's handlers: allowed content goes to `parts`, the root's attributes apart from it."""

    def __init__(self, max_elements: int) -> None:
        self.root: dict[str, str] = {}
        self.parts: list[str] = []
        self._max_elements = max_elements
        self._elements = 0
        self._open: list[str] = []

    def read(self, text: str) -> None:
        data = text.encode()
        parser = expat.ParserCreate()
        # A text comes in one piece of any length, so that refused content cannot span two pieces.
        parser.buffer_text, parser.buffer_size = True, max(1, len(data))
        parser.StartDoctypeDeclHandler = self._doctype
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.Parse(data, True)

    def _doctype(self, name: str, system: str | None, public: str | None, subset: int) -> None:
        if subset:
            raise DrawingError("the SVG must not declare entities: leave the DOCTYPE out")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._elements += 1
        self._open.append(name)
        if self._elements > self._max_elements:
            raise DrawingError(f"the SVG has more than {self._max_elements} elements")
        if len(self._open) > MAX_DEPTH:
            raise DrawingError(f"the SVG's elements are nested deeper than {MAX_DEPTH} levels")
        kept = {
            key: _drawable(key, value)
            for key, value in attributes.items()
            if _is_kept(name, key, value)
        }
        if len(self._open) > 1:
            self.parts.append(f"<{name}{_attributes(kept)}>")
        elif name != "svg":
            raise DrawingError(f"the root element must be svg, not {name[:40]}")
        else:
            self.root = kept

    def _end(self, name: str) -> None:
        self._open.pop()
        if self._open:
            self.parts.append(f"</{name}>")

    def _text(self, text: str) -> None:
        if self._open[-1].endswith("style"):
            if _OUTSIDE.search(text):
                _refuse(text)
            text = css_with_fallback(text)
        self.parts.append(escape(text))


def _is_kept(element: str, name: str, value: str) -> bool:
    """Return whether an attribute is kept. Raises DrawingError for an outside reference."""
    local = name.rpartition(":")[2].lower()
    if local == "base" or local.startswith("on"):
        return False
    if local in ("href", "src"):
        if element.rpartition(":")[2] == "a":
            return False  # a link's target does not change the picture
        if not value.startswith("#") and not _PICTURE.fullmatch(value):
            _refuse(value)
    elif _OUTSIDE.search(value):
        _refuse(value)
    return True


def _drawable(name: str, value: str) -> str:
    """Return an attribute's value, with fallback fonts."""
    match name:
        case "font-family":
            return with_fallback(value)
        case "style":
            return css_with_fallback(value)
    return value


def _refuse(value: str) -> NoReturn:
    raise DrawingError(
        f"the SVG must not refer to anything outside itself, as {value.strip()[:60]!r} does: "
        "draw it, or put the image in as data:image/png;base64,..."
    )


def _attributes(attributes: Mapping[str, str]) -> str:
    return "".join(f" {name}={quoteattr(value)}" for name, value in attributes.items())


def _size(root: Mapping[str, str], max_side: int) -> tuple[int, int, str]:
    """Return the width and height in whole pixels, within `max_side`, and the viewBox."""
    box = _box(root.get("viewBox", ""))
    ratio = box[2] / box[3] if box else 1.0
    width, height = _pixels(root, "width"), _pixels(root, "height")
    if width is None and height is None:
        width, height = (box[2], box[3]) if box else (DEFAULT_SIDE, DEFAULT_SIDE)
    elif width is None:
        assert height is not None
        width = height * ratio
    elif height is None:
        height = width / ratio
    if not (0 < width < math.inf and 0 < height < math.inf):
        raise DrawingError("the SVG's width and height must be positive and finite")
    shown = " ".join(map(repr, box or (0.0, 0.0, width, height)))
    scale = min(1.0, max_side / max(width, height))
    return max(1, round(width * scale)), max(1, round(height * scale)), shown


def _box(text: str) -> tuple[float, float, float, float] | None:
    """Return the four numbers of a viewBox; None if it is invalid."""
    try:
        x, y, width, height = (float(each) for each in text.replace(",", " ").split())
    except ValueError:
        return None
    usable = all(map(math.isfinite, (x, y, width, height))) and width > 0 and height > 0
    usable = usable and 1e-6 < width / height < 1e6
    return (x, y, width, height) if usable else None


def _pixels(root: Mapping[str, str], name: str) -> float | None:
    """Return a length in pixels; None where it is missing, relative or invalid."""
    found = _LENGTH.fullmatch(root.get(name, ""))
    if found is None or found["unit"] == "%":
        return None
    return float(found["number"]) * _PIXELS[found["unit"] or ""]
