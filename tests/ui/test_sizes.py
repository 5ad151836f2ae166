"""Phones and small windows: nothing to read or to press lies out of reach, in either theme."""

from typing import Any

import pytest

from tests.kit.browser import Open, Shown

from . import recordings as made

VIEWS = (
    "timeline",
    "decision",
    "memory",
    "session",
    "tools",
    "who",
    "errors",
    "predictions",
    "compare?with=2",
)
DETAILS = (
    f"decision/{made.A}/{made.SEARCH['at']}",
    "session/conversation-a",
    f"timeline?sel={made.A}",
)
OUT_OF_REACH = """() => {
  // What is cut off, and no ancestor scrolls to it.
  const scrolls = one => {
    for (let up = one.parentElement; up; up = up.parentElement) {
      const how = getComputedStyle(up).overflowX;
      if ((how === "auto" || how === "scroll") && up.scrollWidth > up.clientWidth) return true;
    }
    return false;
  };
  const found = [];
  const kinds = "a, button, input, select, summary, h2, h3, th, td";
  for (const one of document.querySelectorAll(kinds)) {
    if (!one.checkVisibility() || one.closest(".hidden-visually, dialog:not([open])")) continue;
    const box = one.getBoundingClientRect();
    const within = box.right <= innerWidth + 1 && box.left >= -1;
    if (box.width < 2 || within || scrolls(one)) continue;
    const said = (one.ariaLabel || one.innerText).slice(0, 40);
    found.push([one.tagName, one.className, said, box.left, box.right]);
  }
  return found;
}"""
SEARCHES_OUT_OF_SIGHT = """() => [...document.querySelectorAll("main input, main select")]
  .filter(one => one.checkVisibility() && !one.closest(".hidden-visually"))
  .map(one => [one.ariaLabel, one.getBoundingClientRect()])
  .filter(([, box]) => box.left < 0 || box.right > innerWidth + 1)
  .map(([label, box]) => [label, box.left, box.right])"""


@pytest.fixture
def url(exported: Any) -> str:
    return exported(
        (made.recording(), made.entries()), (made.recording(2, "again"), made.entries())
    )


async def small(open_page: Open, url: str, width: int, scheme: str = "light") -> Shown:
    height = 844 if width < 500 else 768
    return await open_page(url, viewport={"width": width, "height": height}, color_scheme=scheme)


@pytest.mark.parametrize("width", [390, 1024])
async def test_nothing_is_out_of_reach(open_page: Open, url: str, width: int) -> None:
    shown = await small(open_page, url, width)
    for view in (*VIEWS, *DETAILS):
        await shown.view(f"#/{view}")
        await shown.page.wait_for_selector("main > *")
        assert await shown.page.evaluate("document.documentElement.scrollWidth") <= width, view
        assert await shown.page.evaluate(OUT_OF_REACH) == [], view


async def test_searches_and_filters_are_in_sight_on_a_phone(open_page: Open, url: str) -> None:
    """A table may be wider than the screen; what narrows it down is above it, not beside it."""
    shown = await small(open_page, url, 390)
    for view in VIEWS:
        await shown.view(f"#/{view}")
        await shown.page.wait_for_selector("main > *")
        assert await shown.page.evaluate(SEARCHES_OUT_OF_SIGHT) == [], view


@pytest.mark.parametrize("width", [390, 1024])
async def test_the_tab_of_the_view_is_in_sight(open_page: Open, url: str, width: int) -> None:
    shown = await small(open_page, url, width)
    for view in VIEWS:
        await shown.view(f"#/{view}")
        await shown.page.wait_for_function(
            "() => { const box = document.querySelector('nav a[aria-current=page]')"
            "?.getBoundingClientRect(); return box && box.left >= 0 && box.right <= innerWidth }"
        )


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_most_of_a_phones_screen_is_the_views(open_page: Open, url: str, scheme: str) -> None:
    shown = await small(open_page, url, 390, scheme)
    for view in VIEWS:
        await shown.view(f"#/{view}")
        await shown.page.wait_for_selector("main > *")
        header = await shown.page.locator("header.bar").bounding_box()
        assert header is not None and header["height"] <= 130, view
