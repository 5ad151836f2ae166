"""Splits documents into passages of about 200 words, at borders of paragraphs and headings."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

PASSAGE_WORDS = 200
"""The target length of a passage."""
MAX_WORDS = 260
"""The maximum length of a passage; a longer paragraph is split between sentences."""
_WORD_CHARACTERS = 6
"""Characters that count as one word in text without blanks."""
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+|(?<=[。！？])")
_MAX_TITLE_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of a document; level 1 is the topmost."""

    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A unit of text: a paragraph, a list item, a table cell."""

    text: str


Block = Heading | Paragraph


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a document, the unit of search."""

    title: str
    """The document's title and the headings above the passage: `Trees > Oak`."""
    text: str
    source: str


def split(blocks: Iterable[Block], title: str, source: str) -> Iterator[Passage]:
    """Yield the passages of a document.

    title: the document's title; a first heading with the same text is not repeated.
    """
    path: list[Heading] = []
    collected: list[str] = []
    size = 0.0

    def passage() -> Passage:
        heads = [title, *(heading.text for heading in path)]
        named = [head for number, head in enumerate(heads) if head and head not in heads[:number]]
        return Passage(" > ".join(named)[:_MAX_TITLE_CHARACTERS], "\n".join(collected), source)

    for block in blocks:
        if isinstance(block, Heading):
            if collected:
                yield passage()
                collected, size = [], 0.0
            path = [heading for heading in path if heading.level < block.level]
            path.append(Heading(block.level, " ".join(block.text.split())))
            continue
        for piece in _pieces(block.text):
            words = size_of(piece)
            if collected and size + words > MAX_WORDS:
                yield passage()
                collected, size = [], 0.0
            collected.append(piece)
            size += words
            if size >= PASSAGE_WORDS:
                yield passage()
                collected, size = [], 0.0
    if collected:
        yield passage()


def size_of(text: str) -> float:
    """Return the length of a text in words, where an overlong word counts as several."""
    return max(len(text.split()), len(text) / (2 * _WORD_CHARACTERS))


def _pieces(text: str) -> Iterator[str]:
    """Yield a paragraph in one piece, or in several if it is too long."""
    text = " ".join(text.split())
    if not text:
        return
    if size_of(text) <= MAX_WORDS:
        yield text
        return
    collected: list[str] = []
    size = 0.0
    for unit in _units(text):
        words = size_of(unit)
        if collected and size + words > PASSAGE_WORDS:
            yield " ".join(collected)
            collected, size = [], 0.0
        collected.append(unit)
        size += words
    yield " ".join(collected)


def _units(text: str) -> Iterator[str]:
    """Yield sentences, or runs of words or characters where those are too long."""
    most_characters = PASSAGE_WORDS * _WORD_CHARACTERS
    for sentence in _SENTENCE_END.split(text):
        if size_of(sentence) <= PASSAGE_WORDS:
            if sentence:
                yield sentence
            continue
        for word in sentence.split():
            for start in range(0, len(word), most_characters):
                yield word[start : start + most_characters]
