"""Servers that are killed between a call and its result, with a side effect in a file."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.kit.server import MODEL
from tests.kit.waiting import until
from tests.runtime.journal.dying import read_events

CHILD = Path(__file__).with_name("killed_server.py")


class Child:
    """A server in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, http: aiohttp.ClientSession) -> None:
        self.process, self.http = process, http

    async def json(self, method: str, path: str, **body: Any) -> dict[str, Any]:
        sent = {"json": body} if method == "POST" else {}
        async with self.http.request(method, path, **sent) as response:
            told: dict[str, Any] = await response.json()
            assert response.status == 200, told
            return told

    async def dies(self) -> None:
        async with asyncio.timeout(30):
            assert await self.process.wait() == -signal.SIGKILL


@asynccontextmanager
async def started(directory: Path, when: str, tool: str) -> AsyncIterator[Child]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(CHILD), str(directory), when, tool),
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": f"{CHILD.parents[3]}:{os.environ.get('PYTHONPATH', '')}"},
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            port = int(await process.stdout.readline())
        async with aiohttp.ClientSession(base_url=f"http://127.0.0.1:{port}") as http:
            yield Child(process, http)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def killed(directory: Path, when: str, tool: str) -> str:
    """Start a response whose server dies in the middle of its call; return the response's id."""
    async with started(directory, when, tool) as server:
        body = {"model": MODEL, "input": "Pay.", "server_tools": [tool], "background": True}
        response = await server.json("POST", "/v1/responses", **body)
        (directory / "go").touch()
        await server.dies()
    return str(response["id"])


def lines(directory: Path, name: str) -> int:
    file = directory / name
    return len(file.read_text().splitlines()) if file.exists() else 0


async def ended(server: Child, response_id: str) -> dict[str, Any]:
    path = f"/v1/responses/{response_id}?stream=true"
    async with asyncio.timeout(30), server.http.get(path) as response:
        events = read_events(await response.text())
    assert [each["sequence_number"] for each in events] == list(range(len(events)))
    told: dict[str, Any] = events[-1]["response"]
    return told


async def asked(server: Child) -> dict[str, Any]:
    async def pending() -> Any:
        return (await server.json("GET", "/v1/pending"))["data"]

    item: dict[str, Any] = (await until(pending))[0]
    return item


@pytest.mark.parametrize(("when", "before"), [("before", 0), ("after", 1)])
@pytest.mark.parametrize("again", [False, True])
async def test_a_call_of_a_killed_server_is_made_again_only_if_a_person_says_so(
    tmp_path: Path, when: str, before: int, again: bool
) -> None:
    response = await killed(tmp_path, when, "pay")
    assert lines(tmp_path, "paid") == before
    async with started(tmp_path, "never", "pay") as server:
        item = await asked(server)
        assert item["tool"] == "pay" and "nobody knows" in item["question"]
        assert lines(tmp_path, "paid") == before, "nothing ran without the person"
        await server.json("POST", f"/v1/pending/{item['id']}", approve=again)
        whole = await ended(server, response)
    assert whole["id"] == response and whole["status"] == "completed"
    assert lines(tmp_path, "paid") == before + again
    (call,) = whole["caesura"]["calls"]
    assert ("unknown whether it took effect" in call["content"]) == (not again)


async def test_a_server_that_dies_again_while_it_asks_asks_the_same_question(
    tmp_path: Path,
) -> None:
    response = await killed(tmp_path, "after", "pay")
    seen = []
    for _ in range(2):
        async with started(tmp_path, "never", "pay") as server:
            seen.append(await asked(server))
    assert seen[0]["id"] == seen[1]["id"]
    async with started(tmp_path, "never", "pay") as server:
        await server.json("POST", f"/v1/pending/{(await asked(server))['id']}", approve=False)
        await ended(server, response)
    assert lines(tmp_path, "paid") == 1


async def test_a_tool_that_is_safe_to_repeat_runs_again_by_itself(tmp_path: Path) -> None:
    response = await killed(tmp_path, "after", "look")
    async with started(tmp_path, "never", "look") as server:
        whole = await ended(server, response)
        assert (await server.json("GET", "/v1/pending"))["data"] == []
    assert whole["status"] == "completed"
    assert lines(tmp_path, "looked") == 2
