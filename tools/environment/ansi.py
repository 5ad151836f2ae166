"""Turns terminal colours into words: in some games only the colour shows where things are."""

import re

_CODE = re.compile(r"\x1b\[([\d;]*)m")
_OTHER = re.compile(r"\x1b\[[\d;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")
_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")


def worded(text: str) -> str:
    """Return the text with `[red S]` for a red S, or S on red; other control codes are removed."""
    pieces = _CODE.split(text)
    found = [_OTHER.sub("", pieces[0])]
    colours: list[str] = []
    for codes, piece in zip(pieces[1::2], pieces[2::2], strict=True):
        for code in (int(each or 0) for each in codes.split(";")):
            if code == 0:
                colours = []
            elif code // 10 in (3, 4, 9, 10) and code % 10 < len(_COLOURS):
                colours.append(_COLOURS[code % 10])
        plain = _OTHER.sub("", piece)
        found.append(f"[{' '.join(colours)} {plain}]" if colours and plain else plain)
    return "".join(found)
