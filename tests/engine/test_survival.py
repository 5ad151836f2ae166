"""An engine whose process is killed starts again, and its sessions go on, token for token."""

import multiprocessing
import os
import signal
from collections.abc import AsyncIterator
from multiprocessing.process import BaseProcess
from typing import Any

import pytest

from caesura.runtime.launch import start_engine
from caesura.scheduler.errors import EngineFailed
from caesura.scheduler.messages import Sampling, SessionSpec
from caesura.scheduler.vllm.client.engine import VllmEngine

pytestmark = pytest.mark.slow

ARGS = ["--kv-cache-memory-bytes", str(32 << 20), "--max-num-seqs", "4"]
USER = {"role": "user", "content": "What is 48 * 17?"}
GREEDY = Sampling(temperature=0.0, max_tokens=48)


class Mortal:
    """An engine of its own, whose process a test kills."""

    def __init__(self, engine: VllmEngine, others: set[BaseProcess]) -> None:
        self.engine = engine
        self._others = others

    def kill(self) -> None:
        """Kill the process as the kernel does for lack of memory."""
        (process,) = set(multiprocessing.active_children()) - self._others
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()


@pytest.fixture(scope="module")
async def mortal() -> AsyncIterator[Mortal]:
    others = set(multiprocessing.active_children())
    engine = await start_engine(vllm_args=ARGS)
    assert isinstance(engine, VllmEngine)
    yield Mortal(engine, others)
    await engine.close()
    assert set(multiprocessing.active_children()) <= others


async def turn(session: Any, *messages: dict[str, Any]) -> list[Any]:
    return [event async for event in session.turn(messages, GREEDY)]


async def test_a_killed_engine_starts_again(mortal: Mortal) -> None:
    engine = mortal.engine
    spec = SessionSpec(sampling=GREEDY)
    before = await turn(engine.open(spec), USER)
    facts = await engine.command("facts")
    mortal.kill()
    with pytest.raises(EngineFailed):
        await turn(engine.open(spec), USER)
    with pytest.raises(EngineFailed):
        await engine.check_health()
    await engine.restart()
    await engine.check_health()
    assert await turn(engine.open(spec), USER) == before
    assert await engine.command("facts") == facts
