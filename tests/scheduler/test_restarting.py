"""What becomes of the requests of a hung engine while its process is replaced."""

import asyncio
import threading
from typing import Any

import pytest

from caesura.scheduler.errors import EngineFailed
from caesura.scheduler.vllm.client.process import EngineProcess

pytestmark = pytest.mark.timeout(60)


class Client:
    """vLLM's client of a process that answers nothing: requests wait until they are told an error.

    As vLLM's, it takes requests until the task that reads its outputs has ended.
    """

    def __init__(self) -> None:
        self.output_handler = asyncio.ensure_future(asyncio.Event().wait())
        self.output_processor, self.engine_core = self, None
        self.waiting: list[asyncio.Future[None]] = []
        self.noted = threading.Event()

    @property
    def errored(self) -> bool:
        return self.output_handler.done()

    def propagate_error(self, error: Exception) -> None:
        for one in self.waiting:
            if not one.done():
                one.set_exception(error)

    def shutdown(self) -> None:
        # The end of a process takes longer than a request needs to be noted.
        assert self.noted.wait(30)

    async def answer(self, steps: int = 0) -> None:
        """Ask, and be on the way for so many turns of the loop."""
        for _ in range(steps):
            await asyncio.sleep(0)
        self.waiting.append(asyncio.get_running_loop().create_future())
        self.noted.set()
        await self.waiting[-1]


def process(first: Client, second: Client) -> EngineProcess:
    given: Any = (first, lambda: second)
    return EngineProcess(*given)


async def test_a_session_of_a_hung_engine_waits_for_the_next_one() -> None:
    old, new = Client(), Client()
    engine = process(old, new)
    asked: list[Any] = []

    async def session() -> None:
        try:
            await old.answer()
        except Exception as error:
            await engine.revival.wait(EngineFailed(str(error)))
        asked.append(engine.llm)

    with engine.revival.supervising():
        sessions = [asyncio.ensure_future(session()) for _ in range(3)]
        await asyncio.sleep(0)
        await engine.restart()
        engine.revival.revive()
        await asyncio.gather(*sessions)
    assert asked == [new] * 3, "sent to the engine that was being ended"


async def test_a_request_on_its_way_to_a_hung_engine_is_told_of_its_end() -> None:
    old = Client()
    engine = process(old, Client())
    late = asyncio.ensure_future(old.answer(steps=3))
    await engine.restart()
    (ended,) = await asyncio.wait_for(asyncio.gather(late, return_exceptions=True), 30)
    assert "EngineDead" in type(ended).__name__
