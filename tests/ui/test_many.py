"""Hundreds of requests: rows that fit, orders, filters, gestures, and live work in sight."""

import re
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs

import pytest

from caesura.runtime.recording.entries import Entry
from tests.kit.browser import Open, Shown

from . import recordings as made

COUNT = 300
STATUS = ".tl-toolbar [role=status]"
SCROLLER = ".tl-scroller"


def entries() -> Iterator[Entry]:
    """Requests of 4 s, one each second, ten of them at a time; every tenth one waits and lasts."""
    rows = []
    for number in range(COUNT):
        request = f"request-{number:03}"
        waits, lasts = (3.0, 30.0 + number / 10) if number % 10 == 0 else (0.1, 4.0)
        rows += [
            (float(number), request, "waiting", 0, 0, 100),
            (number + waits, request, "decode", 5, 0, 100 + number),
            (number + lasts, request, "ended", 0, 0, 100 + number),
        ]
    yield made.lanes(sorted(rows))


def query(shown: Shown) -> dict[str, list[str]]:
    return parse_qs(shown.page.url.partition("?")[2])


async def scrolled(shown: Shown, to: str) -> None:
    """Wait until the rows stand where an expression of their element `one` says."""
    script = f"() => {{ const one = document.querySelector('{SCROLLER}'); return {to} }}"
    await shown.page.wait_for_function(script)


async def said_of_canvas(shown: Shown) -> str:
    label = await shown.page.get_attribute(".tl-scroller canvas", "aria-label")
    assert label is not None
    return label


@pytest.fixture
async def many(open_page: Open, exported: Any) -> Shown:
    shown = await open_page(f"{exported((made.recording(), entries()))}#/timeline")
    await shown.says("300 requests", within=STATUS)
    return shown


async def test_several_requests_share_a_row_where_there_are_more_than_fit(many: Shown) -> None:
    assert "several in one row" in await said_of_canvas(many)
    high = await many.page.evaluate(f"() => document.querySelector('{SCROLLER}').scrollHeight")
    assert high < 900, "all of it is in sight"
    await many.page.select_option("select[aria-label=Rows]", "each")
    await many.page.wait_for_function(
        f"() => document.querySelector('{SCROLLER}').scrollHeight > 22 * 300"
    )
    assert query(many)["tl.rows"] == ["each"]
    await many.page.select_option("select[aria-label=Rows]", "summed")
    await many.page.wait_for_selector("canvas[aria-label*='summed up by state']")


async def test_sums_are_drawn_anew_when_a_filter_changes(many: Shown) -> None:
    await many.page.select_option("select[aria-label=Rows]", "summed")
    await many.page.fill("#tl-search", "request-2")
    await many.says("100 of 300 requests", within=STATUS)
    drawn = "document.querySelector('.tl-scroller canvas').toDataURL()"
    before = await many.page.evaluate(
        "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame("
        f"() => done({drawn}))))"
    )
    await many.page.fill("#tl-search", "request-29")
    await many.says("10 of 300 requests", within=STATUS)
    await many.page.wait_for_function(f"before => {drawn} !== before", arg=before)


async def test_a_request_in_a_packed_row_is_chosen_by_a_click(many: Shown) -> None:
    await many.press("j")
    await many.says("request-000", within="aside.dc-panel header")
    await many.press("j")
    await many.says("request-001", within="aside.dc-panel header")
    box = await many.page.locator(".tl-scroller canvas").bounding_box()
    await many.page.mouse.click(box["x"] + box["width"] - 30, box["y"] + 38 + 12)
    await many.page.wait_for_function(
        "() => !document.querySelector('aside.dc-panel header')?.innerText.includes('request-00')"
    )


async def test_rows_are_sorted_and_the_address_says_how(many: Shown, open_page: Open) -> None:
    await many.page.select_option("select[aria-label='Order of requests']", "duration")
    await many.press("j")
    await many.says("request-290", within="aside.dc-panel header")
    await many.press("j")
    await many.says("request-280", within="aside.dc-panel header")
    assert query(many)["tl.sort"] == ["duration"]
    again = await open_page(many.page.url)
    await again.says("request-280", within="aside.dc-panel header")
    chosen = "select => select.value"
    assert await again.page.eval_on_selector("[aria-label='Order of requests']", chosen) == (
        "duration"
    )


async def test_filters_by_least_sizes_are_in_the_address(many: Shown, open_page: Open) -> None:
    await many.page.click("button:has-text('Filter')")
    await many.page.fill("label:has-text('waited longer than') input", "2")
    await many.says("30 of 300 requests", within=STATUS)
    await many.page.fill("label:has-text('more tokens than') input", "300")
    await many.says("10 of 300 requests", within=STATUS)
    again = await open_page(many.page.url)
    await again.says("10 of 300 requests", within=STATUS)
    await again.page.click("text=Clear")
    await again.says("300 requests", within=STATUS)
    assert not [name for name in query(again) if name.startswith("tl.")]


async def test_an_id_is_found_by_its_beginning(many: Shown) -> None:
    await many.press("/")
    await many.page.keyboard.type("29")
    await many.says("0 of 300 requests", within=STATUS)
    await many.page.fill("#tl-search", "request-29")
    await many.says("10 of 300 requests", within=STATUS)


async def test_the_wheel_scrolls_and_with_shift_moves(many: Shown) -> None:
    await many.view(f"#/timeline?tl.rows=each&t0={made.BEGAN}&t1={made.BEGAN + 400}")
    box = await many.page.locator(".tl-scroller canvas").bounding_box()
    await many.page.mouse.move(box["x"] + 700, box["y"] + 300)
    await many.page.mouse.wheel(0, 400)
    await scrolled(many, "one.scrollTop > 300")
    assert float(query(many)["t0"][0]) == made.BEGAN
    await many.page.keyboard.down("Shift")
    await many.page.mouse.wheel(0, 200)
    await many.page.keyboard.up("Shift")
    await many.page.wait_for_function(
        "t0 => Number(new URLSearchParams(location.hash.split('?')[1]).get('t0')) > t0",
        arg=made.BEGAN,
    )


async def test_page_and_end_keys_scroll_the_rows(many: Shown) -> None:
    await many.view("#/timeline?tl.rows=each")
    await scrolled(many, "one.scrollHeight > 6000")
    await many.press("PageDown")
    await scrolled(many, "one.scrollTop > 300")
    await many.press("End")
    await scrolled(many, "one.scrollTop + one.clientHeight >= one.scrollHeight - 2")
    await many.press("PageUp")
    await scrolled(many, "one.scrollTop + one.clientHeight < one.scrollHeight - 300")
    await many.press("Home")
    await scrolled(many, "one.scrollTop === 0")


async def test_two_fingers_zoom_where_they_are(open_page: Open, exported: Any) -> None:
    url = exported((made.recording(), entries()))
    window = (made.BEGAN, made.BEGAN + 300)
    shown = await open_page(
        f"{url}#/timeline?t0={window[0]}&t1={window[1]}",
        viewport={"width": 390, "height": 844},
        has_touch=True,
    )
    await shown.says("300 requests", within=STATUS)
    box = await shown.page.locator(".tl-scroller canvas").bounding_box()
    middle, y = box["x"] + 168 + (box["width"] - 168) / 2, box["y"] + 120
    touch = await shown.page.context.new_cdp_session(shown.page)
    for kind, apart in (("touchStart", 20), ("touchMove", 40), ("touchMove", 80)):
        points = [{"x": middle - apart, "y": y, "id": 1}, {"x": middle + apart, "y": y, "id": 2}]
        await touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    await touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    await shown.page.wait_for_function(
        "() => { const said = new URLSearchParams(location.hash.split('?')[1]);"
        " return Number(said.get('t1')) - Number(said.get('t0')) < 150 }"
    )
    t0, t1 = (float(query(shown)[name][0]) for name in ("t0", "t1"))
    assert (t0 + t1) / 2 == pytest.approx(sum(window) / 2, abs=8)
    assert "sel" not in query(shown), "two fingers choose nothing"


async def test_live_work_is_in_sight_and_jumps_find_their_row(
    open_page: Open, serving: Any
) -> None:
    """A hundred requests, most of them long ago: the newest are shown, and followed."""
    endpoint = await serving()
    now = time.time() - made.BEGAN
    old = [
        (now - 600 + number * 2 + later, f"old-{number:03}", state, 3, 0, 90)
        for number in range(80)
        for later, state in ((0.0, "waiting"), (1.0, "decode"), (9.0, "ended"))
    ]
    new = [(now - 20 + number / 2, f"new-{number:03}", "decode", 3, 0, 90) for number in range(20)]
    await endpoint.written([made.lanes(sorted(old)), made.lanes(new)])
    shown = await open_page(f"{endpoint.ui}#/timeline")
    await shown.says("20 of 100 requests", within=STATUS)
    pressed = await shown.page.eval_on_selector_all(
        ".tl-toolbar button[aria-pressed=true]", "all => all.map(one => one.innerText)"
    )
    assert {"In window", "Follow"} <= set(pressed)
    assert (query(shown)["follow"], query(shown)["tl.within"]) == (["1"], ["1"])
    await endpoint.written([made.lanes([(now + 1, "new-020", "decode", 3, 0, 90)])])
    await shown.says("21 of 101 requests", within=STATUS)
    await shown.view("#/session")
    await shown.page.click("[data-testid=session-row] a:has-text('old-000')")
    await shown.page.click("[data-testid=request] a:has-text('timeline')")
    await shown.says("old-000", within="aside.dc-panel header")
    await shown.page.wait_for_selector("button[aria-pressed=false]:has-text('Follow')")
    box = await shown.page.locator(".tl-scroller canvas").bounding_box()
    await shown.page.mouse.move(box["x"] + 60, box["y"] + 38 + 11)
    found = await said_of_canvas(shown)
    assert re.match(r"Timeline of \d+ requests", found)


async def test_leaving_while_it_follows_breaks_nothing(open_page: Open, serving: Any) -> None:
    """Rows that come as the timeline is left used to scroll an element that was gone."""
    endpoint = await serving()
    now = time.time() - made.BEGAN
    await endpoint.written([made.lanes([(now - 1, "first", "decode", 3, 0, 90)])])
    shown = await open_page(f"{endpoint.ui}#/timeline?follow=1")
    await shown.says("1 request", within=STATUS)
    for number in range(5):
        row = (now + number / 10, f"later-{number}", "decode", 3, 0, 90)
        await endpoint.written([made.lanes([row])])
        await shown.view("#/memory" if number % 2 else "#/timeline?follow=1")
    await shown.view("#/timeline?follow=1")
    await shown.says("6 requests", within=STATUS)
