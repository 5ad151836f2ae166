"""Cutting a result to a number of tokens, visibly."""

from collections.abc import Callable

from caesura.tools.result import fit

DEFAULT_MAX_TOKENS = 2000
"""How many tokens a result may have unless its tool, or the dispatcher, says otherwise."""
_CHARACTERS_PER_TOKEN = 8
"""More than these are cut away unseen, before anything is counted."""
_PROBES = 16
_NEAR_ENOUGH = 0.02
"""The search ends once less than this part of the tokens is left unused."""


def fit_tokens(
    text: str, max_tokens: int, count_tokens: Callable[[str], int], max_characters: int
) -> str:
    """The text, if need be cut so that it has at most `max_tokens` tokens, its note included.

    The note says how much there was and how much is shown. Where the note alone is longer than
    `max_tokens`, it is all that is left. `max_characters`, or what `max_tokens` may need if that
    is more, are looked at. Nothing is assumed of `count_tokens`, which may well count a part of a
    text as more than the whole: what is returned was counted.
    """
    most = max(max_characters, _CHARACTERS_PER_TOKEN * max_tokens)
    characters = len(text)
    # Encoded and back first, so that the cut cannot fall between two halves of a character.
    text = fit(text[:most], most)
    total = count_tokens(text)
    if total <= max_tokens and characters <= most:
        return text

    def note(shown: int) -> str:
        if characters > most:
            return f" [cut: {characters} characters in all, {shown} tokens shown]"
        return f" [cut: {total} tokens in all, {shown} shown]"

    # A note has about as many tokens wherever it stands; what is returned is counted as a whole.
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
    """How many characters of the text, about as many as can be, have at most `room` tokens."""
    fits, fits_tokens = 0, 0
    breaks, breaks_tokens = len(text), total
    if total <= room:
        return breaks
    for probe in range(_PROBES):
        if breaks - fits <= 1 or room - fits_tokens <= _NEAR_ENOUGH * room:
            break
        share = (room - fits_tokens) / max(1, breaks_tokens - fits_tokens)
        # Where the text is dense in one place a guess by proportion gains little: halve then.
        step = (breaks - fits) * (min(share, 1.0) if probe % 3 < 2 else 0.5)
        middle = fits + min(max(1, int(step)), breaks - fits - 1)
        tokens = count_tokens(text[:middle])
        if tokens <= room:
            fits, fits_tokens = middle, tokens
        else:
            breaks, breaks_tokens = middle, tokens
    return fits
