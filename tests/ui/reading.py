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


CONTRAST = """
() => {
  const luminance = ([r, g, b]) => [r, g, b]
    .map(one => one / 255)
    .map(one => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
    .reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0);
  const colour = text => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const behind = element => {
    for (let one = element; one; one = one.parentElement) {
      const found = colour(getComputedStyle(one).backgroundColor);
      if (found[3] > 200) return found;
    }
    return colour(getComputedStyle(document.body).backgroundColor);
  };
  const poor = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some(one => one.nodeType === 3 && one.data.trim());
    const box = element.getBoundingClientRect();
    if (!own || box.width < 2 || box.height < 2 || element.closest("[disabled], svg")) continue;
    const style = getComputedStyle(element);
    if (style.visibility === "hidden" || style.opacity === "0") continue;
    const [a, b] = [luminance(colour(style.color)), luminance(behind(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) poor.push([element.className, element.innerText.slice(0, 40), contrast]);
  }
  return poor;
}
"""
