"""What it takes to open an exported file, and to get about in it."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from playwright.async_api import Browser
from playwright.async_api import Error as BrowserError

from benchmarks.page.live import views
from benchmarks.page.tab import Tab, tab

CANVAS = ".tl-scroller canvas"
SAID = "[role=alert], .note.bad"
WHEEL_TURNS, DRAG_MOVES = 20, 30


@dataclass(slots=True)
class Opened:
    """One opening of a file; CPU times in seconds, `moves` of single actions and views."""

    load_cpu_seconds: float = 0.0
    load_seconds: float = 0.0
    heap_mb: float = 0.0
    moves: dict[str, float] = field(default_factory=dict)
    said: str = ""
    """What the page says instead of showing the file; empty if it shows it."""


async def open_file(browser: Browser, path: Path, patience_seconds: float = 240.0) -> Opened:
    """Open a file, wait until it is at rest, zoom, drag, search, and go through the views."""
    opened = Opened()
    try:
        async with tab(browser, patience_seconds) as one:
            began = time.monotonic()
            await one.page.goto(f"{path.as_uri()}#/timeline")
            rest = await one.at_rest(patience_seconds)
            opened.load_seconds = time.monotonic() - began
            await one.demand_all()
            opened.load_cpu_seconds = (await one.metrics()).cpu_seconds
            opened.heap_mb = (await one.metrics(collect=True)).heap_mb
            opened.said = await _words(one)
            if not rest:
                opened.said = f"not at rest within {patience_seconds:g} s"
            if not opened.said:
                await _get_about(one, opened.moves)
    except BrowserError as error:
        opened.said = opened.said or f"the tab failed: {str(error).splitlines()[0]}"
    return opened


async def _words(one: Tab) -> str:
    """Return what the page says in place of a view; blank pages say nothing."""
    if await one.page.locator(CANVAS).count():
        return ""
    found = await one.page.locator(SAID).all_inner_texts()
    return " ".join(" ".join(found).split()) or "nothing: the page is blank"


async def _get_about(one: Tab, moves: dict[str, float]) -> None:
    mouse, keyboard = one.page.mouse, one.page.keyboard
    box = await one.page.locator(CANVAS).bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    await mouse.move(x, y)

    async def zoom() -> None:
        await keyboard.down("Control")
        for turn in range(WHEEL_TURNS):
            await mouse.wheel(0, -120 if turn < WHEEL_TURNS // 2 else 120)
        await keyboard.up("Control")

    async def drag() -> None:
        await mouse.down()
        for move in range(DRAG_MOVES):
            await mouse.move(x - 6 * move, y)
        await mouse.up()

    async def letter() -> None:
        await one.page.locator("#tl-search").focus()
        await keyboard.type("7")

    moves["20 wheel zooms"] = await _cpu(one, zoom)
    moves[f"drag of {DRAG_MOVES} moves"] = await _cpu(one, drag)
    moves["a search letter"] = await _cpu(one, letter)
    await keyboard.press("Backspace")
    for name, address in (await views(one)).items():

        async def show(address: str = address) -> None:
            await one.page.evaluate("hash => { location.hash = hash }", address)

        if name != "timeline":
            moves[f"view {name}"] = await _cpu(one, show)
            if not (await one.page.locator("main").inner_text()).strip():
                moves[f"view {name}"] = float("nan")  # blank: the view failed


async def _cpu(one: Tab, act: Callable[[], Awaitable[None]]) -> float:
    """Return the CPU seconds of an action, until the page is at rest again."""
    before = await one.metrics()
    await act()
    await one.at_rest()
    return (await one.metrics()).cpu_seconds - before.cpu_seconds
