"""What failed, how often, since when, and the way from there to the requests."""

from typing import Any

from tests.kit.browser import Open, Shown

from . import recordings as made
from .reading import cells


async def opened(open_page: Open, exported: Any, view: str, **options: Any) -> Shown:
    return await open_page(f"{exported((made.recording(), made.failing()))}{view}", **options)


async def test_failures_are_told_by_what_they_have_in_common(
    open_page: Open, exported: Any
) -> None:
    shown = await opened(open_page, exported, "#/errors")
    await shown.page.wait_for_selector("[data-testid=error-row]")
    rows = await cells(shown.page, "[data-testid=error-row]")
    search = next(row for row in rows if row[2] == "search")
    assert search[:2] == ["failed", "HTTP # from upstream search-# after # s"]
    assert search[4] == "4"
    refused = [row[0].split()[-1] for row in rows if row[0].startswith("404")]
    assert refused == ["model_not_found", "session_not_found"]
    assert "Tools' own messages" in await shown.text("[data-testid=errors]")


async def test_a_failure_leads_to_its_requests_in_the_timeline(
    open_page: Open, exported: Any
) -> None:
    shown = await opened(open_page, exported, "#/errors")
    row = shown.page.locator("[data-testid=error-row]", has_text="search-#")
    await row.get_by_role("link").click()
    await shown.says("1 of 4 requests", within=".tl-toolbar [role=status]")
    assert await shown.page.evaluate("location.hash.includes('t0=')")
    await shown.page.get_by_role("button", name="Clear").click()
    await shown.says("4 requests", within=".tl-toolbar [role=status]")


async def test_a_status_on_the_overview_leads_to_its_failures(
    open_page: Open, exported: Any
) -> None:
    shown = await opened(open_page, exported, "#/overview")
    await shown.page.locator(".ov-answers a", has_text="model_not_found").click()
    await shown.says("2 failures of 1 sort", within="[data-testid=errors]")


async def test_a_session_that_goes_round_in_circles_is_marked(
    open_page: Open, exported: Any
) -> None:
    shown = await opened(open_page, exported, "#/session/conversation-a")
    await shown.says("search was called 4 times with the same arguments", within="main")
    await shown.says("search × 4", within="[data-testid=loop]")


async def test_a_tool_is_chosen_by_its_row_and_has_sums(open_page: Open, exported: Any) -> None:
    shown = await opened(open_page, exported, "#/tools")
    row = shown.page.locator("[data-testid=tool-search]")
    await row.locator("[data-testid=recomputed]").click()
    await shown.says("search", within="[data-testid=tools-title]")
    assert await row.locator("[data-testid=recomputed]").inner_text() == "7"
    assert await row.locator("[data-testid=totalCost]").inner_text() == "19.4 blk·s"


async def test_a_recording_without_failures_says_so(open_page: Open, exported: Any) -> None:
    lanes = [entry for entry in made.entries() if entry["kind"] == "lanes"]
    shown = await open_page(f"{exported((made.recording(), lanes))}#/errors")
    await shown.says("nothing failed", within="[data-testid=errors]")
