"""The timeline: what it draws, and getting about with pointer, keys and addresses."""

import re
from typing import Any
from urllib.parse import parse_qs

import pytest

from tests.kit.browser import Open, Shown

from . import recordings as made
from .reading import about, amount, cells, plain

GUTTER, AXIS, ROW = 168, 38, 22
"""Where lanes begin, in pixels: right of the names, below the axis, one beneath the other."""
ORDER = (made.A, made.B, made.D, made.C)
"""Requests in the order of their first state."""
WINDOW = (made.BEGAN - 0.5, made.BEGAN + 10.5)
SAID = {"person": "waits for a person"}


@pytest.fixture
async def shown(open_page: Open, exported: Any) -> Shown:
    url = exported((made.recording(), made.entries()))
    opened = await open_page(f"{url}#/timeline?t0={WINDOW[0]}&t1={WINDOW[1]}")
    await opened.says("4 requests", within=".tl-toolbar [role=status]")
    return opened


def window_of(shown: Shown) -> tuple[float, float] | None:
    """The stretch of time that the address names."""
    query = parse_qs(shown.page.url.partition("?")[2])
    return (float(query["t0"][0]), float(query["t1"][0])) if "t0" in query else None


async def until_window(shown: Shown, *, other_than: Any) -> Any:
    """Wait until the address names another window; it follows the view a moment later."""
    for _ in range(100):
        if window_of(shown) != other_than:
            return window_of(shown)
        await shown.page.wait_for_timeout(50)
    raise AssertionError("the window has not changed")


async def point(shown: Shown, request: str, second: float) -> None:
    """Point at a request's lane at a time."""
    box = await shown.page.locator(".tl-scroller canvas").bounding_box()
    t0, t1 = window_of(shown) or WINDOW
    across = (made.BEGAN + second - t0) / (t1 - t0) * (box["width"] - GUTTER)
    down = AXIS + ORDER.index(request) * ROW + ROW / 2
    await shown.page.mouse.move(box["x"] + GUTTER + across, box["y"] + down)


@pytest.mark.slow
async def test_every_state_is_drawn_when_and_as_long_as_it_was(shown: Shown) -> None:
    for index, (since, request, state, blocks, _, tokens) in enumerate(made.STATES):
        if state == "ended":
            continue
        later = (row for row in made.STATES[index + 1 :] if row[1] == request)
        until = next(later, (10.0,))[0]
        await point(shown, request, (since + until) / 2)
        asked = request == made.B and state in ("paused", "dropped")
        name = "waits for a person" if asked else state
        await shown.says(request, name, f"{tokens} tokens", f"{blocks} blocks", within=".tl-tip")
        length = await shown.text(".tl-tip-state span:last-child")
        assert amount(length) == about(until - since), (request, state)


async def test_the_table_beside_it_says_the_same_as_the_canvas(shown: Shown) -> None:
    await shown.press("j")
    await shown.page.click("summary:has-text('All states')")
    rows = await cells(shown.page, ".dc-table tbody tr")
    mine = [row for row in made.STATES if row[1] == made.A]
    assert [row[1] for row in rows] == [state for _, _, state, *_ in mine]
    assert [[int(cell) for cell in row[3:]] for row in rows] == [list(row[3:]) for row in mine]


async def test_keys_go_from_request_to_request_and_into_the_decision(shown: Shown) -> None:
    press = shown.press
    panel = shown.page.locator("aside.dc-panel header")
    for key, request in (("j", made.A), ("j", made.B), ("j", made.D), ("k", made.B), ("k", made.A)):
        await press(key)
        await shown.says(request, within="aside.dc-panel header")
    await press("Escape")
    await panel.wait_for(state="detached")
    await press("j")
    await press("]")
    await press("Enter")
    await shown.says("Pause: search", within="main h2")
    assert f"/decision/{made.A}/" in shown.page.url
    await shown.page.go_back()
    await shown.says(made.A, within="aside.dc-panel header")


async def test_keys_zoom_and_move(shown: Shown) -> None:
    press, before = shown.press, window_of(shown)
    await press("+")
    closer = await until_window(shown, other_than=before)
    assert closer[1] - closer[0] < WINDOW[1] - WINDOW[0]
    await press("ArrowRight")
    right = await until_window(shown, other_than=closer)
    assert right[0] > closer[0] and right[1] - right[0] == about(closer[1] - closer[0])
    await press("-")
    wider = await until_window(shown, other_than=right)
    assert wider[1] - wider[0] == about(WINDOW[1] - WINDOW[0])
    await press("0")
    assert await until_window(shown, other_than=wider) is None


async def test_ctrl_and_the_wheel_zoom_where_the_pointer_is(shown: Shown) -> None:
    await point(shown, made.A, 5.0)
    await shown.page.keyboard.down("Control")
    for _ in range(12):
        await shown.page.mouse.wheel(0, -120)
    await shown.page.keyboard.up("Control")
    t0, t1 = await until_window(shown, other_than=WINDOW)
    assert t1 - t0 < 3
    share = (5.0 + 0.5) / (WINDOW[1] - WINDOW[0])
    assert (made.BEGAN + 5.0 - t0) / (t1 - t0) == pytest.approx(share, abs=0.02)


@pytest.mark.slow
async def test_a_millisecond_and_all_of_it(shown: Shown) -> None:
    await point(shown, made.A, 6.9)
    await shown.page.keyboard.down("Control")
    for _ in range(60):
        await shown.page.mouse.wheel(0, -240)
    await shown.page.keyboard.up("Control")
    t0, t1 = await until_window(shown, other_than=WINDOW)
    while t1 - t0 > 0.0011:
        t0, t1 = await until_window(shown, other_than=(t0, t1))
    assert t0 < made.BEGAN + 6.91 and t1 > made.BEGAN + 6.89
    await shown.press("0")
    assert await until_window(shown, other_than=(t0, t1)) is None


async def test_shift_and_drag_chooses_a_stretch(shown: Shown) -> None:
    await point(shown, made.C, 2.0)
    await shown.page.keyboard.down("Shift")
    await shown.page.mouse.down()
    await point(shown, made.C, 6.0)
    await shown.page.mouse.up()
    await shown.page.keyboard.up("Shift")
    t0, t1 = await until_window(shown, other_than=WINDOW)
    assert (t0 - made.BEGAN, t1 - made.BEGAN) == (
        pytest.approx(2.0, abs=0.05),
        pytest.approx(6.0, abs=0.05),
    )


async def test_memory_shows_the_same_stretch(shown: Shown) -> None:
    await shown.view(f"#/timeline?t0={made.BEGAN + 3}&t1={made.BEGAN + 5}")
    await shown.page.click("nav >> text=Memory")
    await shown.page.wait_for_selector("[data-testid=memory-surface]")
    assert window_of(shown) == (made.BEGAN + 3, made.BEGAN + 5)
    # The last step in sight begins at 5 s: both requests that waited for tools have lost theirs.
    paused = shown.page.locator("[data-testid=value-paused_blocks]")
    assert amount(await paused.inner_text()) == 1


async def test_filters_and_search(shown: Shown) -> None:
    status = ".tl-toolbar [role=status]"
    await shown.page.select_option("select[aria-label=Tool]", "search")
    await shown.says("1 of 4 requests", within=status)
    await shown.page.click("text=Clear")
    await shown.page.select_option("select[aria-label=State]", "recompute")
    await shown.says("1 of 4 requests", within=status)
    await shown.page.click("text=Clear")
    await shown.press("/")
    await shown.page.keyboard.type("chat-d")
    await shown.says("1 of 4 requests", within=status)
    assert "q=chat-d" in shown.page.url
    await shown.press("Escape")
    await shown.press("j")
    await shown.says(made.D, within="aside.dc-panel header")


async def test_idle_times_are_folded_and_unfolded(open_page: Open, exported: Any) -> None:
    later = [
        {**entry, "at": [at + 3600 for at in entry["at"]], "request": ["later"] * len(entry["at"])}
        if entry["kind"] == "lanes"
        else entry
        for entry in made.entries()
        if entry["kind"] == "lanes"
    ]
    ended = made.lanes([(10.5, made.C, "ended", 0, 0, 0)])
    shown = await open_page(
        f"{exported((made.recording(), [*made.entries(), ended, *later]))}#/timeline"
    )
    folded = amount(await shown.text(".tl-toolbar .muted.small >> nth=1"))
    assert folded < 60
    await shown.press("g")
    await shown.page.wait_for_function(
        "() => document.querySelector('button[aria-pressed=false]')?.innerText === 'Fold idle'"
        " || [...document.querySelectorAll('button[aria-pressed=false]')]"
        ".some(one => one.innerText === 'Fold idle')"
    )
    assert amount(await shown.text(".tl-toolbar .muted.small >> nth=1")) == about(3610)


@pytest.mark.parametrize(
    ("view", "title", "key"),
    [
        ("timeline", "Timeline", "zoom at the pointer (also: pinch)"),
        ("memory", "Memory", "previous and next step"),
        ("decision", "Decisions", "search, where the view has a search field"),
        ("session", "Sessions", "these keys"),
        ("tools", "Tools", "these keys"),
        ("compare", "Compare", "these keys"),
    ],
)
async def test_the_help_lists_the_keys_of_the_view(
    shown: Shown, view: str, title: str, key: str
) -> None:
    await shown.view(f"#/{view}")
    await shown.page.wait_for_selector(f"nav a[aria-current=page]:has-text('{title}')")
    await shown.press("?")
    await shown.says(f"Keys: {title}", key, "IN EVERY VIEW", within="dialog[open]")
    await shown.press("Escape")
    await shown.page.wait_for_selector("dialog[open]", state="hidden")


async def test_an_address_opens_the_same_view_again(open_page: Open, shown: Shown) -> None:
    await shown.press("j")
    await shown.press("]")
    await shown.page.select_option("select[aria-label=Outcome]", "swap")
    await shown.press("+")
    await until_window(shown, other_than=WINDOW)
    await shown.says("1 of 4 requests")
    again = await open_page(shown.page.url)
    await again.says("1 of 4 requests", made.A, "PRICE OF EACH ALTERNATIVE")
    assert again.page.url == shown.page.url
    first = await shown.page.locator(".tl-scroller canvas").screenshot()
    await shown.page.mouse.move(0, 0)
    assert len(first) > 0 and window_of(again) == window_of(shown)
    assert plain(await again.text("main")) == plain(await shown.text("main"))


async def test_it_can_be_read_without_the_mouse(shown: Shown) -> None:
    """Everything that can be pressed is reached with Tab, and shows where the focus is."""
    names = set()
    for _ in range(40):
        await shown.press("Tab")
        focus = await shown.page.evaluate(
            "() => { const one = document.activeElement; const style = getComputedStyle(one);"
            " return [one.tagName, one.ariaLabel || one.innerText || one.id,"
            " style.outlineStyle !== 'none' || style.boxShadow !== 'none'] }"
        )
        if focus[0] == "BODY":
            break
        names.add(focus[1])
        assert focus[2], f"the focus on {focus[:2]} is not seen"
    assert {"Timeline", "Decisions", "Memory", "Sessions", "Tools", "Compare"} <= names
    assert any(re.match("Timeline of 4 requests", name) for name in names)
