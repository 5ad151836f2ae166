"""Narrow windows: nothing is cut, and what one needs first is in sight."""

from typing import Any

import pytest

from tests.kit.browser import Open

from . import recordings as made
from .views import OUTSIDE, VIEWS, drawn


@pytest.fixture
def url(exported: Any) -> str:
    return exported(
        (made.recording(), made.entries()), (made.recording(2, "again"), made.entries())
    )


@pytest.mark.parametrize("width", [390, 1024])
async def test_every_tab_and_search_is_in_sight(open_page: Open, url: str, width: int) -> None:
    shown = await open_page(url, viewport={"width": width, "height": 844})
    for view in VIEWS:
        await drawn(shown, view)
        wide = await shown.page.evaluate("() => document.documentElement.scrollWidth")
        assert wide <= width, view
        assert await shown.page.evaluate(OUTSIDE, "header a, header button, header select") == []
        assert await shown.page.evaluate(OUTSIDE, "main input[type=search]") == [], view


async def test_the_header_leaves_a_phone_to_the_view(open_page: Open, url: str) -> None:
    shown = await open_page(url, viewport={"width": 390, "height": 844})
    await drawn(shown, "timeline")
    high = await shown.page.evaluate("() => document.querySelector('header').offsetHeight")
    assert high <= 130


async def test_the_last_column_of_tools_is_not_cut(open_page: Open, url: str) -> None:
    shown = await open_page(url, viewport={"width": 1024, "height": 768})
    await drawn(shown, "tools")
    await shown.page.wait_for_selector("[data-testid=tool-search]")
    assert await shown.page.evaluate(OUTSIDE, ".tools-table td:last-child") == []


@pytest.mark.parametrize("width", [1024, 1440])
async def test_switches_of_the_timeline_stay_together(
    open_page: Open, url: str, width: int
) -> None:
    """None stands in a row of its own."""
    shown = await open_page(url, viewport={"width": width, "height": 800})
    await drawn(shown, "timeline")
    tops = await shown.page.eval_on_selector_all(
        ".tl-view > *", "all => [...new Set(all.map(one => one.offsetTop + one.offsetHeight / 2))]"
    )
    assert max(tops) - min(tops) < 12
