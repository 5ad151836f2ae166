"""The page while a server works."""

import asyncio
from typing import Any

import pytest

from caesura.runtime.testing import call
from caesura.tools.tool import tool
from tests.kit.browser import Open
from tests.ui.recordings import state

from .serving import Endpoint


@pytest.fixture
def double() -> Any:
    @tool
    async def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    return double


async def test_a_run_appears_while_the_page_is_open(open_page: Open, serving, double) -> None:
    endpoint = await serving([call("double", number=21), "It is 42."], [double], content=True)
    shown = await open_page(f"{endpoint.ui}#/session")
    await shown.says("Waiting for the first request")
    await endpoint.ask("What is twice 21?", "double")
    await shown.page.click("[data-testid=session-row] a")
    await shown.says("What is twice 21?", "double", "It is 42.", within="main")


async def test_requests_are_drawn_as_they_come(open_page: Open, serving) -> None:
    endpoint = await serving()
    shown = await open_page(f"{endpoint.ui}#/timeline")
    await shown.says("Waiting for the first request")
    await endpoint.written([state("r1", "waiting", 0)])
    await until_lanes(shown, 1)
    await endpoint.written([state("r1", "decode", 1), state("r2", "waiting", 1)])
    await until_lanes(shown, 2)
    await shown.says("Live", within="header")


async def test_after_a_break_it_goes_on_where_it_was(open_page: Open, serving) -> None:
    endpoint = await serving()
    shown = await open_page(f"{endpoint.ui}#/timeline")
    await endpoint.written([state("r1", "waiting", 0)])
    await until_lanes(shown, 1)
    await endpoint.cable.cut()
    await shown.says("Reconnecting", within="header")
    await endpoint.written([state("r2", "waiting", 1), state("r3", "waiting", 2)])
    await endpoint.cable.mend()
    await until_lanes(shown, 3)
    await shown.says("Live", within="header")
    asked = [url for url in shown.seen.requests if "/events" in url]
    assert asked[0].endswith("after=0") or asked[0].endswith("after=1")
    assert asked[-1].endswith("after=1"), "the page asks for what it has not seen"
    await endpoint.written([state("r4", "waiting", 3)])
    await until_lanes(shown, 4)


async def test_when_the_server_ends_the_page_says_so(open_page: Open, serving) -> None:
    endpoint: Endpoint = await serving()
    shown = await open_page(f"{endpoint.ui}#/timeline")
    await endpoint.written([state("r1", "waiting", 0)])
    await until_lanes(shown, 1)
    await asyncio.to_thread(endpoint.recorder.close)
    await shown.says("Ended", within="header")


async def until_lanes(shown: Any, count: int) -> None:
    """Wait until the timeline says that it shows so many requests."""
    await shown.says(f"{count} request", within=".tl-toolbar [role=status]")
