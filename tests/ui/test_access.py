"""What screen readers and fingers need: headings, names of pictures and columns, room to press."""

from typing import Any

import pytest

from tests.kit.browser import Open

from . import recordings as made
from .views import VIEWS, drawn

NAMELESS = """() => [...document.querySelectorAll("main th, main [role=img]")]
  .filter(one => one.checkVisibility())
  .filter(one => one.role === "img" ? !one.ariaLabel : !one.textContent.trim())
  .map(one => one.outerHTML.slice(0, 80))"""
SMALL = """() => {
  // As WCAG 2.2 has it: 24 by 24 pixels, or none other within a circle of that size. Links in a
  // sentence are as high as its lines.
  const all = [...document.querySelectorAll("main a, main button, main summary, main select")]
    .filter(one => one.checkVisibility() && !one.closest("p, canvas, .hidden-visually"))
    .map(one => [one, one.getBoundingClientRect()]).filter(([, box]) => box.width > 0);
  const centre = box => [box.left + box.width / 2, box.top + box.height / 2];
  const near = (box, other) => {
    const [x, y] = centre(box);
    const across = Math.max(other.left - x, 0, x - other.right);
    const down = Math.max(other.top - y, 0, y - other.bottom);
    return Math.hypot(across, down) < 12;
  };
  return all
    .filter(([, box]) => box.width < 23.5 || box.height < 23.5)
    .filter(([one, box]) => all.some(([other, its]) => other !== one && near(box, its)))
    .map(([one, box]) => [one.outerHTML.slice(0, 90), box.width, box.height]);
}"""


@pytest.fixture
def url(exported: Any) -> Any:
    return exported(
        (made.recording(), made.entries()), (made.recording(2, "again"), made.entries())
    )


async def test_every_view_has_a_heading_and_names_for_what_it_shows(
    open_page: Open, url: str
) -> None:
    shown = await open_page(url, viewport={"width": 1280, "height": 800})
    for view in VIEWS:
        await drawn(shown, view)
        headings = await shown.page.eval_on_selector_all("h1", "all => all.map(x => x.innerText)")
        assert len(headings) == 1 and headings[0], view
        assert await shown.page.evaluate(NAMELESS) == [], view


async def test_what_is_pressed_is_large_enough_or_alone(open_page: Open, url: str) -> None:
    shown = await open_page(url, viewport={"width": 1280, "height": 800})
    small = []
    for view in VIEWS:
        await drawn(shown, view)
        small += [(view, *one) for one in await shown.page.evaluate(SMALL)]
    assert not small, "\n".join(map(str, small))
