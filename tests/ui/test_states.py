"""What the page says when there is nothing to show, and how it asks for the key."""

import asyncio
import json

from tests.kit.browser import Open

from . import recordings

KEY = "a-key-of-16-bytes"
OLD = "1-s44we8"
"""The name of the recording that the store holds, in addresses: its number and its time."""


async def test_without_a_key_it_opens_at_once(open_page: Open, serving) -> None:
    endpoint = await serving(held=[(recordings.recording(), recordings.entries())])
    shown = await open_page(f"{endpoint.url}/ui")  # is sent on to /ui/
    await shown.says("made by hand", "the live run")
    assert not await shown.page.is_visible("dialog[open]")


async def test_it_asks_for_the_key_and_keeps_it_for_the_tab(open_page: Open, serving) -> None:
    held = [(recordings.recording(), recordings.entries())]
    endpoint = await serving(held=held, key=KEY)
    shown = await open_page(f"{endpoint.ui}#/memory")
    await shown.says("The server wants the key", within="dialog")
    assert "made by hand" not in await shown.page.content()

    await shown.page.fill("dialog input", "a wrong one")
    await shown.press("Enter")
    await shown.says("does not accept the key", within="dialog")

    await shown.page.fill("dialog input", KEY)
    await shown.press("Enter")
    await shown.page.wait_for_selector("dialog[open]", state="hidden")
    await shown.page.select_option("select.picker", value=OLD)
    await shown.page.wait_for_selector("[data-testid=memory]")
    await shown.page.reload()
    await shown.page.wait_for_selector("[data-testid=memory]")
    assert KEY not in shown.page.url and not any(KEY in url for url in shown.seen.requests)
    assert await shown.page.evaluate("localStorage.length") == 0


async def test_before_the_first_request_it_says_how_to_send_one(open_page: Open, serving) -> None:
    endpoint = await serving(["Good."])
    shown = await open_page(endpoint.ui)
    await shown.says("Waiting for the first request", f"curl {endpoint.url}/v1/chat/completions")


async def test_the_request_that_it_proposes_is_understood(open_page: Open, serving) -> None:
    endpoint = await serving(["Good."])
    shown = await open_page(endpoint.ui)
    await shown.says("Waiting for the first request")
    command = await shown.text("main pre")
    body = json.loads(command.split("-d '")[1].rsplit("'", 1)[0])
    assert body["messages"][0]["role"] == "user"


async def test_a_server_that_is_gone(open_page: Open, serving) -> None:
    endpoint = await serving()
    shown = await open_page(endpoint.ui)
    await shown.says("Waiting for the first request")
    await endpoint.cable.cut()
    await shown.page.evaluate("location.hash = '#/tools'")
    await shown.says("connection broke", within=".notes")


async def test_an_answer_that_fails_is_told_and_tried_again(open_page: Open, serving) -> None:
    endpoint = await serving(held=[(recordings.recording(), recordings.entries())])
    shown = await open_page("about:blank")
    failing = True

    async def answer(route) -> None:
        if failing:
            await route.fulfill(status=503, json={"error": {"message": "The file is locked."}})
        else:
            await route.continue_()

    await shown.page.route("**/v1/trace", answer)
    shown.url = endpoint.ui
    await shown.page.goto(endpoint.ui)
    await shown.says("This cannot be shown", "The file is locked.", within="[role=alert]")
    failing = False
    await shown.page.click("text=Try again")
    await shown.says("made by hand")


async def test_while_it_loads_it_says_how_far_it_is(open_page: Open, serving) -> None:
    """Pages of history are held up one by one."""
    held = [(recordings.recording(), [*recordings.entries(), *[recordings.WAIT] * 6000])]
    endpoint = await serving(held=held)
    shown = await open_page("about:blank")
    shown.url = endpoint.ui
    go_on = asyncio.Event()

    async def hold(route) -> None:
        if "after=0" not in route.request.url:
            await go_on.wait()
        await route.continue_()

    await shown.page.route("**/v1/trace/1?*", hold)
    await shown.page.goto(f"{endpoint.ui}#/timeline?rec=1")
    bar = shown.page.locator("[role=progressbar]")
    await shown.page.wait_for_function(
        "() => { const now = Number(document.querySelector('[role=progressbar]')?.ariaValueNow);"
        " return now > 50 && now < 100 }"
    )
    assert await shown.page.locator(".tl-toolbar").count() == 0, "figures of a part look final"
    go_on.set()
    await bar.wait_for(state="detached")
    await shown.says("4 requests", within=".tl-toolbar [role=status]")


async def test_a_recording_of_which_entries_were_lost_says_so(open_page: Open, exported) -> None:
    lost = {"kind": "gap", "at": recordings.BEGAN + 5, "lost": 123, "why": "the disk was full"}
    url = exported((recordings.recording(), [*recordings.entries(), lost]))
    shown = await open_page(url)
    await shown.says("123 entries of this recording were lost (the disk was full)")


async def test_an_export_without_entries_is_no_blank_page(open_page: Open, exported) -> None:
    shown = await open_page(exported((recordings.recording(), [])))
    await shown.says("This recording has no entries")


async def test_entries_from_the_future_do_no_harm(open_page: Open, exported) -> None:
    strange = [
        {"kind": "holograms", "at": "tomorrow"},
        {"kind": "lanes"},
        {"kind": "steps", "at": [recordings.BEGAN], "flux": [1]},
        {"kind": "opening", "request": "x"},
        {"kind": "pause", "request": "x", "at": None},
        {"kind": "span"},
    ]
    url = exported((recordings.recording(), [*strange, *recordings.entries()]))
    shown = await open_page(f"{url}#/memory")
    await shown.page.wait_for_selector("[data-testid=memory]")
    for view in ("overview", "timeline", "decision", "session", "tools", "compare"):
        await shown.view(f"#/{view}")
        await shown.page.wait_for_selector("main > *")
