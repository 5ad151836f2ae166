"""A tab of Chromium that is measured: frames, CPU time of its process, heap.

Frames are counted with `requestAnimationFrame`, so a page that draws nothing has 60 a second. CPU
time is that of the renderer's main thread (`ThreadTime` of Chromium's `Performance.getMetrics`):
it says what the page needs where the wall clock says how busy the machine was.
"""

import asyncio
import itertools
import shutil
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from playwright.async_api import Browser, CDPSession, Page, async_playwright

ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking")
LEFT_OUT = "could not be read"
"""The words of the page's note on entries that break the schema."""
LOOK_SECONDS, IDLE_SHARE, IDLE_LOOKS = 0.5, 0.15, 2
"""A page is at rest when its thread was busy for less than this share in so many looks."""
FRAMES = """seconds => new Promise(done => {
  const times = [];
  const frame = now => {
    times.push(now);
    if (now - times[0] < seconds * 1000) requestAnimationFrame(frame);
    else done(times);
  };
  requestAnimationFrame(frame);
})"""


@dataclass(frozen=True, slots=True)
class Metrics:
    """What Chromium says of a page's process at a moment."""

    at: float
    cpu_seconds: float
    heap_mb: float
    nodes: float


@dataclass(frozen=True, slots=True)
class Smoothness:
    """Frames over some seconds, in milliseconds, and the share of the time that was CPU time."""

    frames_per_second: float
    p95_ms: float
    longest_ms: float
    cpu_share: float
    heap_mb: float


class Tab:
    """A page in a browser process of its own."""

    def __init__(self, page: Page, cdp: CDPSession) -> None:
        self.page = page
        self._cdp = cdp

    async def metrics(self, collect: bool = False) -> Metrics:
        """Return the metrics now; `collect` garbage before."""
        if collect:
            await self._cdp.send("HeapProfiler.collectGarbage")
        answer = await self._cdp.send("Performance.getMetrics")
        said = {one["name"]: float(one["value"]) for one in answer["metrics"]}
        heap = said["JSHeapUsedSize"] / 1e6
        return Metrics(said["Timestamp"], said["ThreadTime"], heap, said["Nodes"])

    async def demand_all(self) -> None:
        """Raise `SystemExit` if the page left entries out: it would show less than is measured."""
        for note in await self.page.locator(".notes .note").all_inner_texts():
            if LEFT_OUT in note:
                raise SystemExit(f"the page does not draw all of the traffic: {note}")

    async def at_rest(self, within: float = 120.0) -> bool:
        """Wait until the page's thread is at rest; False if it is not in time."""
        until, calm = time.monotonic() + within, 0
        before = await self.metrics()
        while time.monotonic() < until:
            await asyncio.sleep(LOOK_SECONDS)
            now = await self.metrics()
            busy = (now.cpu_seconds - before.cpu_seconds) / max(now.at - before.at, 1e-3)
            calm, before = (calm + 1 if busy < IDLE_SHARE else 0), now
            if calm == IDLE_LOOKS:
                return True
        return False

    async def smoothness(self, seconds: float) -> Smoothness:
        """Count frames for some seconds."""
        before = await self.metrics()
        times = await self.page.evaluate(FRAMES, seconds)
        after = await self.metrics()
        lengths = [later - earlier for earlier, later in itertools.pairwise(times)]
        return Smoothness(
            1000 * len(lengths) / sum(lengths),
            quantile(lengths, 0.95),
            max(lengths),
            (after.cpu_seconds - before.cpu_seconds) / (after.at - before.at),
            after.heap_mb,
        )


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that so great a share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Start Chromium. Raises `SystemExit` where there is none."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        raise SystemExit("there is no Chromium: apt-get install chromium")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield browser
        await browser.close()


@asynccontextmanager
async def tab(browser: Browser, patience_seconds: float = 300.0) -> AsyncIterator[Tab]:
    """Open an empty tab with a profile of its own."""
    context = await browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(1000 * patience_seconds)
    page = await context.new_page()
    cdp = await context.new_cdp_session(page)
    await cdp.send("Performance.enable", {"timeDomain": "threadTicks"})
    yield Tab(page, cdp)
    await context.close()
