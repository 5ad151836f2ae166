"""An engine that dies while its page is open, and comes back."""

import time
from typing import Any

from tests.kit.browser import Open


def lanes(*rows: tuple[str, str, float]) -> dict[str, Any]:
    names, states, at = ([row[place] for row in rows] for place in range(3))
    blocks, none = [4] * len(rows), [0] * len(rows)
    columns = {"blocks": blocks, "host": none, "tokens": [50] * len(rows)}
    return {"kind": "lanes", "request": names, "state": states, "at": at, **columns}


async def test_the_page_says_that_the_engine_is_down_and_what_became_of_its_requests(
    open_page: Open, serving: Any
) -> None:
    endpoint = await serving()
    began = time.time() - 60
    died = {"kind": "restart", "at": began + 9, "why": "it was <b>killed</b>"}
    before = [("session-a-1", "waiting", began), ("session-a-1", "decode", began + 1)]
    await endpoint.written(
        [lanes(*before, ("gone", "decode", began + 2)), died | {"state": "down"}]
    )
    shown = await open_page(f"{endpoint.ui}#/overview")
    await shown.says("Engine down since", within="header")
    await shown.says("(it was <b>killed</b>), and it has been down for", "2 ended with it")

    goes_on = {"kind": "continued", "request": "session-b", "lost": "session-a", "at": began + 40}
    after = [("session-b-2", "waiting", began + 40), ("session-b-2", "decode", began + 41)]
    back = died | {"state": "restarted", "seconds": 30.0, "attempts": 1}
    await endpoint.written([back, goes_on, lanes(*after, ("session-b-2", "ended", began + 43))])
    await shown.says(
        "it took work again after 30.0 s", "1 went on in the next one, 1 ended with it"
    )
    await shown.says("2 requests ended in this recording", "The engine died")
    await shown.page.wait_for_selector("[data-testid=engine-down]", state="detached")
    assert "went on" not in await shown.text("[data-testid=ov-count]")

    await shown.view("#/timeline?sel=session-a-1")
    await shown.says("its engine died, and it took 31.0 s until it went on", within=".dc-panel")
    await shown.says("the engine had died", within=".dc-panel")
