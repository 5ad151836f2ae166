"""`caesura serve` is killed in the middle of an answer, and the next one ends the same answer."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from caesura.runtime.cli.kill_engine import SERVE, Server

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)]

START_SECONDS = 300.0
QUESTION = {
    "model": "caesura-tiny",
    "input": "Write a sentence about 15 boxes of 24 pencils.",
    "server_tools": ["calculator"],
    "temperature": 0,
    "stream": True,
}


@asynccontextmanager
async def serving(state: Path) -> AsyncIterator[Server]:
    """Start a server whose files are in a directory, and kill what is left of it at the end."""
    environment = os.environ | {"XDG_STATE_HOME": str(state), "XDG_CACHE_HOME": str(state)}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *SERVE,
        cwd=state,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_SECONDS):
            url = (await process.stdout.readline()).decode().strip()
        assert url.startswith("http"), "the server did not start"
        yield Server(url, process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def events(response: aiohttp.ClientResponse, most: int | None = None) -> list[dict[str, Any]]:
    """Read events of a stream, until it ends or `most` were read."""
    found: list[dict[str, Any]] = []
    async for line in response.content:
        if line.startswith(b"data: {"):
            found.append(json.loads(line[6:]))
            if len(found) == most:
                break
    return found


def text_of(found: list[dict[str, Any]]) -> str:
    return "".join(each["delta"] for each in found if each["type"].endswith("text.delta"))


async def test_an_answer_goes_on_where_its_client_stood(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, aiohttp.ClientSession() as http:
        async with http.post(f"{server.url}/responses", json=QUESTION) as response:
            whole = await events(response)
        assert whole[-1]["type"] == "response.completed" and len(text_of(whole)) > 30
        background = QUESTION | {"background": True}
        async with http.post(f"{server.url}/responses", json=background) as response:
            seen = await events(response, most=len(whole) // 2)
            os.kill(server.process.pid, signal.SIGKILL)
        await server.process.wait()
    assert text_of(seen) and text_of(seen) != text_of(whole)
    response_id = seen[0]["response"]["id"]
    async with serving(tmp_path) as server, aiohttp.ClientSession() as http:
        last = seen[-1]["sequence_number"]
        query = f"?stream=true&starting_after={last}"
        async with http.get(f"{server.url}/responses/{response_id}{query}") as response:
            assert response.status == 200, await response.text()
            rest = await events(response)
    numbers = [each["sequence_number"] for each in (*seen, *rest)]
    assert numbers == list(range(len(numbers)))
    assert text_of(seen) + text_of(rest) == text_of(whole)
    ended = rest[-1]["response"]
    assert (ended["id"], ended["status"]) == (response_id, "completed")
    assert (
        ended["caesura"]["calls"][0]["content"]
        == whole[-1]["response"]["caesura"]["calls"][0]["content"]
    )
