"""`caesura serve` as a process of its own, whose engine dies or hangs, and which is killed."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from caesura.runtime.cli.kill_engine import (
    QUESTIONS,
    SERVE,
    Server,
    ask_all,
    ask_and_kill,
    children,
    same,
    serving,
)
from tests.kit.waiting import until

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)]

DEADLINE_SECONDS = 300.0
HANDSHAKE_SECONDS = 300.0
"""How long vLLM's engine process waits for an answer of the process that started it."""


@pytest.fixture(scope="module")
async def server() -> AsyncIterator[Server]:
    async with serving("--engine-timeout", "15") as server:
        yield server


def lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


class Probes:
    """What the server's routes say."""

    def __init__(self, server: Server, http: aiohttp.ClientSession) -> None:
        self._root = server.url.removesuffix("/v1")
        self._http = http

    async def status(self, path: str) -> int:
        async with self._http.get(f"{self._root}{path}") as response:
            return response.status

    async def ready(self) -> bool:
        return await self.status("/ready") == 200

    async def unready(self) -> bool:
        return not await self.ready()

    async def metrics(self) -> str:
        async with self._http.get(f"{self._root}/metrics") as response:
            return await response.text()

    async def complete(self) -> tuple[int, Any, str | None]:
        """Ask vLLM's own application."""
        body = {"model": "caesura-tiny", "prompt": "Hello", "max_tokens": 4, "temperature": 0}
        url = f"{self._root}/v1/completions"
        async with self._http.post(url, json=body) as response:
            return response.status, await response.json(), response.headers.get("Retry-After")


@pytest.fixture
async def probes(server: Server) -> AsyncIterator[Probes]:
    async with aiohttp.ClientSession() as http:
        probes = Probes(server, http)
        await until(probes.ready)
        yield probes


async def test_vllms_application_is_built_anew(server: Server, probes: Probes) -> None:
    before = await probes.complete()
    assert before[0] == 200
    (engine,) = server.engines()
    os.kill(engine, signal.SIGKILL)
    await until(probes.unready)
    assert await probes.status("/health") == 200
    status, body, retry = await probes.complete()
    assert (status, body["error"]["code"]) == (503, "engine_restarting")
    assert int(retry or 0) >= 1
    await until(probes.ready)
    after = await probes.complete()
    assert after[1]["choices"] == before[1]["choices"]
    reason = "the process EngineCore was ended by SIGKILL"
    assert f'caesura_engine_last_death{{reason="{reason}"}}' in await probes.metrics()


async def test_twelve_answers_survive_the_death_of_the_engine(
    server: Server, probes: Probes
) -> None:
    undisturbed = await ask_all(server.url)
    assert [each.error for each in undisturbed] == [""] * len(QUESTIONS)
    assert sum(each.tools for each in undisturbed) >= 8
    pieces = sum(len(each.times) for each in undisturbed)
    streams, killed = await ask_and_kill(server, pieces // 2)
    assert [same(*pair) for pair in zip(streams, undisturbed, strict=True)] == [True] * 12
    assert any(stream.times[0] < killed < stream.times[-1] for stream in streams)


async def test_a_hung_engine_is_started_again(server: Server, probes: Probes) -> None:
    (engine,) = server.engines()
    os.kill(engine, signal.SIGSTOP)
    await until(probes.unready)
    await until(probes.ready)
    assert 'caesura_engine_deaths_total{kind="hung"} 1.0' in await probes.metrics()
    assert not lives(engine)
    assert (await probes.complete())[0] == 200


async def test_an_engine_ends_with_its_server(server: Server, probes: Probes) -> None:
    (engine,) = server.engines()
    server.process.kill()
    await server.process.wait()
    await until(lambda: not lives(engine))


async def test_an_engine_that_starts_ends_with_its_server(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *SERVE),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
    )
    try:
        # The process imports vLLM next; the server would answer its handshake later.
        (engine,) = await until(lambda: children(process.pid, b"multiprocessing.spawn"))
    finally:
        process.kill()
        await process.wait()
    try:
        await until(lambda: not lives(engine), seconds=HANDSHAKE_SECONDS / 2)
    finally:
        if lives(engine):
            os.kill(engine, signal.SIGKILL)


async def test_sessions_survive_the_death_of_one_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers share the model, and one of them is killed under twelve answers."""
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    two = ("--tensor-parallel-size", "2", "--distributed-executor-backend", "mp")
    async with serving(vllm=two) as server, aiohttp.ClientSession() as http:
        probes = Probes(server, http)
        undisturbed = await ask_all(server.url)
        assert [each.error for each in undisturbed] == [""] * len(QUESTIONS)
        (engine,) = server.engines()
        workers = children(engine, b"Worker")
        assert len(workers) == 2
        pieces = sum(len(each.times) for each in undisturbed)
        streams, killed = await ask_and_kill(server, pieces // 2, lambda: workers[1:])
        assert [same(*pair) for pair in zip(streams, undisturbed, strict=True)] == [True] * 12
        assert any(stream.times[0] < killed < stream.times[-1] for stream in streams)
        await until(probes.ready)
        assert "caesura_engine_restarts_total 1.0" in await probes.metrics()
        await until(lambda: not any(lives(each) for each in (engine, *workers)))


async def test_a_taken_port_is_found_before_the_engine_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "caesura", "serve", "--port", port, "--model", "/nowhere"),
            stderr=asyncio.subprocess.PIPE,
        )
        _, errors = await process.communicate()
    assert process.returncode == 1
    assert f"port {port} of 127.0.0.1 is in use" in errors.decode()
