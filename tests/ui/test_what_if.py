"""A what-if in the page: chosen, replayed by a process of the server, and shown as a table."""

from pathlib import Path
from typing import Any

from caesura.runtime.recording.entries import Recording
from caesura.runtime.recording.storage import Store
from caesura.runtime.whatif.replays import Replays
from tests.kit.browser import Open
from tests.runtime.whatif.stretches import ABOUT, BEGAN, CALIBRATION, child_of, session

from . import recordings


async def test_each_handling_is_replayed_and_compared_with_the_recorded_one(
    open_page: Open, serving: Any, tmp_path: Path
) -> None:
    def replays(store: Store) -> Replays:
        return Replays(store, lambda: CALIBRATION, start=child_of(tmp_path, recordings.REPLAYED))

    about = {**ABOUT, "handling": "caesura", "ranking": "ssjf", "admission": "vllm"}
    made = Recording(1, "what was", "serve", BEGAN, BEGAN + 60, about=about)
    entries = [*session("a", 0), *session("b", 2), *recordings.entries()]
    endpoint = await serving(held=[(made, entries)], replays=replays)
    shown = await open_page(f"{endpoint.ui}#/compare?rec=1")
    panel = shown.page.locator("[data-testid=what-if]")
    await panel.locator("summary").click()
    await panel.get_by_label("handling").select_option("each of them")
    await panel.get_by_role("button", name="Replay").click()
    await shown.says("2 sessions compared", within="[data-testid=what-if]")
    rows = await shown.page.locator("[data-testid=what-if-replays] tbody tr").all_inner_texts()
    # The recorded handling is not replayed twice, and its ranking is kept in all.
    assert len(rows) == 7 and all("ranking ssjf" in row for row in rows)
    assert rows[0].startswith("replayed as recorded: handling caesura")
    assert len({row.split(",")[0] for row in rows}) == 7
    assert "1.25×, slower" in rows[1]
    await shown.says("Error of the replay", "0.444×", within="[data-testid=what-if-error]")
    assert "better" not in await shown.text("[data-testid=what-if]")
