"""Cuts a result to a number of tokens, with a visible note."""

from collections.abc import Callable

from caesura.tools.result import fit

DEFAULT_MAX_TOKENS = 2000
"""Limit for results of a tool that sets none, unless the dispatcher sets another."""
_CHARACTERS_PER_TOKEN = 8
"""Text beyond this many characters for each allowed token is dropped before counting."""
_PROBES = 16
_NEAR_ENOUGH = 0.02
"""The search ends once less than this fraction of the tokens is unused."""


def fit_tokens(
    text: str, max_tokens: int, count_tokens: Callable[[str], int], max_characters: int
) -> str:
    """Return the text, cut where needed to at most `max_tokens` tokens with its note.

    The note says how long the text was and how much is shown. Where the note alone exceeds
    `max_tokens`, only the note is returned. The function reads at most `max_characters`, or what
    `max_tokens` may need if that is more. It does not assume that a part has fewer tokens than
    the whole: it counts the text that it returns.
    """
    most = max(max_characters, _CHARACTERS_PER_TOKEN * max_tokens)
    characters = len(text)
    # `fit` re-encodes first, so that the cut cannot split a surrogate pair.
    text = fit(text[:most], most)
    total = count_tokens(text)
    if total <= max_tokens and characters <= most:
        return text

    def note(shown: int) -> str:
        if characters > most:
            return f" [cut: {characters} characters in all, {shown} tokens shown]"
        return f" [cut: {total} tokens in all, {shown} shown]"

    # A note has about as many tokens wherever it stands; the final text is counted as a whole.
    room = max_tokens - count_tokens(note(max_tokens))
    while room > 0:
        kept = text[: _longest(text, total, room, count_tokens)]
        cut = kept + note(count_tokens(kept))
        excess = count_tokens(cut) - max_tokens
        if excess <= 0:
            return cut
        room -= max(excess, room // 8)
    return note(0).lstrip()


def _longest(text: str, total: int, room: int, count_tokens: Callable[[str], int]) -> int:
    """Return how many characters of the text, near the maximum, have at most `room` tokens."""
    fits, fits_tokens = 0, 0
    breaks, breaks_tokens = len(text), total
    if total <= room:
        return breaks
    for probe in range(_PROBES):
        if breaks - fits <= 1 or room - fits_tokens <= _NEAR_ENOUGH * room:
            break
        share = (room - fits_tokens) / max(1, breaks_tokens - fits_tokens)
        # Where a part of the text is dense, a proportional guess gains little: halve instead.
        step = (breaks - fits) * (min(share, 1.0) if probe % 3 < 2 else 0.5)
        middle = fits + min(max(1, int(step)), breaks - fits - 1)
        tokens = count_tokens(text[:middle])
        if tokens <= room:
            fits, fits_tokens = middle, tokens
        else:
            breaks, breaks_tokens = middle, tokens
    return fits
