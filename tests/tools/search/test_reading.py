"""Files as passages, and what is no good file."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caesura.tools.search.reading import (
    MAX_NESTING,
    SUFFIXES,
    Block,
    Fields,
    Heading,
    Paragraph,
    ReadError,
    html_blocks,
    markdown_blocks,
    read_passages,
)


def read(name: str, data: str | bytes, fields: Fields | None = None) -> list[tuple[str, str]]:
    data = data.encode() if isinstance(data, str) else data
    return [(each.title, each.text) for each in read_passages(data, Path(name), name, fields)]


def test_markdown() -> None:
    text = """---
title: left out
---
# Trees #

Trees are **tall** [plants](http://x/y).
They have `wood`.

Oak
---
- acorns
- bark

![a picture](x.png) of it

```python
# no heading
```

| tree | height |
| --- | ---: |
| oak | 40 |

## Beech ##
***Smooth* bark
"""
    assert read("t.md", text) == [
        ("Trees", "Trees are tall plants. They have wood."),
        (
            "Trees > Oak",
            "- acorns\n- bark\na picture of it\n# no heading\ntree height oak 40",
        ),
        ("Trees > Beech", "**Smooth bark"),
    ]


def test_markdown_without_a_title_is_called_by_its_file() -> None:
    assert read("notes.md", "## Part\ntext") == [("notes > Part", "text")]
    assert read("notes.markdown", "text\n\n---\n\nmore") == [("notes", "text\nmore")]


def test_markdown_without_its_comments() -> None:
    text = "<!-- begin -->\nOne <!-- two --> three.\n\n```\n<!-- shown -->\n```\n<!-- end -->\n"
    assert read("t.md", text) == [("t", "One three.\n<!-- shown -->")]


def _wanted(blocks: list[Block | str]) -> list[Block]:
    return [Paragraph(each) if isinstance(each, str) else each for each in blocks]


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        # code is verbatim
        ("Edit `pkg/__init__.py`.", [Paragraph("Edit pkg/__init__.py.")]),
        ("It takes `2**10` of `[a](b)`.", [Paragraph("It takes 2**10 of [a](b).")]),
        ("~~~\nx = y.__class__ ** 2\n~~~", [Paragraph("x = y.__class__ ** 2")]),
        ("    indented **code**", [Paragraph("indented **code**")]),
        # a backtick fence has no backtick behind it
        ("```npm install```\n\n# Usage", [Paragraph("npm install"), Heading(1, "Usage")]),
        ("```\nwithout end\n# no heading", [Paragraph("without end\n# no heading")]),
        # closing hashes need a blank before them
        ("## C#", [Heading(2, "C#")]),
        ("# Notes on F# and C#", [Heading(1, "Notes on F# and C#")]),
        ("## Closed ##", [Heading(2, "Closed")]),
        ("#hashtag", [Paragraph("#hashtag")]),
        # lists, quotes, tables
        ("1. one\n2. two\n   - in *it*", ["1. one", "2. two", "- in it"]),
        ("- a\n\n  more\n- b", ["- a", "more", "- b"]),
        ("> quoted\n> text", [Paragraph("quoted\ntext")]),
        ("| a | `b\\|c` |\n|---|---|\n| 1 | |\n\nx", ["a b|c\n1", "x"]),
        ("5 * 3 * 2 and snake_case_name", [Paragraph("5 * 3 * 2 and snake_case_name")]),
        ("[ref][1] ![alt *text*](u)\n\n[1]: http://x", [Paragraph("ref alt text")]),
        # HTML within Markdown
        ("<div>kept</div>\n<!-- not\nthis -->", ["kept"]),
        ('<h1 align="center"><img src="l.svg"> Oak</h1>\n\nx', [Heading(1, "Oak"), "x"]),
        ("<details><summary>More</summary>\n\nof *it*\n\n</details>", ["More", "of it"]),
        ("<script>\nlet a = 1\n</script>\n\nx", ["x"]),
        ("<table><tr><td>a</td><td>b</td></tr></table>", ["a b"]),
        ("H<sub>2</sub>O<br>and <kbd>Esc</kbd> <!-- c -->", ["H2O\nand Esc"]),
        ("A `List<T>` is a List<T> of <int>.", ["A List<T> is a List<T> of <int>."]),
        ("AT&amp;T &copy; &#x1F333; &nosuch;", ["AT&T © 🌳 &nosuch;"]),
        ("<https://example.org> and <a@example.org>", ["https://example.org and a@example.org"]),
        # headings that are underlined, links, code spans of two backticks, nested lists
        ("Oak *tree*\nof it\n---\ntext", [Heading(2, "Oak tree\nof it"), "text"]),
        ("[a [b] `c]`](<u v> 'title')", ["a [b] c]"]),
        ("``a ` b``", ["a ` b"]),
        ("- a\n  1. b\n\n         code\n  2. > c\n- d", ["- a", "1. b", "code", "2. c", "- d"]),
        ("> # Head\n> ~~~\n> x\n\n~~~", [Heading(1, "Head"), "x", "~~~"][:2]),
        ("| a |\n|---|\n| `x\\|y` *z* |\nend", ["a\nx|y z\nend"]),
        ("\\# no heading, \\*no emphasis\\*", ["# no heading, *no emphasis*"]),
        ("> " * 60 + "deep", [Paragraph("deep")]),
    ],
)
def test_blocks_of_markdown(text: str, blocks: list[Block | str]) -> None:
    wanted = _wanted(blocks)
    assert list(markdown_blocks(text)) == wanted


@settings(deadline=60_000, max_examples=200)
@given(st.text(alphabet="#*_>-+=| \n\tab1.", max_size=300))
def test_words_of_markdown_are_never_lost(text: str) -> None:
    read = "".join(each.text for each in markdown_blocks(f"{text}\n\nlast"))
    assert read.endswith("last")


def test_text() -> None:
    assert read("a.txt", "\ufeffone\ntwo\n\n\nthree") == [("a", "one two\nthree")]
    assert read("empty.txt", "") == []


def test_html() -> None:
    text = """<!doctype html><html><head><title>The  Title</title><style>p {}</style></head>
    <body><nav>menu</nav><h1>Head &amp; more</h1>before<p>one <b>two</b><br>three</p>after
    <script>alert(1)</script><ul><li>x<li>y</ul><noscript>no</noscript><!-- c -->
    <h2>Sub</h2><table><tr><td>a<td>b</table><template><p>t</p></template><pre>p q</pre>"""
    assert read("p.html", text) == [
        ("The Title > Head & more", "before\none two three\nafter\nx\ny"),
        ("The Title > Head & more > Sub", "a b\np q"),
    ]


def test_html_without_a_title_is_called_by_its_file() -> None:
    assert read("page.htm", "just text") == [("page", "just text")]
    assert read("page.html", "") == []


@pytest.mark.parametrize(
    ("page", "blocks"),
    [
        # broken nesting, and what closes by itself
        ("<p>a<p>b</div>c<b>d<i>e</b>f", ["a", "bcdef"]),
        ("<div>a<p>b</div>c</p>d", ["a", "b", "cd"]),
        ("<h1>a<h2>b</h2>c", [Heading(1, "a"), Heading(2, "b"), "c"]),
        ("<h1><div>a</div>b</h1>c", [Heading(1, "a"), "b", "c"]),
        ("<dl><dt>a<dd>b<dt>c</dl>", ["a", "b", "c"]),
        ("a<br/>b<br>c<hr/>d", ["a b c", "d"]),
        ("<select><option>x</select>a<button>b</button>", ["a"]),
        ("</p></body></html>after", ["after"]),
        ("a < b > c & d <3 <", ["a < b > c & d <3 <"]),
        ("<ul><li>a<ul><li>b<li>c</ul><li>d</ul>", ["a", "b", "c", "d"]),
        # entities
        ("AT&amp;T&nbsp;&copy; &#x1F333;&#8364; caf&eacute;", ["AT&T\xa0© 🌳€ café"]),
        ("&lt;p&gt; &nosuch;", ["<p> &nosuch;"]),
        # what no reader sees
        (
            "<p hidden>a</p><p style='color: red; DISPLAY : none'>b</p><div hidden=''><p>c</div>d",
            ["d"],
        ),
        ("<p hidden=until-found>a<div role=tabpanel hidden>b</div>", ["a", "b"]),
        (
            "<script>if (a<b) '<p>'</script>a<style>p</style><!-- <p>b --><template>c</template>",
            ["a"],
        ),
        ("<textarea><p>a</textarea><title>b</title><iframe><p>c</iframe>d", ["d"]),
        # drawings and formulas
        ("a <svg><title>b</title><text>c</text><rect/></svg> d", ["a  d"]),
        ("<math><mi>x</mi><mo>=</mo></math>a<svg/>b", ["ab"]),
        ("<o:p>word</o:p><my-element>x</my-element>", ["wordx"]),
    ],
)
def test_blocks_of_html(page: str, blocks: list[Block | str]) -> None:
    assert html_blocks(page) == ("", _wanted(blocks))


XHTML = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.1//EN" '
    '"http://www.w3.org/TR/xhtml11/DTD/xhtml11.dtd">\n'
)


@pytest.mark.parametrize(
    ("page", "title", "blocks"),
    [
        (
            f'{XHTML}<html xmlns="http://www.w3.org/1999/xhtml"><head><title>A &amp; B</title>'
            '<script src="a.js"/></head><body><h1>One</h1><p>caf&eacute;<br/>bar</p><div/>x'
            "</body></html>",
            "A & B",
            [Heading(1, "One"), "café bar", "x"],
        ),
        ('<h:p xmlns:h="u">a<h:script>b</h:script></h:p>', "", ["a"]),
        ("<html><head><title/></head><p><![CDATA[a<b>&amp;]]></p></html>", "", ["a<b>&amp;"]),
        ("<html><body><script><![CDATA[x]]></script><p>a</p></body></html>", "", ["a"]),
        # not well-formed, and so read as HTML
        ("<html><head><title>T</title></head><p>a<br>b&nbsp;c</html>", "T", ["a b\xa0c"]),
        ('<!DOCTYPE p [<!ENTITY a "one"> <!ENTITY b "&a; two">]><p>&b;</p>', "", ["one two"]),
    ],
)
def test_blocks_of_xhtml(page: str, title: str, blocks: list[Block | str]) -> None:
    assert html_blocks(page, is_xml=True) == (title, _wanted(blocks))
    (passage, *_) = read_passages(page.encode(), Path("x.xhtml"), "x")
    assert passage.title.startswith(title or "x")


def test_definitions_of_a_document_open_no_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    page = '<!DOCTYPE html [<!ENTITY % p SYSTEM "{0}"> %p; <!ENTITY a SYSTEM "{0}">]><p>a&a;</p>'
    for form in (page, '<!DOCTYPE html SYSTEM "{0}"><p>a</p>'):
        assert html_blocks(form.format(secret.as_uri()), is_xml=True) == ("", [Paragraph("a")])


def test_entities_that_multiply_are_not_followed() -> None:
    names = "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 20))
    page = f'<!DOCTYPE html [<!ENTITY a0 "ha">{names}]><html><p>&a19;</p></html>'
    _, blocks = html_blocks(page, is_xml=True)
    assert sum(len(each.text) for each in blocks) < 10 * len(page)


@pytest.mark.parametrize(
    ("said", "encoding", "text"),
    [
        ('<meta charset="iso-8859-1">', "cp1252", "“café” €"),
        ("<meta charset=windows-1251>", "cp1251", "Привет"),
        ('<meta http-equiv=content-type content="a/b; charset=Shift_JIS">', "cp932", "日本①"),
        ('<meta charset="x-sjis"/>', "shift_jis", "日本"),
        ('<meta charset="gb2312">', "gb18030", "中文"),
        ('<meta charset="euc-kr">', "euc_kr", "한국"),
        ('<meta charset="iso-2022-jp">', "iso2022_jp", "日本"),
        ("", "utf-8", "日本"),
        ("", "utf-8-sig", "日本"),
        ("", "utf-16", "日本"),
        # converted after it was written, or plainly wrong: the bytes are UTF-8
        ('<meta charset="iso-8859-1">', "utf-8", "“café”"),
        ('<meta charset="utf-16">', "utf-8", "café"),
        ('<meta charset="utf-16">', "ascii", "cafe"),
        *((f"<meta charset='{it}'>", "ascii", "cafe") for it in ("hex", "punycode", "no", "utf-7")),
    ],
)
def test_pages_in_the_encoding_that_they_declare(said: str, encoding: str, text: str) -> None:
    page = f"<html><head>{said}<title>{text}</title></head><body><p>{text}</p></body></html>"
    assert read("a.html", page.encode(encoding)) == [(text, text)]
    if not encoding.startswith("utf-16"):
        page = '<?xml version="1.0"?>' + page.replace(
            said, said.rstrip("/>") + "/>" if said else ""
        )
        assert read("a.xhtml", page.encode(encoding)) == [(text, text)]


def test_xhtml_in_the_encoding_that_its_first_line_declares() -> None:
    page = '<?xml version="1.0" encoding="iso-8859-2"?><html><p>žluť</p></html>'
    assert read("a.xhtml", page.encode("iso-8859-2")) == [("a", "žluť")]


@pytest.mark.parametrize(
    "opened", ["<div>", "</p><div>", "<b></i>", "<svg><g>", "<ul><li>", "<a><p>"]
)
@pytest.mark.parametrize("suffix", ["html", "xhtml"])
def test_html_that_nests_without_end_is_refused_at_once(opened: str, suffix: str) -> None:
    # The parser's time grows with the square of the depth: for all of this it would take minutes.
    with pytest.raises(ReadError, match="nest deeper"):
        read(f"x.{suffix}", opened * 500_000)
    with pytest.raises(ReadError, match="nest deeper"):
        read(f"x.{suffix}", "".join(f"<font a={i}><p>" for i in range(20_000)))


@pytest.mark.parametrize(
    "page",
    [
        "<script>" + "x = '<div>';" * 2000 + "</script>end",
        "<!--" + "<div>" * 2000 + "-->end",
        "<p title='<div>'></p>" * 2000 + "end",
        "<textarea>" + "<div>" * 2000 + "</textarea>end",
        "<font>x</font>" * 2000 + "<p>end",
        "<div><object></div>" * 2000 + "<p>end",
    ],
)
def test_what_only_looks_like_nesting_is_read(page: str) -> None:
    assert read("x.html", page)[-1][1].split()[-1].endswith("end")


@pytest.mark.parametrize("tag", ["p", "li", "td", "tr", "br", "option"])
def test_html_of_many_elements_is_fine(tag: str) -> None:
    passages = read("x.html", f"<{tag}>x" * 20_000)
    assert sum(each[1].count("x") for each in passages) == 20_000


@pytest.mark.parametrize("name", ["path", "rect", "circle", "use", "line", "stop", "polygon", "mi"])
def test_drawings_of_many_elements_do_not_count_as_nesting(name: str) -> None:
    outer = "math" if name == "mi" else "svg"
    leaves = f'<{name} x="1"/>' * 1200
    drawing = f'<{outer} width="9"><svg>{leaves}</svg><g></g></{outer}>'
    page = f"<h1>Report</h1><p>Sales grew.</p>{drawing}<p>Then <b>fell</b>.</p>{drawing}<svg/>end"
    assert read("r.html", page) == [("r > Report", "Sales grew.\nThen fell.\nend")]


def test_html_as_deep_as_allowed() -> None:
    assert read("x.html", "<div>" * (MAX_NESTING - 2) + "deep") == [("x", "deep")]
    with pytest.raises(ReadError, match="nest deeper"):
        read("x.html", "<div>" * (MAX_NESTING + 1) + "deep")


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["html", "xhtml", "md", "txt"])
@pytest.mark.parametrize(
    "unit", ["<p>some words &amp; more</p>\n", "word ", "**word** `a` " * 40 + "\n\n"]
)
def test_files_of_ten_megabytes_are_read_whole(suffix: str, unit: str) -> None:
    text = unit * (10 * 2**20 // len(unit))
    passages = read(f"x.{suffix}", f"<html>{text}</html>" if suffix.endswith("html") else text)
    assert sum(each[1].count("word") for each in passages) == text.count("word")


@pytest.mark.parametrize("suffix", ["html", "xhtml", "md"])
@pytest.mark.parametrize(
    "unit", ["<!-- ", "<!-", "<p a='", "<a ", "&am", "<![CDATA[", "<xmp></", "<p><b>", "[", "`"]
)
def test_marks_without_an_end_take_no_time(suffix: str, unit: str) -> None:
    # Each takes about a second; with time that grows by the square it would take hours.
    read(f"x.{suffix}", unit * (2**20 // len(unit)))


def test_json_lines() -> None:
    lines = [
        {"title": "A", "text": "one\n\ntwo", "url": "http://a/"},
        {"title": None, "text": "three", "extra": [1]},
    ]
    data = "\n\n".join(map(json.dumps, lines)).encode()
    passages = list(read_passages(data, Path("x.jsonl"), "x.jsonl"))
    assert [(each.title, each.text, each.source) for each in passages] == [
        ("A", "one\ntwo", "http://a/"),
        ("", "three", "x.jsonl:3"),
    ]


def test_json_lines_with_other_names() -> None:
    line = json.dumps({"name": "A", "body": "one"})
    assert read("x.ndjson", line, Fields(title="name", text="body")) == [("A", "one")]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "line 2 is not valid JSON"),
        ("[]", "line 2 is not a JSON object"),
        ('{"title": "A"}', "line 2 has no text in its field 'text'"),
        ('{"text": " "}', "no text"),
        ('{"text": ["a"]}', "no text"),
        ('{"text": "a", "title": 1}', "must be text"),
        ('{"text": NaN}', "not valid JSON"),
        ("[" * 100_000, "nests deeper than 64 levels"),
    ],
)
def test_json_lines_that_are_no_good(line: str, reason: str) -> None:
    with pytest.raises(ReadError, match=reason):
        read("x.jsonl", '{"text": "fine"}\n' + line)


def test_json_lines_never_hold_what_no_message_may() -> None:
    (passage,) = read("x.jsonl", json.dumps({"title": "\ud800", "text": "a\0b \udfff"}))
    assert passage == ("?", "a b ?")


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.md", b"a\0b", "zero bytes"),
        ("a.txt", "é".encode("latin-1"), r"not in UTF-8 \(byte 0\)"),
        ("a.html", b"<\0p\0", "zero bytes"),
        ("a.html", "é".encode("latin-1"), r"not in UTF-8 \(byte 0\)"),
        ("a.html", b"<meta charset=shift_jis>\x81", r"not in cp932, as it says \(byte 24\)"),
        ("a.pdf", b"%PDF", "unsupported format; supported suffixes: .md"),
        ("a", b"text", "unsupported format"),
    ],
)
def test_files_that_are_no_good(name: str, data: bytes, reason: str) -> None:
    with pytest.raises(ReadError, match=reason):
        read(name, data)


soup = st.lists(
    st.sampled_from(
        [
            *("<p>", "</p>", "<div", ">", "<", "</", "<!--", "-->", "<script>", "</script>"),
            *("<table><td>", "<svg>", "<![CDATA[", "&amp", "&#0;", "&#xd800;", "\x00", "\ud7ff"),
            *("# ", "## ", "===", "---", "```", "~~~", "- ", "1. ", "[a](", ")", "|", "* ", "**"),
            *('{"text": "', '"}', "\\u0000", "\\ud800", "\n", "\n\n", " ", "word", "字", "\ufeff"),
        ]
    ),
    max_size=60,
).map("".join)


@settings(max_examples=200)
@given(st.sampled_from(SUFFIXES), soup.map(str.encode) | st.binary(max_size=300))
def test_any_file_is_passages_or_a_read_error(suffix: str, data: bytes) -> None:
    try:
        passages = list(read_passages(data, Path(f"f{suffix}"), "f"))
    except ReadError as error:
        assert str(error)
    else:
        for passage in passages:
            assert passage.text.strip()
            assert "\0" not in passage.text + passage.title
            (passage.text + passage.title).encode()
