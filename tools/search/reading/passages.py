"""Splitting documents into passages: about 200 words, on the borders of paragraphs and headings."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

PASSAGE_WORDS = 200
"""How long a passage is meant to be."""
MAX_WORDS = 260
"""How long one may be; a paragraph that is longer is split between sentences."""
_WORD_CHARACTERS = 6
"""In text without blanks, so many characters count as a word."""
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+|(?<=[。！？])")
_MAX_TITLE_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of a document; `level` 1 is the greatest."""

    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph, a list item, a cell of a table: text that belongs together."""

    text: str


Block = Heading | Paragraph


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a document, as it is searched for."""

    title: str
    """The document's title and the headings above the passage: `Trees > Oak`."""
    text: str
    source: str


def split(blocks: Iterable[Block], title: str, source: str) -> Iterator[Passage]:
    """The passages of a document.

    title: the document's; a first heading that says the same is not repeated.
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
    """How many words a text counts as, words without end included."""
    return max(len(text.split()), len(text) / (2 * _WORD_CHARACTERS))


def _pieces(text: str) -> Iterator[str]:
    """A paragraph, in one piece or, if it is too long, in several that are not."""
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
    """Sentences; of those that are too long, so many words; of such words, so many characters."""
    most_characters = PASSAGE_WORDS * _WORD_CHARACTERS
    for sentence in _SENTENCE_END.split(text):
        if size_of(sentence) <= PASSAGE_WORDS:
            if sentence:
                yield sentence
            continue
        for word in sentence.split():
            for start in range(0, len(word), most_characters):
                yield word[start : start + most_characters]
