"""The part of a passage that is shown: the sentences around the words that were looked for."""

import math
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence

_SENTENCE = re.compile(r"[^.!?。！？\n]*(?:[.!?。！？\n]+(?=\s|$)|[.!?。！？\n])?")
_STEM_CHARACTERS = 3
_MIN_STEP_CHARACTERS = 20
MAX_TEXT_CHARACTERS = 10_000
"""What is looked at of a passage."""


def snippet(text: str, words: Sequence[str], characters: int) -> str:
    """At most `characters` of a text, in one line: where most of the words stand together.

    What is left out at either end is marked by three dots.
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
    """The beginning of the sentence from which on the most different words are shown.

    That of the text if it does as well as any; else the last one that does.
    """
    folded = text.lower()
    if len(folded) != len(text):  # a few letters change their length: places would not agree
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
    """Where sentences begin, at least so many characters after one another."""
    last = -step
    for match in _SENTENCE.finditer(text):
        if match.start() - last >= step and match.group().strip():
            last = match.start()
            yield last + (len(match.group()) - len(match.group().lstrip()))


def _places(folded: str, word: str) -> list[int]:
    """Where words stand that begin like `word`: a rough stand-in for the index's stemming."""
    stem = re.escape(word[: max(_STEM_CHARACTERS, len(word) - 3)])
    return [match.start() for match in re.finditer(rf"(?<!\w){stem}", folded)]


def _next(places: list[int], start: int) -> float:
    """The first of the places from `start` on."""
    number = bisect_left(places, start)
    return places[number] if number < len(places) else math.inf
