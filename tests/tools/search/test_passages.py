import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caesura.tools.search.reading import (
    MAX_WORDS,
    PASSAGE_WORDS,
    Heading,
    Paragraph,
    size_of,
    split,
)


def words(count: int, word: str = "word") -> str:
    return " ".join([word] * count)


def test_paragraphs_are_collected_to_about_a_passage() -> None:
    blocks = [Paragraph(words(90, f"w{number}")) for number in range(7)]
    passages = list(split(blocks, "Title", "a.md"))
    assert [passage.text.count(" ") // 89 for passage in passages] == [2, 2, 2, 1]
    assert {(passage.title, passage.source) for passage in passages} == {("Title", "a.md")}


def test_headings_end_passages_and_name_them() -> None:
    blocks = [
        Heading(1, "Trees"),
        Paragraph("All trees."),
        Heading(2, "Oak"),
        Heading(3, "Wood"),
        Paragraph("Hard."),
        Heading(2, "Beech"),
        Paragraph("Smooth."),
        Heading(1, "Shrubs"),
        Paragraph("Small."),
    ]
    assert [(passage.title, passage.text) for passage in split(blocks, "Trees", "")] == [
        ("Trees", "All trees."),
        ("Trees > Oak > Wood", "Hard."),
        ("Trees > Beech", "Smooth."),
        ("Trees > Shrubs", "Small."),
    ]


def test_a_long_paragraph_is_split_between_sentences() -> None:
    sentence = words(59) + " end."
    passages = list(split([Paragraph(" ".join([sentence] * 10))], "", ""))
    assert len(passages) > 2
    assert all(passage.text.endswith("end.") for passage in passages)


@pytest.mark.parametrize("text", ["x" * 10_000, "字" * 10_000, words(2_000), "。" * 9_000])
def test_text_without_borders_is_split_all_the_same(text: str) -> None:
    passages = list(split([Paragraph(text)], "", ""))
    assert len(passages) > 1
    assert "".join("".join(p.text.split()) for p in passages) == "".join(text.split())


blocks = st.one_of(
    st.builds(Heading, st.integers(1, 6), st.text(max_size=20)),
    st.builds(Paragraph, st.text(max_size=60)),
    st.builds(
        Paragraph,
        st.lists(st.text("ab. 字。", max_size=99), max_size=40).map(" ".join),
    ),
    st.builds(lambda n: Paragraph(words(n)), st.integers(0, 900)),
)


@settings(max_examples=120)
@given(st.lists(blocks, max_size=12), st.text(max_size=20))
def test_nothing_is_lost_and_nothing_too_long(listed, title) -> None:
    passages = list(split(listed, title, "s"))
    given_text = "".join("".join(b.text.split()) for b in listed if isinstance(b, Paragraph))
    assert "".join("".join(passage.text.split()) for passage in passages) == given_text
    for passage in passages:
        assert passage.text.strip()
        assert size_of(passage.text) <= MAX_WORDS + PASSAGE_WORDS / 2
