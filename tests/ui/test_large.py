"""A long recording: it loads, it is drawn, and it can be zoomed. Times are printed, not judged."""

import random
import statistics
import time
from collections.abc import Iterator
from typing import Any

import pytest

from caesura.runtime.recording.entries import Entry
from tests.kit.browser import Open

from . import recordings as made

REQUESTS, CYCLES, STEPS = 4000, 5, 100_000
CYCLE = ("waiting", "prefill", "decode", "paused", "offloaded")
"""100,000 intervals: five of each of these in each request; 20,000 pauses."""
VIEWS = {
    "memory": "[data-testid=memory-surface]",
    "decision": ".dc-all tbody tr",
    "tools": "[data-testid=tool-search]",
    "session": "[data-testid=session-row]",
}
EVERY_FRAME = """
const asked = window.requestAnimationFrame.bind(window);
window.__frames = [];
window.requestAnimationFrame = (call) => asked((now) => {
  const began = performance.now();
  call(now);
  window.__frames.push(performance.now() - began);
});
"""


def states() -> Iterator[tuple[float, str, str]]:
    drawn = random.Random(1)
    for number in range(REQUESTS):
        at = number * 0.9 + drawn.random()
        for _ in range(CYCLES):
            for name in CYCLE:
                yield at, f"request-{number:04}", name
                at += drawn.expovariate(1 / (8 if name in ("paused", "offloaded") else 1))
        yield at, f"request-{number:04}", "ended"


def entries() -> Iterator[Entry]:
    """An hour of it, in the pieces in which an engine sends it."""
    rows = sorted(states())
    known = {**made.SEARCH, "session": None}
    for begin in range(0, len(rows), 200):
        part = rows[begin : begin + 200]
        yield made.lanes([(at, request, name, 8, 2, 150) for at, request, name in part])
        for at, request, name in part:
            if name == "paused":
                one = known | {"request": request, "session": request, "at": made.BEGAN + at}
                yield made.opening(one)
                yield {**made.SEARCH_PAUSE, **one}
    end = rows[-1][0]
    sizes = {key: value for key, value in made.steps().items() if key != "kind"}
    for begin in range(0, STEPS, 64):
        count = min(64, STEPS - begin)
        columns = {key: (column * 2)[:count] for key, column in sizes.items()}
        columns["at"] = [made.BEGAN + (begin + row) * end / STEPS for row in range(count)]
        yield {"kind": "steps", **columns}


@pytest.mark.slow
async def test_100_000_intervals(open_page: Open, serving: Any) -> None:
    endpoint = await serving(held=[(made.recording(title="a long one"), entries())])
    shown = await open_page("about:blank")
    shown.url = endpoint.ui
    await shown.page.add_init_script(EVERY_FRAME)
    began = time.monotonic()
    await shown.page.goto(f"{endpoint.ui}#/timeline?rec=1")
    await shown.says("4 000 requests", within=".tl-toolbar [role=status]")
    await shown.page.wait_for_selector("[role=progressbar]", state="detached")
    loaded = time.monotonic() - began

    canvas = shown.page.locator(".tl-scroller canvas")
    before = await canvas.screenshot()
    box = await canvas.bounding_box()
    await shown.page.mouse.move(box["x"] + 700, box["y"] + 300)
    await shown.page.evaluate("() => { window.__frames.length = 0 }")
    await shown.page.keyboard.down("Control")
    for _ in range(40):
        await shown.page.mouse.wheel(0, -60)
        await shown.page.wait_for_timeout(16)
    for _ in range(40):
        await shown.page.mouse.wheel(0, 50)
        await shown.page.wait_for_timeout(16)
    await shown.page.keyboard.up("Control")
    frames = sorted(await shown.page.evaluate("() => window.__frames"))
    assert await canvas.screenshot() != before
    p50, p99 = statistics.median(frames), frames[int(len(frames) * 0.99)]
    print(f"loaded in {loaded:.2f} s; {len(frames)} repaints: p50 {p50:.1f} ms, p99 {p99:.1f} ms")

    for view, part in VIEWS.items():
        began = time.monotonic()
        await shown.view(f"#/{view}?rec=1")
        await shown.page.locator(part).first.wait_for()
        print(f"{view}: {time.monotonic() - began:.2f} s")
