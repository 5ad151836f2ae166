"""Light and dark, by the system or by choice; text is read in both."""

from typing import Any

import pytest

from tests.kit.browser import Open
from tests.ui.reading import CONTRAST

from . import recordings as made

VIEWS = ("timeline", f"decision/{made.A}/{made.SEARCH['at']}", "decision", "memory", "session")
MORE = ("overview", "session/conversation-a", "tools", "predictions", "compare?with=2")


@pytest.fixture
def url(exported: Any) -> str:
    return exported(
        (made.recording(), made.entries()), (made.recording(2, "again"), made.entries())
    )


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_text_stands_out_in_both_themes(open_page: Open, url: str, scheme: str) -> None:
    """The contrast of WCAG AA: 4.5 to 1."""
    shown = await open_page(url, color_scheme=scheme)
    assert await shown.page.get_attribute("html", "data-theme") == scheme
    for view in (*VIEWS, *MORE):
        await shown.view(f"#/{view}")
        await shown.page.wait_for_timeout(300)
        assert await shown.page.evaluate(CONTRAST) == [], view


async def test_the_choice_stays(open_page: Open, url: str) -> None:
    shown = await open_page(url, color_scheme="light")
    await shown.page.click("button[aria-label^=Theme]")
    await shown.page.click("button[aria-label^=Theme]")
    chosen = await shown.page.get_attribute("html", "data-theme")
    assert chosen == "dark"
    await shown.page.reload()
    assert await shown.page.get_attribute("html", "data-theme") == "dark"


async def test_the_canvas_follows_the_theme(open_page: Open, url: str) -> None:
    shown = await open_page(f"{url}#/timeline", color_scheme="light")
    canvas = shown.page.locator(".tl-scroller canvas")
    await canvas.wait_for()
    await shown.page.wait_for_timeout(300)
    light = await canvas.screenshot()
    await shown.page.emulate_media(color_scheme="dark")
    for _ in range(100):
        if await canvas.screenshot() != light:
            return
        await shown.page.wait_for_timeout(50)
    raise AssertionError("the canvas still shows the light theme")


async def test_nothing_sticks_out_of_a_small_window(open_page: Open, url: str) -> None:
    shown = await open_page(url, viewport={"width": 900, "height": 600})
    for view in (*VIEWS, *MORE):
        await shown.view(f"#/{view}")
        await shown.page.wait_for_timeout(200)
        wide = await shown.page.evaluate("() => document.documentElement.scrollWidth")
        assert wide <= 900, view
