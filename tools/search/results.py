"""The search tool's result: numbered passages with their sources, within a budget of tokens."""

from collections.abc import Sequence

from caesura.tools.search.hit import Hit
from caesura.tools.search.snippet import snippet
from caesura.tools.search.words import clean, words_of

CHARACTERS_PER_TOKEN = 4
"""Assumed characters of a token, which suits English text."""
MAX_HEAD_CHARACTERS = 120
_MIN_SNIPPET_CHARACTERS = 40
_QUOTED_CHARACTERS = 100


def results_text(query: str, hits: Sequence[Hit], tokens: int) -> str:
    """Return the hits as text: `[1] Title (source)`, a snippet, an empty line between hits.

    tokens: the budget for the whole text, at CHARACTERS_PER_TOKEN each. Hits beyond the budget
    are left out, except for the first one.
    """
    if not hits:
        asked = clean(query)
        cut = "..." if len(asked) > _QUOTED_CHARACTERS else ""
        return f"no results for '{asked[:_QUOTED_CHARACTERS]}{cut}'"
    words = words_of(query)
    left = tokens * CHARACTERS_PER_TOKEN
    blocks: list[str] = []
    for number, hit in enumerate(hits, 1):
        head = f"[{number}] {_head(hit)}"
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


def _head(hit: Hit) -> str:
    title = _short(hit.title) or "Untitled"
    source = _short(hit.source)
    return f"{title} ({source})" if source else title


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MAX_HEAD_CHARACTERS else f"{text[: MAX_HEAD_CHARACTERS - 3]}..."
