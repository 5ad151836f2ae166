"""An exported recording, opened from the disk: it holds everything and asks nobody."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from caesura.runtime.recording.files import write_html
from tests.kit.browser import Open, Shown

from . import recordings

VIEWS = ("overview", "timeline", "decision", "memory", "session", "tools", "compare")


def asked(shown: Shown) -> list[str]:
    """Requests for anything but the file itself."""
    own = shown.url.partition("#")[0]
    return [url for url in shown.seen.requests if url.partition("#")[0] != own]


async def test_every_view_opens_and_nothing_is_asked_for(
    open_page: Open, exported: Callable[..., str]
) -> None:
    held = [(recordings.recording(n, f"run {n}"), recordings.entries()) for n in (1, 2)]
    shown = await open_page(exported(*held))
    for view in VIEWS:
        await shown.view(f"#/{view}?with=2")
        await shown.page.wait_for_selector(f"nav a[aria-current=page][href*='{view}']")
        await shown.page.wait_for_selector("main > *")
    assert asked(shown) == []


async def test_the_page_may_not_ask_even_if_it_wanted_to(
    open_page: Open, exported: Callable[..., str]
) -> None:
    shown = await open_page(exported((recordings.recording(), recordings.entries())))
    refused = await shown.page.evaluate(
        "() => fetch('http://127.0.0.1:9/').then(() => 'sent', (error) => error.name)"
    )
    assert refused == "TypeError"
    added = "() => { const s = document.createElement('script'); s.text = 'window.__ran = 1';"
    await shown.page.evaluate(f"{added} document.head.append(s) }}")
    assert await shown.page.evaluate("() => typeof window.__ran") == "undefined"
    complaints = " ".join(shown.seen.complaints)
    assert "connect" in complaints and "script" in complaints
    shown.seen.complaints.clear()
    shown.seen.requests = [url for url in shown.seen.requests if not url.startswith("http:")]


async def test_what_a_server_shows_is_exported_whole(
    open_page: Open, serving: Callable[..., Any], tmp_path: Path
) -> None:
    """The page's own buttons: one HTML file that shows the same, and JSON for Perfetto."""
    key = "a-key-of-16-bytes"
    held = [(recordings.recording(), recordings.entries({"search": "the result"}))]
    endpoint = await serving(held=held, key=key)
    shown = await open_page(f"{endpoint.ui}#/decision?rec=1", key=key)
    await shown.says("3 pauses, 1 open", within="main")
    told = await shown.text("main")
    files = []
    for button in ("One HTML file", "JSON for Perfetto"):
        await shown.page.click("header >> text=Export")
        async with shown.page.expect_download() as coming:
            await shown.page.click(f"header >> text={button}")
        download = await coming.value
        files.append(tmp_path / download.suggested_filename)
        await download.save_as(files[-1])

    page, trace = files
    assert page.suffix == ".html" and trace.name.endswith(".perfetto.json")
    again = await open_page(f"{page.as_uri()}#/decision")
    await again.says("3 pauses, 1 open", within="main")
    assert await again.text("main") == told
    assert asked(again) == []
    assert key not in page.read_text()
    events = json.loads(trace.read_text())["traceEvents"]
    states = [one for one in events if one["ph"] == "X" and one["cat"] == "state"]
    assert len(states) == sum(state != "ended" for _, _, state, *_ in recordings.STATES)


@pytest.mark.parametrize("broken", ["cut", "empty"])
async def test_a_file_that_is_incomplete_says_so(
    open_page: Open, tmp_path: Path, broken: str
) -> None:
    path = tmp_path / "export.html"
    write_html([(recordings.recording(), recordings.entries())], path)
    text = path.read_text()
    begin = text.index('id="caesura-data">') + len('id="caesura-data">')
    end = text.index("</script>", begin)
    data = text[begin : begin + (end - begin) // 2] if broken == "cut" else "AAAA"
    path.write_text(text[:begin] + data + text[end:])
    shown = await open_page(path.as_uri())
    await shown.says("the file is incomplete", within="[role=alert]")
