"""Whatever a model writes, a search brings results or says that there are none."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from caesura.tools.search.corpus import bundled_corpus, open_to_read, search_now
from caesura.tools.search.results import results_text, words_of
from caesura.tools.search.with_tantivy import TantivyIndex
from caesura.tools.search.with_tantivy import build as build_tantivy
from caesura.tools.search.with_tantivy import load as load_tantivy

TOKENS = 300


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    with closing(open_to_read(bundled_corpus(tmp_path_factory.mktemp("data")))) as connection:
        yield connection


@pytest.fixture(scope="module")
def tantivy(corpus, tmp_path_factory: pytest.TempPathFactory) -> TantivyIndex:
    directory: Path = tmp_path_factory.mktemp("tantivy")
    rows = corpus.execute("SELECT id, title, text FROM passages").fetchall()
    build_tantivy(directory, rows)
    return load_tantivy(directory)


syntax = st.lists(
    st.sampled_from(
        [
            *(
                '"',
                '""',
                "'",
                "*",
                "^",
                "(",
                ")",
                "{",
                "}",
                ":",
                "+",
                "-",
                ",",
                "/",
                "\\",
                "~",
                "[",
                "]",
            ),
            *("AND", "OR", "NOT", "NEAR", "NEAR(", "NEAR/2", "title", "title:", "text : ", "rowid"),
            *(
                "oak",
                "gold",
                "melting",
                "of",
                " ",
                "  ",
                "\n",
                "\t",
                "\0",
                "\x1f",
                "\x7f",
                "\ud800",
            ),
            *(
                "é",
                "e\u0301",
                "ß",
                "İ",
                "字",
                "क्षि",
                "🌳",
                "①",
                "\u202e",
                "\u200b",
                "\ufeff",
                "\ufffe",
            ),
            *(
                "; DROP TABLE words",
                "--",
                "?1",
                "%s",
                "{query}",
                "<b>",
                "TO",
                "IN",
                "/a.*/",
                "1..2",
            ),
        ]
    ),
    max_size=40,
).map(" ".join) | st.lists(st.sampled_from('"*^(){}:+-oakAND \0'), max_size=40).map("".join)
anything = st.text(max_size=200) | st.text(
    st.characters(codec=None, exclude_categories=()), max_size=60
)
generous = settings(
    deadline=60_000,
    max_examples=250,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@generous
@given(syntax | anything)
@example("oak " * 250_000)
@example('"' * 1_000_000)
@example("x" * 3_000_000)
@example("\0" * 100_000 + "oak")
@example("NEAR(" * 100_000)
def test_any_query_on_the_corpus(corpus, query: str) -> None:
    hits = search_now(corpus, query, 3)
    shown = results_text(query, hits, TOKENS)
    assert len(hits) <= 3
    assert len(shown) <= 4 * TOKENS
    assert shown.startswith("[1] " if hits else "no results for '")
    assert "\0" not in shown
    shown.encode()


@generous
@given(syntax | anything)
@example("oak " * 250_000)
def test_any_query_on_tantivy(tantivy: TantivyIndex, query: str) -> None:
    words = words_of(query)
    assert len(tantivy.find(words, 3)) <= 3 if words else True
