"""Runs that wait are left to the next process, which goes on with them."""

import asyncio
from typing import Any

import pytest

from caesura.runtime.errors import EngineFailed
from caesura.runtime.testing import call, say
from caesura.tools.tool import Tool, tool
from tests.kit.waiting import until
from tests.runtime.journal.dying import Spy

MCP: Any = {"type": "mcp", "server_label": "caesura", "allowed_tools": ["wait"]}
SCRIPT = [call("wait"), say("It came.")]


def waiting(started: asyncio.Event, released: asyncio.Event) -> Tool:
    @tool(safe_to_repeat=True, expected_seconds=600.0, timeout_seconds=None)
    async def wait() -> str:
        """Wait for a parcel."""
        started.set()
        await released.wait()
        return "a parcel"

    return wait


@pytest.mark.parametrize("way", ["the engine is lost", "the server drains"])
async def test_a_run_that_waits_goes_on_in_the_next_process(serve: Any, way: str) -> None:
    started, never, journal = asyncio.Event(), asyncio.Event(), Spy()
    server = await serve(SCRIPT, [waiting(started, never)], journal)
    made = await server.post(input="Wait.", tools=[MCP], background=True, store=True)
    await started.wait()
    await until(lambda: journal.count == 1)  # it writes in batches
    if way == "the engine is lost":
        await server.app.lose_engine(EngineFailed("it was killed"))
    else:
        await server.app.leave()
        await server.app.break_off_long(30.0)
    await until(lambda: server.app.completions == 0)
    assert journal.count == 1

    started, released = asyncio.Event(), asyncio.Event()
    released.set()
    after = await serve(SCRIPT, [waiting(started, released)], Spy(journal.all))
    events = await after.events(made["id"])
    assert events[-1]["type"] == "response.completed"
    assert "It came." in str(events[-1])


async def test_a_run_that_goes_on_stays_its_keys(serve: Any) -> None:
    started, never, journal = asyncio.Event(), asyncio.Event(), Spy()
    keys = {"api_key": ["ann-secret", "bob-secret"]}
    server = await serve(SCRIPT, [waiting(started, never)], journal, **keys)
    server.http.headers["Authorization"] = "Bearer ann-secret"
    made = await server.post(input="Wait.", tools=[MCP], background=True, store=True)
    await started.wait()
    await until(lambda: journal.count == 1)

    started, released = asyncio.Event(), asyncio.Event()
    after = await serve(SCRIPT, [waiting(started, released)], Spy(journal.all), **keys)
    await started.wait()
    path = f"/v1/responses/{made['id']}"
    statuses = []
    for ended in (False, True):
        if ended:
            released.set()
            after.http.headers["Authorization"] = "Bearer ann-secret"
            events = await after.events(made["id"])
            assert events[-1]["type"] == "response.completed"
        for key in ("bob", "ann"):
            headers = {"Authorization": f"Bearer {key}-secret"}
            async with after.http.get(path, headers=headers) as response:
                statuses.append(response.status)
    assert statuses == [404, 200, 404, 200]
