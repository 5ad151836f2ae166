"""Fonts that are there: what draws SVG leaves out a text whose fonts it has not got.

vl-convert brings a sans-serif font, so that every list of families ends with that.
"""

import re

LAST_RESORT = "sans-serif"
_AS_THEY_ARE = {"", "inherit", "initial", "unset"}
_WIDE = re.compile(r"mono|courier|consol|menlo", re.IGNORECASE)
_SERIF = re.compile(
    r"(?<!sans)(?<!sans[- ])serif|times|georgia|garamond|palatino|cambria", re.IGNORECASE
)
_DECLARED = re.compile(r"(?P<property>\bfont(?:-family)?\s*:)(?P<families>[^;{}!]+)", re.IGNORECASE)


def with_fallback(families: str) -> str:
    """A list of font families that ends with families of its kind that are there."""
    families = families.strip().rstrip(",")
    if families.lower() in _AS_THEY_ARE:
        return families
    kind = "monospace, " if _WIDE.search(families) else "serif, " if _SERIF.search(families) else ""
    return f"{families}, {kind}{LAST_RESORT}"


def css_with_fallback(css: str) -> str:
    """CSS in which every list of font families is `with_fallback`."""
    return _DECLARED.sub(
        lambda found: f"{found['property']} {with_fallback(found['families'])}", css
    )
