"""A new user's walk: a burst was slow, the page is opened without a link, and says why."""

from typing import Any

import pytest

from tests.kit.browser import Open, Shown

from . import burst
from .reading import amount, plain

MOST_CLICKS = 3
OVERVIEW = "[data-testid=overview]"


class Walk:
    """Counts what a user does."""

    def __init__(self, shown: Shown) -> None:
        self.shown = shown
        self.clicks = 0

    async def click(self, selector: str) -> None:
        self.clicks += 1
        await self.shown.page.locator(selector).first.click()

    async def back(self) -> None:
        self.clicks += 1
        await self.shown.page.go_back()

    async def row(self, cause: str) -> str:
        """Return what the overview says of a cause of all the time that requests took."""
        await self.shown.page.wait_for_selector(OVERVIEW)
        return plain(await self.shown.text(f"[data-testid=slowed-{cause}]"))


@pytest.fixture(scope="module")
def recorded() -> Any:
    return burst.burst()


async def test_the_page_names_all_three_causes_within_three_clicks(
    open_page: Open, exported: Any, recorded: Any
) -> None:
    shown = await open_page(exported(recorded))
    walk = Walk(shown)

    # As it opens: which tool was slow, and that blocks were too few.
    tool = await walk.row("tool")
    assert burst.SLOW_TOOL in tool and f"{slow_requests()} requests" in tool
    blocks = [
        await walk.row(kind) for kind in ("blocks", "paused-blocks") if await told(shown, kind)
    ]
    assert any("Blocks held by" in row for row in blocks)

    # The slow tool's longest pause, and back.
    await walk.click("[data-testid=slowed-tool] a")
    await shown.says(burst.SLOW_TOOL, within="aside")
    await walk.back()

    # The long prompt.
    assert f"{burst.LONG_TOKENS}" in digits(await walk.row("prefill"))
    await walk.click("[data-testid=slowed-prefill] a")
    await shown.says(burst.LONG_PROMPT, within="aside")
    assert walk.clicks <= MOST_CLICKS


async def test_what_it_says_of_the_burst_is_what_was_recorded(
    open_page: Open, exported: Any, recorded: Any
) -> None:
    _, entries = recorded
    shown = await open_page(exported(recorded))
    pauses = [one for one in entries if one["kind"] == "pause" and one["tool"] == burst.SLOW_TOOL]
    assert len(pauses) == slow_requests()
    seconds = sum(one["pause_seconds"] for one in pauses)
    await shown.page.wait_for_selector(OVERVIEW)
    told_seconds = amount(await shown.text("[data-testid=slowed-tool] b"))
    assert told_seconds == pytest.approx(seconds, rel=0.02)
    waits = [one for one in entries if one["kind"] == "wait" and one["lacked"].get("blocks")]
    assert waits, "the pool is too small for the burst"


async def test_each_of_the_slowest_says_why(open_page: Open, exported: Any, recorded: Any) -> None:
    shown = await open_page(exported(recorded))
    rows = shown.page.locator("[data-testid=slowest] [data-testid=ov-request]")
    await rows.first.wait_for()
    sentences = [plain(text) for text in await rows.all_inner_texts()]
    assert all(
        "waited" in one or burst.SLOW_TOOL in one or "prefill of" in one or "decode" in one
        for one in sentences
    )
    assert any(f"its tool {burst.SLOW_TOOL} took" in one for one in sentences)


async def told(shown: Shown, cause: str) -> bool:
    return await shown.page.locator(f"[data-testid=slowed-{cause}]").count() > 0


def slow_requests() -> int:
    return sum(one.segments[0].tool == burst.SLOW_TOOL for one in burst.sessions())


def digits(text: str) -> str:
    return "".join(one for one in text if one.isdigit() or one == "." or one == "s")
