"""Links: what is in the address, what it shows later, and what it says of what is gone."""

from dataclasses import replace

from tests.kit.browser import Open, Shown

from . import recordings

OTHER = replace(recordings.recording(), title="another one", started=recordings.BEGAN + 100)


async def query_of(shown: Shown, name: str) -> str:
    """Wait until the address has a value of this name; return it."""
    found = await shown.page.wait_for_function(
        "name => new URLSearchParams(location.hash.split('?')[1] ?? '').get(name)", arg=name
    )
    return str(await found.json_value())


async def test_the_recording_is_always_in_the_address(open_page: Open, serving) -> None:
    held = [(recordings.recording(), recordings.entries())]
    endpoint = await serving(["Good."], held=held)
    await endpoint.ask("Hello")
    shown = await open_page(endpoint.ui)
    assert (await query_of(shown, "rec")).startswith("2-")
    await shown.view("#/timeline?rec=1")
    await shown.says("4 requests", within=".tl-toolbar [role=status]")
    name = await shown.page.wait_for_function("() => location.hash.match(/rec=1-[0-9a-z]+/)?.[0]")
    link = f"{endpoint.ui}#/memory?{await name.json_value()}"

    later = await open_page(link)
    await later.page.wait_for_selector("[data-testid=memory]")
    assert await later.page.title() == "Memory · made by hand · Caesura"


async def test_a_link_to_what_is_recorded_now_stays_one(open_page: Open, serving) -> None:
    endpoint = await serving(["Good."], held=[(OTHER, recordings.entries())])
    await endpoint.ask("Hello")
    shown = await open_page(f"{endpoint.ui}#/timeline?rec=live")
    await shown.page.wait_for_function("() => document.title.includes('the live run')")
    assert await query_of(shown, "rec") == "live"


async def test_a_recording_that_is_gone_is_not_another_one(open_page: Open, serving) -> None:
    held = [(recordings.recording(), recordings.entries()), (OTHER, recordings.entries())]
    endpoint = await serving(held=held)
    shown = await open_page(f"{endpoint.ui}#/timeline?rec=17-abcdef&sel=x")
    await shown.says("This recording is not here", "recording 17", "made by hand", "another one")
    await shown.page.click("[data-testid=gone] a:text('another one')")
    await shown.says("4 requests", within=".tl-toolbar [role=status]")
    assert (await query_of(shown, "rec")).startswith("2-")
    assert "sel=" not in shown.page.url


async def test_a_link_is_copied_by_keyboard_with_the_window_at_hand(
    open_page: Open, serving
) -> None:
    endpoint = await serving(held=[(recordings.recording(), recordings.entries())])
    shown = await open_page(
        f"{endpoint.ui}#/timeline?rec=1", permissions=["clipboard-read", "clipboard-write"]
    )
    await shown.says("4 requests", within=".tl-toolbar [role=status]")
    await shown.page.focus("canvas[role=img]")
    await shown.press("+")
    await shown.page.focus("[data-testid=copy-link]")
    await shown.press("Enter")
    await shown.says("Copied", within="[data-testid=copy-link]")
    copied = await shown.page.evaluate("navigator.clipboard.readText()")
    assert "t0=" in copied and "rec=1-" in copied
    assert copied == shown.page.url


async def test_search_and_order_of_sessions_last(open_page: Open, exported) -> None:
    url = exported((recordings.recording(), recordings.entries()))
    shown = await open_page(f"{url}#/session")
    await shown.page.fill("[data-testid=session-search]", "search")
    await shown.page.click("thead button:text('regret')")
    assert await query_of(shown, "se.sort") == "regret.down"
    await shown.page.reload()
    await shown.page.wait_for_selector("[data-testid=session-row]")
    assert await shown.page.input_value("[data-testid=session-search]") == "search"
    assert await shown.page.get_attribute("th:has-text('regret')", "aria-sort") == "descending"


async def test_what_another_server_records_appears_by_itself(open_page: Open, serving) -> None:
    endpoint = await serving(held=[(recordings.recording(), recordings.entries())])
    shown = await open_page(f"{endpoint.ui}#/timeline?rec=1")
    await shown.says("4 requests", within=".tl-toolbar [role=status]")
    endpoint.recorder.store.begin("of another server", "serve", {})
    await shown.page.wait_for_selector(
        "select.picker option:text('of another server')", state="attached"
    )
