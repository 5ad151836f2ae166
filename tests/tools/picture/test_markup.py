"""SVG made safe: what stays, what is refused, and which size it gets."""

from xml.etree import ElementTree

import pytest
from hypothesis import given, settings

from caesura.tools.picture.markup import MAX_DEPTH, MAX_SIDE, DrawingError, safe_drawing
from tests.tools.picture.strategies import svgs

SVG = "{http://www.w3.org/2000/svg}"


def root_of(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(safe_drawing(text).svg)


@pytest.mark.parametrize(
    ("attributes", "size"),
    [
        ("", (200, 200)),
        ('width="300" height="150"', (300, 150)),
        ('viewBox="0 0 10 20"', (10, 20)),
        ('viewBox="0,0,10,20" width="50"', (50, 100)),
        ('viewBox="0 0 10 20" height="50px"', (25, 50)),
        ('width="100%" height="100%"', (200, 200)),
        ('width="100%" height="100%" viewBox="0 0 64 32"', (64, 32)),
        ('width="1in" height="36pt"', (96, 48)),
        ('width="50000" height="25000"', (MAX_SIDE, MAX_SIDE // 2)),
        ('width="1e300" height="1"', (MAX_SIDE, 1)),
        ('width="0.2" height="0.2"', (1, 1)),
        ('viewBox="0 0 1 0"', (200, 200)),
        ('viewBox="nonsense" width="30"', (30, 30)),
    ],
)
def test_the_size_is_known_and_bounded(attributes, size):
    drawing = safe_drawing(f"<svg {attributes}/>")
    assert (drawing.width, drawing.height) == size
    root = ElementTree.fromstring(drawing.svg)
    assert (root.get("width"), root.get("height")) == tuple(map(str, size))
    assert root.get("viewBox"), "without it nothing would be scaled"


@pytest.mark.parametrize("size", ["0", "-5", "1e400"])
def test_sizes_that_are_none(size):
    with pytest.raises(DrawingError, match="positive and finite"):
        safe_drawing(f'<svg width="{size}" height="5"/>')


def test_namespaces_that_were_forgotten_are_added():
    root = root_of('<svg><rect id="r"/><use xlink:href="#r"/></svg>')
    assert root.tag == f"{SVG}svg"
    assert root[1].get("{http://www.w3.org/1999/xlink}href") == "#r"


def test_what_stands_around_it_is_dropped():
    assert root_of("Here it is:\n```svg\n<svg><rect/></svg>\n```")[0].tag == f"{SVG}rect"


def test_text_and_attributes_stay_what_they_are():
    root = root_of(
        "<svg><text fill='&quot;&lt;'>a &lt; b &amp; url(c) <![CDATA[<d>]]></text></svg>"
    )
    assert root[0].text == "a < b & url(c) <d>"
    assert root[0].get("fill") == '"<'


@pytest.mark.parametrize(
    "inner",
    [
        '<image href="/etc/passwd"/>',
        '<image href="picture.png"/>',
        '<image xlink:href="file:///etc/passwd"/>',
        '<image href="http://example.com/a.png"/>',
        '<image href=" #a"/>',
        '<image href="data:image/svg+xml;base64,PHN2Zy8+"/>',
        '<image href="data:image/png,no"/>',
        '<use href="other.svg#a"/>',
        '<feImage href="/etc/passwd"/>',
        '<rect fill="url(http://example.com/#a)"/>',
        "<rect style=\"fill: URL( 'file:///etc/passwd' )\"/>",
        "<style>@import 'http://example.com/a.css';</style>",
        "<style><![CDATA[rect { fill: url(x.svg#a) }]]></style>",
    ],
)
def test_nothing_outside_is_referred_to(inner):
    with pytest.raises(DrawingError, match="must not refer to anything outside"):
        safe_drawing(f"<svg>{inner}</svg>")


@pytest.mark.parametrize(
    "inner",
    [
        '<use href="#a"/>',
        '<rect fill="url(#a)" style="filter: url( \'#b\' )"/>',
        '<image href="data:image/png;base64,AAAA"/>',
        "<style>rect { fill: red }</style>",
    ],
)
def test_what_stands_inside_may_be_referred_to(inner):
    assert len(root_of(f"<svg>{inner}</svg>")) == 1


def test_links_bases_and_handlers_are_dropped():
    root = root_of(
        '<svg onload="x()" xml:base="file:///"><a href="http://example.com"><g/></a></svg>'
    )
    assert not [name for name in root.attrib if "base" in name or "onload" in name]
    assert not root[0].attrib
    assert root[0][0].tag == f"{SVG}g"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not well-formed"),
        ("a picture", "not well-formed"),
        ("<svg>", "not well-formed"),
        ("<svg>&nbsp;</svg>", "undefined entity"),
        ("<html/>", "root element must be svg"),
        ('<!DOCTYPE svg [<!ENTITY e SYSTEM "file:///etc/passwd">]><svg>&e;</svg>', "entities"),
        ("<svg>" + "<g>" * MAX_DEPTH + "</g>" * MAX_DEPTH + "</svg>", "nested deeper"),
        ("<svg>" + "<g/>" * 20_001 + "</svg>", "more than 20000 elements"),
        ("<svg>" + "a" * 1_000_000 + "</svg>", "at most 1000000 are allowed"),
    ],
)
def test_what_is_refused(text, told):
    with pytest.raises(DrawingError, match=told):
        safe_drawing(text)


def test_a_plain_doctype_is_forgiven():
    text = '<?xml version="1.0"?><!DOCTYPE svg PUBLIC "-//W3C" "http://w3.org/a"><svg><g/></svg>'
    assert root_of(text)[0].tag == f"{SVG}g"


@pytest.mark.parametrize(
    ("families", "drawn"),
    [
        ("Arial", "Arial, sans-serif"),
        ("'Open Sans', sans-serif", "'Open Sans', sans-serif, sans-serif"),
        ("Georgia", "Georgia, serif, sans-serif"),
        ("Noto Serif", "Noto Serif, serif, sans-serif"),
        ("Courier New", "Courier New, monospace, sans-serif"),
        ("inherit", "inherit"),
    ],
)
def test_fonts_end_with_ones_that_are_there(families, drawn):
    root = root_of(
        f'<svg><text font-family="{families}"/><text style="font-family:{families};fill:red"/>'
        f"<style>text {{ font-family: {families} }}</style></svg>"
    )
    assert root.get("font-family") == "sans-serif"
    assert root[0].get("font-family") == drawn
    assert root[1].get("style") == f"font-family: {drawn};fill:red"
    assert root[2].text == f"text {{ font-family: {drawn}}}"


@settings(max_examples=120, deadline=60_000)
@given(svgs)
def test_any_text_becomes_a_safe_drawing_or_is_refused(text):
    try:
        drawing = safe_drawing(text, max_side=512)
    except DrawingError as error:
        assert str(error)
        return
    assert 1 <= drawing.width <= 512
    assert 1 <= drawing.height <= 512
    assert "<!" not in drawing.svg
    for outside in ("/etc/passwd", "10.0.0.1", "svg+xml"):
        for attribute in ('href="', "url("):
            assert f"{attribute}{outside}" not in drawing.svg


@pytest.mark.parametrize("before", range(8170, 8200, 3))
def test_a_long_style_hides_nothing_on_the_border_of_two_pieces(before):
    style = f"{'a' * before}u&#114;l(http://example.com/x)"
    with pytest.raises(DrawingError, match="outside itself"):
        safe_drawing(f"<svg xmlns='http://www.w3.org/2000/svg'><style>{style}</style></svg>")
