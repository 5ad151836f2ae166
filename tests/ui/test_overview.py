"""The overview: what the page opens with, and the ways from it to a moment."""

from typing import Any
from urllib.parse import parse_qs

import pytest

from tests.kit.browser import Open, Shown

from . import recordings as made
from .reading import about, amount

REFUSED = {
    "kind": "http",
    "at": made.BEGAN + 4,
    "route": "/v1/chat/completions",
    "status": 429,
    "code": "too_many_requests",
    "count": 12,
}

COUNT = "[data-testid=ov-count]"


@pytest.fixture
def url(exported: Any) -> str:
    return exported((made.recording(), [*made.entries(), REFUSED]))


@pytest.fixture
async def shown(open_page: Open, url: str) -> Shown:
    opened = await open_page(url)
    await opened.says("3 requests ended in this recording, 1 was cut off at its end", within=COUNT)
    return opened


def window_of(shown: Shown) -> tuple[float, float] | None:
    query = parse_qs(shown.page.url.partition("?")[2])
    return (float(query["t0"][0]), float(query["t1"][0])) if "t0" in query else None


async def until_window(shown: Shown, given: bool) -> Any:
    """Wait until the address names a window, or none."""
    for _ in range(200):
        if (window_of(shown) is not None) == given:
            return window_of(shown)
        await shown.page.wait_for_timeout(50)
    raise AssertionError(shown.page.url)


async def test_the_page_opens_with_figures_causes_and_refusals(shown: Shown) -> None:
    """A, B and D ended after 9, 9 and 6.5 s; their first tokens came after 0.5, 0.4 and 5 s."""
    cells = shown.page.locator("[data-testid=ov-first-token] td")
    assert amount(await cells.nth(0).inner_text()) == about(0.5)
    cells = shown.page.locator("[data-testid=ov-end-to-end] td")
    assert amount(await cells.nth(0).inner_text()) == about(9)
    assert (await cells.nth(3).inner_text()) == "3"
    await shown.says("12 refused", "429 too many at once", within=".ov-answers")
    await shown.says("Tool search", "Person", within=".ov-slowed")
    assert await shown.page.locator(".ov-chart canvas").count() == 6


async def test_a_sentence_leads_to_the_moment_in_two_clicks(shown: Shown) -> None:
    row = shown.page.locator("[data-testid=slowest] li", has_text="blocks that")
    await row.locator(".ov-why").click()
    await shown.says(made.D, within="aside header")
    t0, t1 = await until_window(shown, True)
    assert t0 < made.BEGAN + 3 and made.BEGAN + 7 < t1 < made.BEGAN + 11


async def test_dragging_over_a_chart_marks_a_stretch(shown: Shown) -> None:
    surface = shown.page.locator("[data-testid=ov-chart-end-to-end] .ov-surface")
    await surface.scroll_into_view_if_needed()
    box = await surface.bounding_box()
    await shown.page.mouse.move(box["x"] + 4, box["y"] + 40)
    await shown.page.mouse.down()
    await shown.page.mouse.move(box["x"] + box["width"] * 0.925, box["y"] + 40, steps=4)
    await shown.page.mouse.up()
    await shown.says("1 request ended in this stretch", within=COUNT)
    t0, t1 = await until_window(shown, True)
    assert t0 < made.BEGAN + 1 and made.BEGAN + 9 < t1 < made.BEGAN + 9.5
    await shown.page.click("[data-testid=ov-all]")
    await shown.says("3 requests ended in this recording", within=COUNT)
    assert await until_window(shown, False) is None


async def test_keys_and_fields_choose_the_stretch(shown: Shown) -> None:
    await shown.page.focus("[data-testid=ov-chart-queueing] .ov-surface")
    await shown.press("+")
    first = await until_window(shown, True)
    assert first[1] - first[0] < 6
    await shown.press("0")
    await until_window(shown, False)
    for key in ("Shift+ArrowRight", "Shift+ArrowRight", "Shift+ArrowRight", "Enter"):
        await shown.press(key)
    marked = await until_window(shown, True)
    assert marked[1] - marked[0] == about(3 * 10.1 / 72)
    await shown.press("?")
    await shown.says("Keys: Overview", "mark a stretch of time", within="dialog[open]")
    await shown.press("Escape")
    await shown.page.click("[data-testid=ov-all]")
    await until_window(shown, False)
    await shown.page.fill("input[aria-label^=From]", "9.2")
    await shown.page.fill("input[aria-label^=To]", "9.8")
    await shown.page.press("input[aria-label^=To]", "Enter")
    await shown.says("1 request ended in this stretch", within=COUNT)


@pytest.mark.parametrize("width", [390, 1024])
async def test_nothing_is_cut_on_a_small_screen(open_page: Open, url: str, width: int) -> None:
    shown = await open_page(url, viewport={"width": width, "height": 800}, color_scheme="dark")
    await shown.says("3 requests ended in this recording")
    view = shown.page.locator(".view.ov")
    assert await view.evaluate("one => one.scrollWidth <= one.clientWidth")
    for part in ("[data-testid=ov-all]", ".ov-why", ".ov-surface", "[data-testid=slowed-tool]"):
        await shown.page.locator(part).first.scroll_into_view_if_needed()
        box = await shown.page.locator(part).first.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= width, part


async def test_it_follows_what_ends(open_page: Open, serving: Any) -> None:
    endpoint = await serving()
    shown = await open_page(endpoint.ui)
    await shown.says("Waiting for the first request")
    for request, state, second in (("r1", "decode", 0), ("r2", "decode", 1), ("r1", "ended", 2)):
        await endpoint.written([made.lanes([(second, request, state, 4, 0, 64)])])
    await shown.says("1 request ended in this recording, 1 went on", within=COUNT)
    await endpoint.written([made.lanes([(3, "r2", "ended", 0, 0, 70)])])
    await shown.says("2 requests ended in this recording", within=COUNT)
