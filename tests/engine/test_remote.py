"""Agents on a server elsewhere: they compute and are told what they are with an engine here."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from caesura import Agent, RemoteEngine, Sampling
from caesura.intercept.calls.events import TurnEnded
from caesura.runtime.engine import Engine
from caesura.runtime.events import RunEnded, ToolReturned
from caesura.runtime.launch import CPU_BLOCK_SIZE
from caesura.scheduler.messages import CallRule
from caesura.scheduler.vllm.client.engine import VllmEngine
from tests.engine.stock_server import vllm_server

pytestmark = pytest.mark.engine

ONE_CALL = Sampling(temperature=0, max_tokens=60, calls=CallRule(required=True, single=True))


def calculator(expression: str) -> str:
    """Calculate an expression."""
    return "14"


@pytest.mark.parametrize("kind", ["here", "there"])
async def test_what_is_new_alone_is_computed(
    engine: VllmEngine, remote: RemoteEngine, settled: Any, kind: str
) -> None:
    """The server keeps the KV cache from the call to its result, and from run to run.

    Where a request has ended, its KV is found again by whole blocks.
    """
    on: Engine = engine if kind == "here" else remote
    ends: list[TurnEnded] = []
    async with Agent(on, [calculator], sampling=ONE_CALL).session() as session:
        for question in ("What is 2 * 7?", "And what is 7 * 2?"):
            async for event in session.stream(question):
                if isinstance(event, TurnEnded):
                    ends.append(event)
    assert [end.reason for end in ends][::2] == ["call", "call"]
    context = 0
    for end in ends:
        context += end.prompt_tokens
        computed = context - end.cached_tokens
        assert computed < end.prompt_tokens + CPU_BLOCK_SIZE, ends
        context += end.completion_tokens
    usage = session.usage
    assert usage.prompt_tokens + usage.completion_tokens == context


async def test_an_agent_says_the_same_here_and_there(
    engine: VllmEngine, remote: RemoteEngine, settled: Any
) -> None:
    await remote.contact()
    assert remote.is_caesura
    said = []
    for on in (engine, remote):
        agent = Agent(on, [calculator], sampling=Sampling(temperature=0, max_tokens=60))
        events = [event async for event in agent.stream("What is 2 * 7?")]
        said.append(
            (
                [event.call.arguments for event in events if isinstance(event, ToolReturned)],
                [event.text for event in events if isinstance(event, RunEnded)],
            )
        )
    assert said[0] == said[1]
    assert said[0][0], "no tool was called"


async def test_threads_and_loops_share_a_remote_engine(remote: RemoteEngine, settled: Any) -> None:
    """An engine here belongs to one loop; an address does not."""
    agent = Agent(remote, sampling=Sampling(temperature=0, max_tokens=5))
    texts: list[str] = []

    def ask() -> None:
        for _ in range(2):
            texts.append(asyncio.run(agent.run("What is 2 + 2?")).text)

    await asyncio.gather(*(asyncio.to_thread(ask) for _ in range(3)))
    here = await agent.run("What is 2 + 2?")
    sync = await asyncio.to_thread(agent.run_sync, "What is 2 + 2?")
    assert texts == [here.text] * 6
    assert sync.text == here.text


@pytest.mark.slow
async def test_an_agent_uses_vllms_own_server(tmp_path: Path) -> None:
    async with vllm_server(tmp_path / "records.jsonl", retention=60) as address:
        settings = Sampling(temperature=0, max_tokens=60)
        async with Agent(address, [calculator], sampling=settings) as agent:
            answer = await agent.run("What is 2 * 7?")
        engine = RemoteEngine(address)
        await engine.contact()
    assert engine.is_caesura is False
    assert engine.context_tokens == 2048
    assert [result.content for _, result in answer.calls] == ["14"]
    assert "14" in answer.text
    assert answer.usage.cached_tokens > 0
