"""Going from view to view while entries come: nothing of a view goes on behind it."""

from typing import Any

from tests.kit.browser import Open
from tests.ui.recordings import state


async def test_nothing_is_drawn_of_a_timeline_that_was_left(open_page: Open, serving: Any) -> None:
    """While it follows what comes, leaving it must not leave work behind; see `open_page`."""
    endpoint = await serving()
    shown = await open_page(f"{endpoint.ui}#/timeline")
    await endpoint.written([state("r0", "decode", 0)])
    await shown.says("1 request", within=".tl-toolbar [role=status]")
    follow = shown.page.locator("button:text-is('Follow')")
    if await follow.get_attribute("aria-pressed") != "true":
        await follow.click()
    for number in range(1, 12):
        await shown.view("#/timeline" if number % 2 == 0 else "#/memory")
        await endpoint.written([state(f"r{number}", "decode", number)])
    await shown.view("#/timeline")
    await shown.says("12 requests", within=".tl-toolbar [role=status]")
