"""Who wanted the memory of a pause is said, and where nobody did there is no regret."""

from typing import Any

import pytest

from tests.kit.browser import Open, Shown

from . import burst
from . import recordings as made
from .reading import amount, cells, listed

FREE: dict[str, Any] = {
    "cost": 0.0,
    "queue_cost": 0.0,
    "work_cost": 0.0,
    "recomputed_tokens": 0,
    "loaded_tokens": 0,
    "hindsight": None,
    "regret": None,
    "wanted_seconds": 0.0,
    "wanted_requests": 0,
    "wanted_by": [],
}


def with_search(*, drop: tuple[str, ...] = (), **end: Any) -> list[dict[str, Any]]:
    """The recording by hand, with another end of the search's pause."""
    return [
        {key: value for key, value in (entry | end).items() if key not in drop}
        if entry["kind"] == "pause" and entry["tool"] == "search"
        else entry
        for entry in made.entries()
    ]


async def opened(open_page: Open, exported: Any, entries: Any, view: str, **options: Any) -> Shown:
    return await open_page(f"{exported((made.recording(), entries))}{view}", **options)


SEARCH = f"#/decision/{made.A}/{made.SEARCH['at']}"


async def test_a_decision_names_who_wanted_the_memory(open_page: Open, exported: Any) -> None:
    shown = await opened(open_page, exported, made.entries(), SEARCH)
    await shown.says("Others wanted its memory for 3.25 s of 4.40 s", within=".dc-verdict")
    await shown.page.click(".dc-verdict a")
    await shown.page.wait_for_url(f"**sel={made.D}*")


async def test_where_memory_was_free_keeping_cost_nothing(open_page: Open, exported: Any) -> None:
    shown = await opened(open_page, exported, with_search(**FREE), SEARCH)
    await shown.says("Memory was free throughout", within=".dc-verdict")
    assert "Regret" not in await shown.text(".dc-verdict")
    assert not await shown.page.query_selector(".dc-verdict .bad")
    await shown.view("#/decision")
    rows = {row[0]: row for row in await cells(shown.page, ".dc-all tbody tr")}
    assert rows[made.A][6:9] == ["nobody", "–", "–"]


async def test_an_earlier_version_is_not_believed(open_page: Open, exported: Any) -> None:
    shown = await opened(open_page, exported, with_search(drop=("queue_cost",)), SEARCH)
    await shown.says("An earlier version recorded it", within=".dc-verdict")
    await shown.view("#/decision")
    rows = {row[0]: row for row in await cells(shown.page, ".dc-all tbody tr")}
    assert rows[made.A][6:9] == ["–", "–", "–"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_decisions_are_sorted_by_keyboard_and_in_the_address(
    open_page: Open, exported: Any, scheme: str
) -> None:
    shown = await opened(open_page, exported, made.entries(), "#/decision", color_scheme=scheme)
    regrets = [row[8] for row in await cells(shown.page, ".dc-all tbody tr")]
    assert [amount(text) for text in regrets[:2]] == [20.0, 13.3] and regrets[2] == "–"
    await shown.page.focus(".dc-all th:nth-child(7) button")
    await shown.page.keyboard.press("Enter")
    await shown.page.wait_for_url("**dc.sort=-wanted*")
    await shown.page.keyboard.press("Enter")
    await shown.page.wait_for_url("**dc.sort=wanted*")
    await shown.page.reload()
    await shown.page.wait_for_selector(".dc-all tbody tr")
    first = (await cells(shown.page, ".dc-all tbody tr"))[0]
    assert first[2] == "search", "its memory was wanted for a shorter time"


async def test_on_a_phone_the_search_stays_in_sight(open_page: Open, exported: Any) -> None:
    shown = await opened(
        open_page, exported, made.entries(), "#/decision", viewport={"width": 390, "height": 800}
    )
    box = await shown.page.locator(".dc-list input[type=search]").bounding_box()
    assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390
    assert await shown.page.evaluate("document.documentElement.scrollWidth") <= 390


async def test_the_cost_of_a_pause_is_the_sum_of_its_parts(open_page: Open, exported: Any) -> None:
    shown = await opened(open_page, exported, made.entries(), SEARCH)
    await shown.page.wait_for_selector(".dc-parts")
    parts = await listed(shown.page, ".dc-parts dl")
    paused, queued, work, cost, least = (amount(text) for text in parts.values())
    assert (queued, work, cost, least) == (4.5, 1.13, 19.4, 6.13)
    assert paused == pytest.approx(cost - queued - work, abs=0.05)


async def test_no_regret_stands_beside_nobody(open_page: Open, exported: Any) -> None:
    """In a burst under pressure, many wanted memory while others queued behind their pauses."""
    shown = await open_page(f"{exported(burst.burst())}#/decision")
    await shown.page.wait_for_selector(".dc-all tbody tr")
    rows = await cells(shown.page, ".dc-all tbody tr")
    regretted = [row for row in rows if row[8] != "–" and amount(row[8]) > 0]
    assert len(regretted) > 5
    assert not [row for row in regretted if row[6] in ("nobody", "–")]
    for index in range(5):
        await shown.page.locator(".dc-all td:first-child a").nth(index).click()
        await shown.page.wait_for_selector(".dc-verdict")
        verdict = await shown.text(".dc-verdict")
        assert "Regret" in verdict
        assert "Memory was free" not in verdict or "needless" in verdict
        await shown.page.go_back()
        await shown.page.wait_for_selector(".dc-all")
