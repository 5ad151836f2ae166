"""What a search takes and gives: the words of a query, hits, and the result's text.

The result has numbered passages with their sources, within a budget of tokens. Of a long passage it
shows the sentences around the searched words.
"""

import math
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

MAX_QUERY_CHARACTERS = 1_000
MAX_WORDS = 32
_WORD = re.compile(r"[^\s\x00-/:-@\[-`{-\x7f]+")  # no blanks, ASCII punctuation, controls
# Words that make up questions and say nothing about their subject.
_QUESTION = """
a about an and are as at be been by can did do does for from had has have how i in into is it its
me of on or s so that the their them there these they this to was were what when where which who
whom whose why will with would you your
"""
_COMMON = frozenset(_QUESTION.split())


def clean(query: str) -> str:
    """Return the query as valid Unicode, on one line, and bounded in length."""
    text = query[: 4 * MAX_QUERY_CHARACTERS].encode("utf-8", "replace").decode()
    text = unicodedata.normalize("NFKC", text).replace("\0", " ")
    return " ".join(text.split())[:MAX_QUERY_CHARACTERS]


def words_of(query: str) -> list[str]:
    """Return the words of a query, in lower case, each once, at most MAX_WORDS.

    Common words are left out, unless the query has no others.
    """
    words = list(dict.fromkeys(plain(query).casefold().split()))
    return ([word for word in words if word not in _COMMON] or words)[:MAX_WORDS]


def plain(query: str) -> str:
    """Return the query without punctuation, which search engines take for operators."""
    return " ".join(split_words(clean(query)))


def split_words(text: str) -> list[str]:
    """Return the words of a text of any length, as they are written."""
    found = _WORD.findall(unicodedata.normalize("NFKC", text))
    return [word for word in found if any(each.isalnum() for each in word)]


_SENTENCE = re.compile(r"[^.!?。！？\n]*(?:[.!?。！？\n]+(?=\s|$)|[.!?。！？\n])?")
_STEM_CHARACTERS = 3
_MIN_STEP_CHARACTERS = 20
MAX_TEXT_CHARACTERS = 10_000
"""Only this much of a passage is examined."""


def snippet(text: str, words: Sequence[str], characters: int) -> str:
    """Return at most `characters` of a text, in one line, from where most of the words occur.

    Three dots mark text that is left out at either end.
    """
    text = " ".join(text[:MAX_TEXT_CHARACTERS].split())
    if len(text) <= characters:
        return text
    start = _best_start(text, words, characters)
    end = start + characters - 8  # leaves room for the dots
    if start > 0 and end >= len(text):
        start = max(0, len(text) - characters + 4)
    shown = text[start:end]
    if start > 0 and not text[start - 1].isspace():
        shown = shown.partition(" ")[2] or shown
    if end < len(text) and not text[end].isspace():
        shown = shown.rpartition(" ")[0] or shown
    before = "... " if start > 0 else ""
    after = " ..." if end < len(text) else ""
    return f"{before}{shown.strip()}{after}"


def _best_start(text: str, words: Sequence[str], characters: int) -> int:
    """Return the start of the sentence from which the most different words are shown.

    Of equally good ones, return the start of the text if it is one, else the last.
    """
    folded = text.lower()
    if len(folded) != len(text):  # case folding changed the length: positions would not match
        folded = text
    places = [_places(folded, word) for word in words]
    best, most = 0, 0
    for start in _starts(text, max(_MIN_STEP_CHARACTERS, characters // 8)):
        end = start + characters - 8
        count = sum(_next(each, start) < end for each in places)
        if count > most or (count == most and best > 0):
            best, most = start, count
    return best


def _starts(text: str, step: int) -> Iterator[int]:
    """Yield the starts of sentences that are at least `step` characters apart."""
    last = -step
    for match in _SENTENCE.finditer(text):
        if match.start() - last >= step and match.group().strip():
            last = match.start()
            yield last + (len(match.group()) - len(match.group().lstrip()))


def _places(folded: str, word: str) -> list[int]:
    """Return the positions of words with the prefix of `word`, a rough form of stemming."""
    stem = re.escape(word[: max(_STEM_CHARACTERS, len(word) - 3)])
    return [match.start() for match in re.finditer(rf"(?<!\w){stem}", folded)]


def _next(places: list[int], start: int) -> float:
    """Return the first of the positions from `start` on."""
    number = bisect_left(places, start)
    return places[number] if number < len(places) else math.inf


@dataclass(frozen=True, slots=True)
class Hit:
    """One passage that a search found."""

    title: str
    """The document's title and the headings above the passage."""
    source: str
    """The passage's origin: a file, a page, a service."""
    text: str
    """The whole passage; the tool shows a part of it."""


class Backend(Protocol):
    """A back end of the search tool.

    Its errors are RuntimeErrors whose message goes to the model as one line.
    """

    async def search(self, query: str, limit: int) -> list[Hit]:
        """Return the best passages for a query of plain words, best first, at most `limit`."""
        ...

    async def aclose(self) -> None:
        """Release all resources."""
        ...


CHARACTERS_PER_TOKEN = 4
"""Assumed characters of a token, which suits English text."""
MAX_HEAD_CHARACTERS = 120
_MIN_SNIPPET_CHARACTERS = 40
_QUOTED_CHARACTERS = 100


def short(text: str) -> str:
    """Return a text on one line, cut to MAX_HEAD_CHARACTERS."""
    text = " ".join(text.split())
    return text if len(text) <= MAX_HEAD_CHARACTERS else f"{text[: MAX_HEAD_CHARACTERS - 3]}..."


def _title_and_source(hit: Hit) -> str:
    title = short(hit.title) or "Untitled"
    source = short(hit.source)
    return f"{title} ({source})" if source else title


def results_text(
    query: str,
    hits: Sequence[Hit],
    tokens: int,
    head_of: Callable[[Hit], str] = _title_and_source,
) -> str:
    """Return the hits as text: `[1] Title (source)`, a snippet, an empty line between hits.

    tokens: the budget for the whole text, at CHARACTERS_PER_TOKEN each. Hits beyond the budget
    are left out, except for the first one. head_of: what stands in place of title and source.
    """
    if not hits:
        asked = clean(query)
        cut = "..." if len(asked) > _QUOTED_CHARACTERS else ""
        return f"no results for '{asked[:_QUOTED_CHARACTERS]}{cut}'"
    words = words_of(query)
    left = tokens * CHARACTERS_PER_TOKEN
    blocks: list[str] = []
    for number, hit in enumerate(hits, 1):
        head = f"[{number}] {head_of(hit)}"
        # Each hit gets an equal share of what is left: a short one leaves more for the next.
        room = left // (len(hits) - number + 1) - len(head) - 3
        if room < _MIN_SNIPPET_CHARACTERS:
            if blocks:
                break
            room = _MIN_SNIPPET_CHARACTERS
        block = f"{head}\n{snippet(hit.text, words, room)}".rstrip()
        blocks.append(block)
        left -= len(block) + 2
    return "\n\n".join(blocks)
