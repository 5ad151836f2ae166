"""What models, tools and clients wrote is text to the page, whatever it looks like."""

import json
import struct
import wave
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from caesura.runtime.testing import call
from caesura.tools.artifacts import ArtifactStore
from caesura.tools.tool import tool
from tests.kit.browser import Open, Shown

from . import recordings

MARKUP = (
    "<img src=x onerror=\"window.__pwned='img'\">"
    "<script>window.__pwned = 'script'</script>"
    "<svg onload=\"window.__pwned='svg'\"></svg>"
    "<iframe srcdoc=\"<script>parent.__pwned='frame'</script>\"></iframe>"
    "<a href=\"javascript:window.__pwned='link'\">click</a>"
    "<style>body { display: none }</style>\"'>--></script>{{7*7}}${7*7}"
    " javascript:alert(1) http://evil.example/collect?x=1 "
)
OVERRIDE = "abc\u202egnp.exe"
HUGE = "word " * 200_000


async def harmless(shown: Shown) -> None:
    """Nothing ran, nothing of it became an element, nobody was asked."""
    assert await shown.page.evaluate("typeof window.__pwned") == "undefined"
    assert await shown.page.locator("iframe, object, embed, img[src=x], [onerror]").count() == 0
    assert (
        await shown.page.locator("a:not([href^='#/']):not([href^='blob:'][download])").count() == 0
    )
    assert not [url for url in shown.seen.requests if "evil" in url]


@pytest.fixture(scope="module")
def said() -> dict[str, str]:
    return {"search": f"{MARKUP}{OVERRIDE}", "ask_user": MARKUP}


async def test_a_tools_result_is_shown_as_text(open_page: Open, exported: Any, said: Any) -> None:
    url = exported((recordings.recording(content=True), recordings.entries(said)))
    shown = await open_page(f"{url}#/session/conversation-a")
    await shown.says("<img src=x onerror=", within="[data-testid=result]")
    text = await shown.text("[data-testid=result]")
    assert "<script>window.__pwned" in text and "</iframe>" in text
    assert "\u202e" not in text and "U+202E" in text, "the order of the letters is as it was"
    await harmless(shown)


async def test_names_are_text_in_every_view(open_page: Open, exported: Any) -> None:
    """Tools' names are the model's, request ids may be a client's, titles anybody's."""
    text = json.dumps(recordings.entries())
    for name in ("search", recordings.A, "conversation-a", "helper"):
        text = text.replace(f'"{name}"', json.dumps(MARKUP + name))
    url = exported((recordings.recording(title=MARKUP, about={"model": MARKUP}), json.loads(text)))
    shown = await open_page(f"{url}#/timeline?sel={'%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E'}")
    for view in ("timeline", "decision", "memory", "session", "tools", "compare"):
        await shown.view(f"#/{view}")
        await shown.page.wait_for_selector("main > *")
        await harmless(shown)
    await shown.view("#/decision")
    await shown.page.click(".dc-all tbody tr:has-text('pwned') a")
    await shown.says("__pwned", within="main h2")
    await harmless(shown)
    await shown.view("#/session")
    await shown.page.click("[data-testid=session-row]:has-text('img') a")
    await shown.page.wait_for_selector("[data-testid=session-detail]")
    await harmless(shown)


async def test_a_hash_is_text_too(open_page: Open, exported: Any) -> None:
    url = exported((recordings.recording(), recordings.entries()))
    shown = await open_page(f"{url}#/decision/%3Cimg%20src=x%20onerror=%22__pwned=1%22%3E/1")
    await shown.says("No such pause", "<img src=x", within="main")
    await harmless(shown)
    await shown.view("#/session/%3Cscript%3E__pwned=1%3C%2Fscript%3E")
    await shown.says("called <script>", within="main")
    await shown.view("#/__proto__?rec=constructor&t0=NaN&t1=1e999&tool=__proto__")
    await shown.page.wait_for_selector("main > *")
    await harmless(shown)


async def test_the_end_of_a_script_does_not_end_the_export(open_page: Open, exported: Any) -> None:
    closing = "</script><script>window.__pwned = 1</script><!--"
    url = exported((recordings.recording(title=closing), recordings.entries({"search": closing})))
    shown = await open_page(f"{url}#/session/conversation-a")
    await shown.says(closing, within="[data-testid=result]")
    await harmless(shown)


async def test_a_huge_result_does_not_stop_the_page(open_page: Open, exported: Any) -> None:
    url = exported((recordings.recording(), recordings.entries({"search": HUGE})))
    shown = await open_page(f"{url}#/session/conversation-a")
    await shown.says("word word", within="[data-testid=result]")
    await shown.view("#/tools")
    await shown.page.wait_for_selector("[data-testid=tools]")


async def test_live_and_through_the_server(open_page: Open, serving: Any) -> None:
    @tool
    async def fetch(url: str) -> str:
        """Fetch a page."""
        return MARKUP

    script = [call("fetch", url=f"http://x/{MARKUP}"), f"It says {MARKUP}"]
    endpoint = await serving(script, [fetch], content=True)
    shown = await open_page(f"{endpoint.ui}#/session")
    await endpoint.ask(MARKUP, "fetch")
    await shown.page.click("[data-testid=session-row] a")
    await shown.says("<img src=x onerror=", within="[data-testid=result]")
    await shown.says("It says <img", within="[data-testid=message]")
    await harmless(shown)


def png(width: int, height: int) -> bytes:
    """A red picture."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = (b"\0" + b"\xff\0\0" * width) * height
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def silence() -> bytes:
    """A second of it."""
    data = BytesIO()
    with wave.open(data, "wb") as sound:
        sound.setparams((1, 2, 8000, 0, "NONE", ""))
        sound.writeframes(bytes(16000))
    return data.getvalue()


HOSTILE_SVG = (
    b'<svg xmlns="http://www.w3.org/2000/svg" width="30" height="20"'
    b' onload="window.__pwned=1;parent.__pwned=1"><script>window.__pwned=1</script>'
    b'<image href="http://evil.example/p.png"/><rect width="30" height="20"/></svg>'
)


@pytest.mark.parametrize("way", ["export", "server"])
async def test_files_of_tools_are_pictures_at_most(
    open_page: Open, exported: Any, serving: Any, tmp_path: Path, way: str
) -> None:
    """A picture is shown; a script in an SVG does not run; markup in a text file is not shown."""
    store = ArtifactStore(tmp_path / "files")
    red = store.put(png(40, 30), "png").name
    svg = store.put(HOSTILE_SVG, "svg").name
    page = store.put(b"<script>parent.__pwned=1</script>", "txt").name
    wav = store.put(silence(), "wav").name
    said = {"search": f"Saved as /artifacts/{red}, /artifacts/{svg} and /artifacts/{page}."}
    entries = recordings.entries(said)
    for entry in entries:
        if "gen_ai.tool.call.result" in entry.get("attributes", {}):
            entry["attributes"]["caesura.tool.artifacts"] = [red, svg, page, wav]
    held = (recordings.recording(content=True), entries)
    if way == "export":
        shown = await open_page(f"{exported(held, artifacts=[store])}#/session/conversation-a")
    else:
        endpoint = await serving(held=[held], key="a-key-of-16-bytes", artifacts=store)
        shown = await open_page(
            f"{endpoint.ui}#/session/conversation-a?rec=1", key="a-key-of-16-bytes"
        )
    await shown.page.wait_for_function(
        "() => [...document.images].some(one => one.naturalWidth === 40)"
    )
    await shown.says(page, within="[data-testid=session-detail]")
    sources = await shown.page.eval_on_selector_all("img, audio", "all => all.map(one => one.src)")
    assert len(sources) == 3
    assert all(source.startswith("blob:") for source in sources)
    await harmless(shown)
