"""Fallback fonts: the SVG library leaves out a text whose fonts are not installed.

vl-convert includes a sans-serif font, so every list of families ends with it.
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
    """Return a list of font families that ends with available families of its kind."""
    families = families.strip().rstrip(",")
    if families.lower() in _AS_THEY_ARE:
        return families
    kind = "monospace, " if _WIDE.search(families) else "serif, " if _SERIF.search(families) else ""
    return f"{families}, {kind}{LAST_RESORT}"


def css_with_fallback(css: str) -> str:
    """Return CSS in which every list of font families has a fallback."""
    return _DECLARED.sub(
        lambda found: f"{found['property']} {with_fallback(found['families'])}", css
    )
