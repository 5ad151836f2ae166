"""The real engine on the bundled model, started once for the whole suite."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from caesura import RemoteEngine
from caesura.runtime.launch import start_engine
from caesura.runtime.server import create_app
from caesura.runtime.server.app import ServerParts
from caesura.runtime.server.listen import listening
from caesura.runtime.trajectories.kept import KeptSessions, SessionBounds
from caesura.scheduler.vllm.client.engine import VllmEngine
from caesura.tools.calculator.tool import calculator
from caesura.tools.registry import Registry


@pytest.fixture(scope="session")
async def engine() -> AsyncIterator[VllmEngine]:
    started = await start_engine()
    assert isinstance(started, VllmEngine)
    yield started
    await started.close()


@pytest.fixture
async def remote(engine: VllmEngine) -> AsyncIterator[RemoteEngine]:
    """The same engine behind an address, as `caesura serve` has it."""
    async with engine.backend.server() as behind:
        app = create_app(engine, Registry(()), parts=ServerParts(vllm=behind))
        async with listening(app, shutdown_timeout=0.1) as port:
            yield RemoteEngine(f"http://127.0.0.1:{port}")


@pytest.fixture
async def recording(
    engine: VllmEngine, settled: Callable[[], Any]
) -> AsyncIterator[httpx.AsyncClient]:
    """A server that keeps trajectories, in front of vLLM's own."""
    kept = KeptSessions(SessionBounds(), one_owner=True)
    async with engine.backend.server() as vllm:
        parts = ServerParts(vllm=vllm, sessions=kept)
        app = create_app(engine, Registry([calculator]), parts=parts)
        async with (
            listening(app, shutdown_timeout=1) as port,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}/v1", timeout=None) as client,
        ):
            yield client


@pytest.fixture
async def settled(engine: VllmEngine) -> AsyncIterator[Callable[[], Any]]:
    """Check, at the end of a test and on demand, that the engine holds nothing of it any more."""

    async def check() -> None:
        state: dict[str, Any] = {}
        for _ in range(1200):
            state = await engine.state()
            # What requests that ended with calls have left is kept for their follow-ups.
            free = state["blocks_free"] + (state["blocks_paused"] if state["retained"] else 0)
            if free == state["blocks_total"] and not state["closing"]:
                break
            await asyncio.sleep(0.05)
        assert free == state["blocks_total"], state
        assert state["running"] == state["waiting"] == state["watched"] == 0, state
        assert state["closing"] == state["lost_blocks"] == 0, state

    await check()
    yield check
    await check()
