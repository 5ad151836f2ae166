"""Extracts the words to search for from a model's query."""

import re
import unicodedata

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
