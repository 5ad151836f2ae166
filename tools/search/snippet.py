"""Selects the part of a passage to show: the sentences around the searched words."""

import math
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence

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
