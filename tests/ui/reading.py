"""Reading figures off a page, as a person would, to hold them against the records."""

import re
from typing import Any

import pytest

SCALES = {
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "%": 0.01,
}
PART = re.compile(r"(\d[\d ]*(?:\.\d+)?)\s*(µs|ms|min|[shdkMG%]?)(?![a-zA-Z])")
DIGITS = 0.006
"""The page shows three significant digits."""


def plain(text: str) -> str:
    """A text with ordinary spaces and signs."""
    return re.sub(r"[\u00a0\u2009\u202f]", " ", text).replace("−", "-").strip()


def amount(text: str) -> float:
    """What `4.00 s`, `1 min 12 s`, `13.3 blk·s`, `12.4k`, `96 %` or `1 024` say."""
    said = plain(text)
    parts = PART.findall(said.split("blk")[0])
    assert parts, f"no figure in {text!r}"
    total = sum(float(digits.replace(" ", "")) * SCALES.get(unit, 1.0) for digits, unit in parts)
    return -total if said.startswith("-") else total


def about(value: float) -> Any:
    """What a figure of the page must come to for a value of the records."""
    return pytest.approx(value, rel=DIGITS, abs=1e-9)


async def listed(page: Any, selector: str) -> dict[str, str]:
    """A list of names and values (dl) by its names."""
    rows = await page.eval_on_selector_all(
        selector,
        "lists => lists.flatMap(list => [...list.querySelectorAll('dt')].map("
        "name => [name.innerText, name.nextElementSibling.innerText]))",
    )
    return {plain(name): plain(value) for name, value in rows}


async def cells(page: Any, selector: str) -> list[list[str]]:
    """The cells of a table's rows, as texts; one that only names a request, as its id."""
    rows = await page.eval_on_selector_all(
        selector,
        "rows => rows.map(row => [...row.children].map(cell => {"
        "const named = cell.querySelector('[data-request]');"
        "const alone = named && named.innerText === cell.innerText;"
        "return alone ? named.dataset.request : cell.innerText; }))",
    )
    return [[plain(cell) for cell in row] for row in rows]
