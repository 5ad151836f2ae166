"""Recordings on the page: their list, and naming, noting, pinning and deleting them."""

from dataclasses import replace

from caesura.runtime.recording import catalog
from tests.kit.browser import Open

from . import recordings

KEY = "a-key-of-16-bytes"
OLD = replace(recordings.recording(), title="an old one", started=recordings.BEGAN - 100)


async def test_a_recording_is_named_noted_pinned_and_deleted(open_page: Open, serving) -> None:
    held = [(OLD, recordings.entries()), (recordings.recording(), recordings.entries())]
    endpoint = await serving(held=held, key=KEY)
    path = endpoint.recorder.store.path
    shown = await open_page(f"{endpoint.ui}#/timeline?rec=1", key=KEY)
    await shown.says("4 requests", within=".tl-toolbar [role=status]")
    await shown.page.focus("[data-testid=manage]")
    await shown.press("Enter")
    row = shown.page.locator("[data-testid=recording]", has_text="an old one")
    await row.get_by_role("button", name="Edit").click()
    await shown.page.fill("[data-testid=recording-title]", "before the <b>fix</b>")
    await shown.page.fill("[data-testid=recording-note]", "the link was slow")
    await shown.page.click("button:text('Save')")
    await shown.says("before the <b>fix</b>", "the link was slow", within="[data-testid=recording]")
    row = shown.page.locator("[data-testid=recording]", has_text="before the")
    await row.get_by_role("button", name="Pin").click()
    await shown.says("★ before the", within="[data-testid=recording]")
    found = catalog.recording(path, 1)
    assert found is not None and found.pinned
    assert (found.title, found.note) == ("before the <b>fix</b>", "the link was slow")
    assert "before the" in await shown.page.title()

    await row.get_by_role("button", name="Delete").click()
    await row.get_by_role("button", name="Delete for good").click()
    await row.wait_for(state="detached")
    assert catalog.recording(path, 1) is None
    live = shown.page.locator("[data-testid=recording]", has_text="the live run")
    assert await live.get_by_role("button", name="Delete").count() == 0
    await shown.press("Escape")
    # What was shown is gone, so the page shows what is usual.
    await shown.page.wait_for_function("() => document.title.includes('the live run')")


async def test_the_list_tells_when_how_long_and_how_many(open_page: Open, serving) -> None:
    ended = {"kind": "session", "request": recordings.A, "session": recordings.A, "at": 1.0}
    entries = [*recordings.entries(), ended]
    endpoint = await serving(held=[(recordings.recording(), entries)])
    sessions = sum(entry["kind"] == "session" for entry in entries)
    shown = await open_page(endpoint.ui)
    option = shown.page.locator("select.picker option", has_text="made by hand")
    assert f"10.0 s, {sessions} session" in await option.inner_text()


async def test_an_exported_page_lists_and_changes_nothing(open_page: Open, exported) -> None:
    held = [(recordings.recording(), recordings.entries()), (OLD, recordings.entries())]
    shown = await open_page(exported(*held), viewport={"width": 390, "height": 800})
    await shown.page.click("[data-testid=manage]")
    await shown.says("an old one", "made by hand", within="[data-testid=recording]")
    assert await shown.page.locator("dialog [aria-pressed]").count() == 0
