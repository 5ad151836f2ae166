"""What the model reads: the form, the budget, the part that is shown."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caesura.tools.search.results import (
    CHARACTERS_PER_TOKEN,
    MAX_HEAD_CHARACTERS,
    MAX_QUERY_CHARACTERS,
    MAX_WORDS,
    Hit,
    clean,
    results_text,
    snippet,
    words_of,
)

LONG = "Nothing here. " * 40 + "The oak bears acorns. It is hard. " + "More of nothing. " * 40


def test_the_form() -> None:
    hits = [
        Hit("Oak", "trees.md", "An oak.\nIt grows."),
        Hit("", "http://a/", "b"),
        Hit("C", "", "c"),
    ]
    assert results_text("oak", hits, 300) == (
        "[1] Oak (trees.md)\nAn oak. It grows.\n\n[2] Untitled (http://a/)\nb\n\n[3] C\nc"
    )


def test_no_results() -> None:
    assert results_text(" no\nsuch  thing ", [], 300) == "no results for 'no such thing'"
    assert results_text("x" * 9_999, [], 300) == f"no results for '{'x' * 100}...'"


def test_the_snippet_is_where_the_words_are() -> None:
    shown = snippet(LONG, ["acorns", "oaks"], 120)
    assert "The oak bears acorns. It is hard." in shown
    assert shown.startswith("... ")
    assert shown.endswith(" ...")


def test_a_short_text_is_shown_whole() -> None:
    assert snippet("a  b\nc", ["x"], 10) == "a b c"


def test_what_is_found_at_the_very_end_is_shown_to_the_end() -> None:
    shown = snippet("Nothing here. " * 40 + "An oak.", ["oak"], 60)
    assert shown.endswith("An oak.")


texts = st.text(max_size=400) | st.lists(
    st.sampled_from(["oak", "acorns", ". ", "。", "\n", " ", "İ", "x" * 50, "!?"]), max_size=200
).map("".join)


@settings(max_examples=150)
@given(texts, st.lists(st.text(min_size=1, max_size=9), max_size=6), st.integers(40, 400))
def test_a_snippet_is_never_longer_than_its_room(text, words, room) -> None:
    shown = snippet(text, words, room)
    assert len(shown) <= room
    assert "\n" not in shown


@settings(max_examples=100)
@given(
    st.lists(st.builds(Hit, texts, st.text(max_size=300), texts), min_size=1, max_size=20),
    st.integers(40, 2_000),
)
def test_the_budget_is_kept(hits, tokens) -> None:
    shown = results_text("oak acorns", hits, tokens)
    least = 2 * MAX_HEAD_CHARACTERS + 60  # the first is always shown
    assert len(shown) <= max(tokens * CHARACTERS_PER_TOKEN, least)
    assert shown.startswith("[1] ")
    assert all(block.count("\n") <= 1 for block in shown.split("\n\n"))


def test_what_one_does_not_need_the_others_get() -> None:
    shown = results_text("acorns", [Hit("A", "a", "short"), Hit("B", "b", LONG)], 200)
    assert 700 < len(shown) <= 800


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("What is the Height of Mont-Blanc?", ["height", "mont", "blanc"]),
        ("who is it", ["who", "is", "it"]),
        ("  \0 \x07 ", []),
        ("ｆｕｌｌ width №5", ["full", "width", "no5"]),
        ("oak oak OAK", ["oak"]),
        ("C++ or C#", ["c"]),
    ],
)
def test_words(query: str, words: list[str]) -> None:
    assert words_of(query) == words


@settings(max_examples=300)
@given(st.text(max_size=3_000))
def test_words_of_any_text(query) -> None:
    assert len(clean(query)) <= MAX_QUERY_CHARACTERS
    words = words_of(query)
    assert len(words) <= MAX_WORDS
    assert len(set(words)) == len(words)
    assert not set("".join(words)) & set("\"'*()^:+-{}\0 ")
