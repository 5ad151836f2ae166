"""Files of the reader's own: chosen or dropped, shown, and never sent."""

import json
from pathlib import Path

from tests.kit.browser import Open

from . import recordings

DROP = """([name, text]) => {
  const data = new DataTransfer()
  data.items.add(new File([text], name))
  for (const kind of ["dragover", "drop"])
    document.body.dispatchEvent(new DragEvent(kind, {dataTransfer: data, bubbles: true}))
}"""


async def test_a_file_is_opened_by_the_button_and_left_again(
    open_page: Open, serving, exported, tmp_path: Path
) -> None:
    exported((recordings.recording(title="of my disk"), recordings.entries()))
    endpoint = await serving(["Good."])
    await endpoint.ask("Hello")
    shown = await open_page(f"{endpoint.ui}#/timeline")
    await shown.page.wait_for_function("() => document.title.includes('the live run')")
    before = len(shown.seen.requests)
    await shown.page.click("[data-testid=manage]")
    await shown.page.set_input_files("dialog [data-testid=file]", tmp_path / "export.html")
    await shown.page.wait_for_function("() => document.title.includes('of my disk')")
    await shown.press("Escape")
    await shown.says("4 requests", within=".tl-toolbar [role=status]")
    await shown.says("export.html of your disk", within="[data-testid=file-note]")
    sent = shown.seen.requests[before:]
    assert all("/v1/trace" in url for url in sent) and "export" not in " ".join(sent)
    await shown.page.click("button:text('Back to the server')")
    await shown.page.wait_for_function("() => document.title.includes('the live run')")
    assert not await shown.page.is_visible("[data-testid=file-note]")


async def test_a_file_is_dropped_onto_the_page(open_page: Open, exported) -> None:
    shown = await open_page(f"{exported((recordings.recording(), recordings.entries()))}#/timeline")
    text = "".join(f"{json.dumps(entry)}\n" for entry in recordings.entries())
    await shown.page.evaluate(DROP, ["dropped.jsonl", text])
    await shown.page.wait_for_function("() => document.title.includes('dropped.jsonl')")
    await shown.says("4 requests", within=".tl-toolbar [role=status]")


async def test_a_wrong_file_is_told_and_what_is_shown_stays(open_page: Open, exported) -> None:
    shown = await open_page(f"{exported((recordings.recording(), recordings.entries()))}#/timeline")
    await shown.says("4 requests", within=".tl-toolbar [role=status]")
    await shown.page.evaluate(DROP, ["<b>notes</b>.txt", "Dear diary"])
    await shown.says("<b>notes</b>.txt holds no recording of Caesura", within=".notes")
    await shown.says("4 requests", within=".tl-toolbar [role=status]")
