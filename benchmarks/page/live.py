"""Frames in every view while requests come, on a page with many former sessions."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from playwright.async_api import Browser

from benchmarks.page.pages import Built
from benchmarks.page.tab import Smoothness, Tab, tab

FOLLOWING = "timeline, following"
FOLLOW = "button:text-is('Follow')"


@dataclass(slots=True)
class Seen:
    """The figures of one page: by view, a figure for each round."""

    views: dict[str, list[Smoothness]] = field(default_factory=dict)
    load_cpu_seconds: list[float] = field(default_factory=list)
    heap_mb: list[float] = field(default_factory=list)
    """After garbage collection, when all views have been shown."""


@asynccontextmanager
async def crowded(
    pages: Sequence[Built], sessions: int, concurrent: int
) -> AsyncIterator[tuple[list[str], int]]:
    """Run a server with traffic; yield the addresses of the pages, and its ended sessions."""
    command = [sys.executable, "-m", "benchmarks.page.server"]
    options = ["--sessions", str(sessions), "--concurrent", str(concurrent)]
    process = await asyncio.create_subprocess_exec(
        *command,
        *(str(one.folder) for one in pages),
        *options,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None and process.stdin is not None
    try:
        line = await process.stdout.readline()
        if not line:
            raise SystemExit("the server with traffic ended before it was ready")
        said = json.loads(line)
        yield [f"http://127.0.0.1:{port}/ui/" for port in said["ports"]], said["sessions"]
    finally:
        process.stdin.close()
        await process.wait()


async def watch(
    browser: Browser, url: str, seconds: float, seen: Seen, only: Sequence[str] = ()
) -> None:
    """Open a page, and measure each of its views for some seconds."""
    async with tab(browser) as one:
        await one.page.goto(url)
        await one.page.wait_for_selector("[role=progressbar]", state="attached")
        await one.page.wait_for_selector("[role=progressbar]", state="detached")
        await one.demand_all()
        seen.load_cpu_seconds.append((await one.metrics()).cpu_seconds)
        for name, address in (await views(one)).items():
            if only and name not in only:
                continue
            await one.page.evaluate("hash => { location.hash = hash }", address)
            await one.page.wait_for_selector("main > *")
            for label in (name, FOLLOWING) if name == "timeline" else (name,):
                await follow(one, label == FOLLOWING)
                await asyncio.sleep(1.0)  # what opening it cost is not what showing it costs
                seen.views.setdefault(label, []).append(await one.smoothness(seconds))
        seen.heap_mb.append((await one.metrics(collect=True)).heap_mb)


async def views(one: Tab) -> dict[str, str]:
    """Return the views that the page's header offers, with their addresses."""
    links = "all => all.map(one => one.hash).filter(hash => hash.startsWith('#/'))"
    found = await one.page.eval_on_selector_all("header nav a", links)
    return {hash_.removeprefix("#/").partition("?")[0]: hash_ for hash_ in found}


async def follow(one: Tab, on: bool) -> None:
    """Let the timeline follow what is new, or not; other views have no such button."""
    button = one.page.locator(FOLLOW)
    if await button.count() and (await button.get_attribute("aria-pressed") == "true") != on:
        await button.click()
