"""Large conversations are rendered beside the event loop, in which others go on meanwhile."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from caesura.intercept.calls.events import TextDelta
from caesura.scheduler.errors import UsageError
from caesura.scheduler.messages import Message, SessionSpec
from caesura.scheduler.vllm.client.rendering.threads import (
    MAX_INLINE_CHARACTERS,
    MAX_MEDIUM_CHARACTERS,
    RenderThreads,
    count_characters,
)
from caesura.scheduler.vllm.client.session import VllmSession
from caesura.scheduler.vllm.client.turns import Language
from tests.kit.host import StandInHost, output

LARGE = "a" * (MAX_INLINE_CHARACTERS + 1)
LONG_SECONDS = 20


class Engine(StandInHost):
    """Says "Fine." Rendering a large conversation waits to be released."""

    context_tokens = 1000

    def __init__(self) -> None:
        tokenizer = SimpleNamespace(decode=lambda tokens: "")
        super().__init__(Language(tokenizer, (), {0}), renderer=self)
        self.waits, self.released = threading.Event(), threading.Event()
        self.served: list[int] = []

    def prompt(self, messages: Sequence[Message], *about: Any) -> list[int]:
        if len(messages[-1]["content"]) <= MAX_INLINE_CHARACTERS:
            return [1]
        self.waits.set()
        assert self.released.wait(LONG_SECONDS), "nothing else was done meanwhile"
        return [2]

    def count_spelled(self, messages: Sequence[Message]) -> int:
        return 0

    async def generate(self, prompt: Any, *given: Any, **named: Any) -> AsyncGenerator[Any, None]:
        self.served.append(prompt["prompt_token_ids"][0])
        yield output([5, 0], "stop", "Fine.")


@pytest.fixture
def engine() -> Any:
    return Engine()


async def text_of(session: VllmSession, content: str) -> str:
    events = [event async for event in session.turn([{"role": "user", "content": content}])]
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def started(engine: Any, content: str) -> tuple[VllmSession, asyncio.Task[str]]:
    session = VllmSession(engine, SessionSpec(()))
    return session, asyncio.create_task(text_of(session, content))


async def test_another_request_is_served_while_a_large_one_is_rendered(engine: Any) -> None:
    _, large = started(engine, LARGE)
    await asyncio.to_thread(engine.waits.wait, LONG_SECONDS)
    assert await text_of(VllmSession(engine, SessionSpec(())), "Hello") == "Fine."
    assert engine.served == [1]
    engine.released.set()
    assert await large == "Fine."
    assert engine.served == [1, 2]


async def test_the_largest_do_not_keep_the_large_waiting(engine: Any) -> None:
    largest = [started(engine, "a" * (MAX_MEDIUM_CHARACTERS + 1))[1] for _ in range(5)]
    await asyncio.to_thread(engine.waits.wait, LONG_SECONDS)
    done = await engine.rendering.threads.run(lambda: "done", LARGE)
    assert done == "done"
    assert engine.served == []
    engine.released.set()
    assert await asyncio.gather(*largest) == ["Fine."] * 5


async def test_a_session_closed_while_it_is_rendered_sends_nothing(engine: Any) -> None:
    session, large = started(engine, LARGE)
    await asyncio.to_thread(engine.waits.wait, LONG_SECONDS)
    await session.close()
    engine.released.set()
    with pytest.raises(UsageError, match="the session is closed"):
        await large
    assert engine.served == []


async def test_a_turn_can_be_cancelled_while_it_is_rendered(engine: Any) -> None:
    _, large = started(engine, LARGE)
    await asyncio.to_thread(engine.waits.wait, LONG_SECONDS)
    large.cancel()
    with pytest.raises(asyncio.CancelledError):
        await large
    engine.released.set()
    assert engine.served == []


async def test_what_is_small_is_done_at_once_and_what_fails_is_told() -> None:
    threads = RenderThreads()
    here = threading.get_ident()
    assert await threads.run(threading.get_ident, "small") == here
    assert await threads.run(threading.get_ident, LARGE) != here
    for content in ("small", LARGE):
        with pytest.raises(ValueError, match="invalid literal"):
            await threads.run(lambda: int("x"), content)
    threads.close()
    threads.close()


@pytest.mark.parametrize(
    "data",
    [LARGE, [{"role": "user", "content": LARGE}], {"parameters": {"a": {"enum": [LARGE]}}},
     {LARGE: 1}, [{}] * 1000, list(range(1000))],
)  # fmt: skip
def test_all_that_takes_time_is_counted(data: Any) -> None:
    assert count_characters(data, MAX_INLINE_CHARACTERS) > MAX_INLINE_CHARACTERS


def test_counting_stops_when_there_is_enough() -> None:
    class Counted(str):
        looked_at = 0

        def __len__(self) -> int:
            Counted.looked_at += 1
            return super().__len__()

    count_characters([Counted("a" * 100) for _ in range(1000)], 20_000)
    assert 0 < Counted.looked_at < 1000
    assert count_characters([None, 1, 2.5, True, "abc"], 100) == 5 * 16 + 3
