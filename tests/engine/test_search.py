"""A search among branches on the real engine: what they share is computed once."""

from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest

from caesura import Agent, Sampling
from caesura.runtime.events import TurnEnded
from caesura.scheduler.vllm.client.engine import VllmEngine
from caesura.search import Candidate, best_of
from caesura.tools.calculator.tool import calculator

pytestmark = pytest.mark.engine

LONG = "Please remember this list. " + " ".join(f"{n} eggs," for n in range(120))
BRANCHES = 4


def length(made: Candidate[Any]) -> float:
    assert made.answer is not None
    return len(made.answer.text)


async def test_branches_compute_what_is_new_and_say_what_sessions_alone_would(
    engine: VllmEngine, settled: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    sampling = Sampling(temperature=0.8, seed=11, max_tokens=40)
    agent = Agent(engine, [calculator], sampling=sampling)
    ends: list[TurnEnded] = []
    async with agent.session() as session:
        await session.run(LONG)
        held = session.messages
        noted = type(session)._note

        def note(self: Any, event: Any) -> None:
            noted(self, event)
            if isinstance(event, TurnEnded):
                ends.append(event)

        monkeypatch.setattr(type(session), "_note", note)
        async with await best_of(session, "Hi again!", BRANCHES, score=length) as best:
            said = [each.answer.messages for each in best.candidates if each.answer is not None]
        monkeypatch.undo()
    block = (await engine.backend.facts())["block_size"]
    context = session.usage.prompt_tokens + session.usage.completion_tokens
    assert len(ends) >= BRANCHES and context > 10 * block
    for end in ends:
        assert end.cached_tokens >= context // block * block - block
    alone = []
    for number in range(BRANCHES):
        seeded = Sampling(temperature=0.8, seed=11 + number, max_tokens=40)
        async with Agent(engine, [calculator], sampling=seeded).session() as other:
            other.messages = held
            alone.append((await other.run("Hi again!")).messages)
    assert [each[-1]["content"] for each in said] == [each[-1]["content"] for each in alone]


async def test_branches_of_a_new_session_share_their_prompt(
    engine: VllmEngine, settled: Callable[[], Any]
) -> None:
    ends: list[TurnEnded] = []
    agent = Agent(engine, sampling=Sampling(temperature=0.8, seed=3, max_tokens=8))
    async with agent.session() as session:
        for branch in session.fork(BRANCHES):
            async with branch, aclosing(branch.stream(LONG)) as events:
                ends += [event async for event in events if isinstance(event, TurnEnded)]
    first, *others = ends
    block = (await engine.backend.facts())["block_size"]
    for end in others:
        assert end.prompt_tokens == first.prompt_tokens
        assert end.cached_tokens >= (first.prompt_tokens - 1) // block * block
