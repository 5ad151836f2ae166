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
    markdown_blocks,
    nesting_of,
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
        ("<div>kept</div>\n<!-- not\nthis -->", [Paragraph("<div>kept</div>")]),
        ("> " * 60 + "deep", [Paragraph("deep")]),
    ],
)
def test_blocks_of_markdown(text: str, blocks: list[Block | str]) -> None:
    wanted = [Paragraph(each) if isinstance(each, str) else each for each in blocks]
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
    "opened", ["<div>", "</p><div>", "<b></i>", "<div><object></div>", "<ul><li>", "<a><p>"]
)
def test_html_that_nests_without_end_never_reaches_the_parser(monkeypatch, opened: str) -> None:
    # Its time grows with the square of the depth: for this it would take minutes.
    monkeypatch.setattr("caesura.tools.search.reading.LexborHTMLParser", None)
    with pytest.raises(ReadError, match="nest deeper"):
        read("x.html", opened * 100_000)


@pytest.mark.parametrize("tag", ["p", "li", "td", "tr", "br", "option"])
def test_html_of_many_elements_is_fine(tag: str) -> None:
    passages = read("x.html", f"<{tag}>x" * 20_000)
    assert passages
    assert nesting_of(b"<div><p>a<p>b</div>" * 9) == 1


@pytest.mark.parametrize("name", ["path", "rect", "circle", "use", "line", "stop", "polygon", "mi"])
def test_drawings_of_many_elements_do_not_count_as_nesting(name: str) -> None:
    outer = "math" if name == "mi" else "svg"
    leaves = f'<{name} x="1"/>' * 1200
    drawing = f'<{outer} width="9"><svg>{leaves}</svg><g></g></{outer}>'
    page = f"<h1>Report</h1><p>Sales grew.</p>{drawing}<p>Then <b>fell</b>.</p>{drawing}<svg/>end"
    assert read("r.html", page) == [("r > Report", "Sales grew.\nThen fell.\nend")]


@pytest.mark.parametrize(
    "page",
    [
        "<svg></svg>" + "<rect/>" * 2000,
        "</svg>" + "<rect/>" * 2000 + "<svg></svg>",
        "<svg>" + "<rect/>" * 2000,
        "<svg>" * 2000,
    ],
)
def test_what_only_looks_like_a_drawing_still_counts(monkeypatch, page: str) -> None:
    monkeypatch.setattr("caesura.tools.search.reading.LexborHTMLParser", None)
    with pytest.raises(ReadError, match="nest deeper"):
        read("x.html", page)


def test_html_as_deep_as_allowed() -> None:
    assert read("x.html", "<div>" * MAX_NESTING + "deep") == [("x", "deep")]


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
        ("a.html", b"\xff\xfe<\0p\0", "zero bytes"),
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
