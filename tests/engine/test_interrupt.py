"""Ctrl-C in the terminal of `caesura serve`: every process of it hears it, or should not."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import aiohttp
import pytest

pytestmark = [pytest.mark.engine, pytest.mark.slow]

QUESTION = {"role": "user", "content": "What is 48 * 17?"}
EXPECTED = re.compile(
    r"listening at |the page is at |\d{4}-\d\d-\d\dT\S+Z (GET|POST) /v1/\S+ 200 |waiting for "
)
"""What the server may say: its address, its requests, and that it waits for them."""
BODY = {"messages": [QUESTION], "server_tools": ["calculator"], "temperature": 0, "stream": True}


@pytest.fixture
def server(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    command = [str(Path(sys.executable).with_name("caesura")), "serve", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--no-calibrate"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
    )
    yield process
    process.kill()
    process.wait()


async def test_requests_in_flight_finish_and_what_was_learned_is_kept(
    server: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    assert server.stdout is not None
    url = await asyncio.to_thread(_url, server.stdout)
    async with aiohttp.ClientSession() as client:
        model = (await (await client.get(f"{url}/models")).json())["data"][0]["id"]
        body = {**BODY, "model": model}
        answers = [await client.post(f"{url}/chat/completions", json=body) for _ in range(12)]
        os.killpg(server.pid, signal.SIGINT)
        texts = await asyncio.gather(*(answer.text() for answer in answers))
    assert all(text.rstrip().endswith("[DONE]") for text in texts)
    assert not any('"error":{' in text for text in texts)
    said, _ = await asyncio.to_thread(server.communicate)
    assert server.returncode == 0, said
    assert [line for line in said.splitlines() if not EXPECTED.match(line)] == []
    pauses = json.loads((tmp_path / "caesura" / "pauses.json").read_text())
    assert "calculator" in pauses["tools"]


def _url(lines: IO[str]) -> str:
    return next(line.strip() for line in lines if line.startswith("http://"))
