"""Recordings of two servers as one: busy at the same time, with equal ids of requests."""

from typing import Any

import pytest

from tests.kit.browser import Open, Shown

from . import recordings as made
from .reading import cells, plain

STATUS = ".tl-toolbar [role=status]"
BOTH = "1,2"
LATER = 3.0
"""Seconds by which the second server's request comes later."""


def held(number: int, server: str, by: float) -> Any:
    rows = [
        (by + 0.0, "request-1", "waiting", 0, 0, 100),
        (by + 0.5, "request-1", "decode", 5, 0, 100),
        (by + 5.0, "request-1", "ended", 0, 0, 140),
    ]
    facts = {"model": "tiny", "handling": "caesura", "block_size": 16, "server": server}
    recording = made.recording(number, f"caesura serve, tiny on {server}", about=facts)
    return recording, [made.lanes(rows), *([made.steps()] if number == 1 else [])]


@pytest.fixture
def two(exported: Any) -> str:
    return str(exported(held(1, "box-a", 0.0), held(2, "box-b", LATER)))


async def test_two_servers_are_one_timeline(open_page: Open, two: str) -> None:
    shown = await open_page(f"{two}#/timeline?rec={BOTH}")
    await shown.says("2 requests", within=STATUS)
    await shown.page.select_option("select[aria-label=Server] >> nth=1", "box-b")
    await shown.says("1 of 2 requests", within=STATUS)
    await shown.view(f"#/timeline?rec={BOTH}&sel=2:request-1")
    await shown.says("on box-b", within="[data-testid=request-server]")
    await shown.says("5.00 s", within="[data-testid=request-time]")
    assert shown.seen.complaints == []


async def test_equal_ids_are_two_sessions_with_their_servers(open_page: Open, two: str) -> None:
    shown = await open_page(f"{two}#/session?rec={BOTH}")
    rows = shown.page.locator("[data-testid=session-row]")
    await shown.says("2 sessions")
    told = sorted([await rows.nth(place).inner_text() for place in range(2)])
    assert ["box-a" in one for one in told] == [True, False]
    assert ["box-b" in one for one in told] == [False, True]
    await shown.page.select_option("[data-testid=by-server]", "box-b")
    await shown.says("1 of 2 sessions")
    await rows.nth(0).locator("a").click()
    await shown.says("on box-b", within="[data-testid=session-server]")


@pytest.fixture
def dying(exported: Any) -> str:
    """Both servers refuse a request, and the engine of the second one is dead for two seconds."""
    died = {"kind": "restart", "at": made.BEGAN + 5, "why": "out of memory", "attempts": 1}
    gone = {"kind": "http", "route": "/v1/responses", "status": 404, "code": "not_found"}
    first, second = held(1, "box-a", 0.0), held(2, "box-b", LATER)
    first[1].append({**gone, "at": made.BEGAN + 1})
    second[1].append({**gone, "at": made.BEGAN + 2, "count": 2})
    second[1].append({**died, "state": "restarted", "seconds": 2.0})
    return str(exported(first, second))


async def test_an_outage_is_a_band_with_the_name_of_its_server(open_page: Open, dying: str) -> None:
    shown = await open_page(f"{dying}#/overview?rec={BOTH}")
    bands = shown.page.locator("[data-testid=ov-outage]")
    await bands.first.wait_for()
    charts = await shown.page.locator(".ov-chart").count()
    assert charts >= 4 and await bands.all_inner_texts() == ["box-b"] * charts
    said = "the engine of box-b was dead for 2.00 s"
    labels = await shown.page.locator(".ov-plot [role=img]").evaluate_all(
        "charts => charts.map(one => one.ariaLabel.replace(/[\\u202f\\u2009\\u00a0]/g, ' '))"
    )
    assert len(labels) == charts and all(said in label for label in labels)
    await shown.view(f"#/timeline?rec={BOTH}")
    canvas = shown.page.locator(".tl-scroller canvas")
    await canvas.wait_for()
    assert said in plain(str(await canvas.get_attribute("aria-label")))
    assert shown.seen.complaints == []


async def test_failures_have_their_server_and_are_filtered_by_it(
    open_page: Open, dying: str
) -> None:
    shown = await open_page(f"{dying}#/errors?rec={BOTH}")
    await shown.says("4 failures of 3 sorts", within="[data-testid=errors]")
    rows = await cells(shown.page, "[data-testid=error-row]")
    assert sorted((row[0].split(" ")[0], row[4], row[5]) for row in rows) == [
        *[("404", "box-a", "1"), ("404", "box-b", "2"), ("engine", "box-b", "1")],
    ]
    await shown.page.select_option("[data-testid=by-server]", "box-a")
    await shown.says("1 failure of 1 sort", within="[data-testid=errors]")
    await shown.page.select_option("[data-testid=by-server]", "box-b")
    await shown.says("3 failures of 2 sorts", within="[data-testid=errors]")
    alone = await open_page(f"{dying}#/errors?rec=1")
    await alone.says("1 failure of 1 sort", within="[data-testid=errors]")
    assert not await alone.page.locator(
        "[data-testid=by-server], [data-testid=error-server]"
    ).count()


async def test_blocks_are_of_the_server_that_is_chosen(open_page: Open, two: str) -> None:
    shown: Shown = await open_page(f"{two}#/memory?rec={BOTH}")
    await shown.says("Memory: choose one recording")
    await shown.page.click("[data-testid=choose-one] button:has-text('box-a')")
    await shown.page.wait_for_selector("[data-testid=memory]")
    await shown.page.select_option("[data-testid=server]", "")
    await shown.says("Memory: choose one recording")


async def test_recordings_are_ticked_to_be_shown_as_one(open_page: Open, two: str) -> None:
    shown = await open_page(f"{two}#/timeline?rec=1")
    await shown.says("1 request", within=STATUS)
    await shown.page.click("[data-testid=manage]")
    for place in range(2):
        await shown.page.locator("[data-testid=tick]").nth(place).check()
    await shown.page.click("[data-testid=together]")
    await shown.says("2 requests", within=STATUS)
    await shown.says("2 recordings in one", within="[data-testid=joined]")
    # A day of them is offered in the list too.
    names = await shown.page.locator("select[aria-label=Recording] option").all_inner_texts()
    assert len(names) == 3, "the two, and both as one, which is chosen"


async def test_two_live_servers_of_one_store_are_followed_together(
    open_page: Open, serving: Any
) -> None:
    first, second = await serving(), await serving()
    await first.written([made.state("request-1", "waiting", 0)])
    await second.written([made.state("request-1", "waiting", 1)])
    shown = await open_page(f"{first.ui}#/timeline?rec={BOTH}")
    await shown.says("2 requests", within=STATUS)
    await shown.says("Live", within="header")
    await second.written([made.state("request-2", "waiting", 2)])
    await shown.says("3 requests", within=STATUS)
    await first.written([made.state("request-2", "waiting", 3)])
    await shown.says("4 requests", within=STATUS)
