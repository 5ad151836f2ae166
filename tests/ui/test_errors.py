"""The page is never blank without a word: broken entries, broken views, times that cannot be."""

from typing import Any

import pytest

from tests.kit.browser import Open

from . import recordings as made

BROKEN: list[dict[str, Any]] = [
    {"kind": "pause", "request": None, "at": "x"},
    {"kind": "pause", "request": made.A, "at": made.BEGAN + 2.5, "decisions": [None]},
    {"kind": "lanes", "request": ["far"], "state": ["decode"], "at": [1e18]},
    {"kind": "span", "trace": "t", "span": "s", "name": 7, "start": 1, "end": None},
]
VIEWS = {
    "timeline": ".tl-scroller canvas",
    "decision": ".dc-all tbody tr",
    "memory": "[data-testid=memory-surface]",
    "session": "[data-testid=session-row]",
    "tools": "[data-testid=tool-search]",
}


async def test_broken_entries_are_counted_and_every_view_is_drawn(
    open_page: Open, exported: Any
) -> None:
    shown = await open_page(exported((made.recording(), [*BROKEN, *made.entries()])))
    for view, part in VIEWS.items():
        await shown.view(f"#/{view}")
        await shown.page.locator(part).first.wait_for()
        await shown.says("4 entries of this recording could not be read", within=".notes")
        assert await shown.page.locator("[data-testid=broken]").count() == 0, view


async def test_a_view_that_breaks_says_so_and_the_others_go_on(
    open_page: Open, exported: Any
) -> None:
    shown = await open_page(f"{exported((made.recording(), made.entries()))}#/timeline")
    await shown.page.wait_for_selector(".tl-scroller canvas")
    await shown.page.evaluate(
        "() => Object.defineProperty(Array.prototype, 'flatMap', { configurable: true,"
        " get() { throw new Error('taken away by a test') } })"
    )
    await shown.view("#/session")
    await shown.says("Sessions cannot be drawn", "Try again", within="main")
    await shown.page.click("summary:has-text('Details')")
    await shown.says("taken away by a test", within="main pre")
    await shown.page.evaluate(
        "() => Object.defineProperty(Array.prototype, 'flatMap', { configurable: true,"
        " writable: true, value(call) { return this.map(call).flat() } })"
    )
    await shown.page.click("text=Try again")
    await shown.page.locator("[data-testid=session-row]").first.wait_for()
    await shown.view("#/memory")
    await shown.page.locator("[data-testid=memory-surface]").wait_for()


@pytest.mark.slow
async def test_130_000_requests_open(open_page: Open, exported: Any) -> None:
    """Each with two states, some years in a row: far more than one call may have arguments."""
    rows = [
        (number * 0.5 + later, f"request-{number:06}", state, 3, 0, 90)
        for number in range(130_000)
        for later, state in ((0.0, "decode"), (0.4, "ended"))
    ]
    many = [made.lanes(rows[start : start + 2000]) for start in range(0, len(rows), 2000)]
    url = exported((made.recording(), [*made.entries(), *many]))
    shown = await open_page(f"{url}#/timeline")
    await shown.says("130 004 requests", within=".tl-toolbar [role=status]")
    for view, part in VIEWS.items():
        await shown.view(f"#/{view}")
        await shown.page.locator(part).first.wait_for()
