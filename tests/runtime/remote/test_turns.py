"""A remote engine keeps the contract of an engine: against our server, and against another."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable
from pathlib import Path
from typing import Any

from caesura import Agent, Sampling
from caesura.intercept.calls.events import CallFinished, ReasoningDelta, TextDelta
from caesura.runtime.events import RunEnded, ToolReturned
from caesura.runtime.testing import call, calls, say, think
from caesura.scheduler.programs import Origin
from caesura.tools.loops import on_loop
from tests.kit.loops import another_loop

Remote = Callable[..., Any]


def price(item: str) -> int:
    """Look up a price."""
    return {"lamp": 24, "chair": 59}[item]


async def test_an_agent_runs_its_tools_here(remote: Remote) -> None:
    engine, script, _ = await remote([call("price", item="lamp"), say("It costs 24.")])
    async with Agent(engine, [price], instructions="Be short.") as agent:
        answer = await agent.run("What does a lamp cost?")
    assert (answer.text, answer.reason) == ("It costs 24.", "stop")
    [(made, result)] = answer.calls
    assert (made.name, made.arguments, result.content) == ("price", '{"item": "lamp"}', "24")
    assert [message["role"] for message in answer.messages] == [
        *("system", "user", "assistant", "tool", "assistant")
    ]
    assert answer.usage.turns == 2
    assert answer.usage.completion_tokens > 0
    told = script.sessions[-1].turns[-1]
    assert told[-1]["content"] == "24"


async def test_calls_at_once_start_while_the_model_writes(remote: Remote) -> None:
    both = calls(call("price", item="lamp"), call("price", item="chair"))
    engine, _, _ = await remote([both, say("83.")])
    async with Agent(engine, [price]) as agent:
        events = [event async for event in agent.stream("Both?")]
    finished = [event.arguments for event in events if isinstance(event, CallFinished)]
    assert finished == ['{"item": "lamp"}', '{"item": "chair"}']
    returned = [event.result.content for event in events if isinstance(event, ToolReturned)]
    assert sorted(returned) == ["24", "59"]
    assert isinstance(events[-1], RunEnded)


async def test_text_and_thinking_stream_in_pieces(remote: Remote) -> None:
    engine, _, _ = await remote([think("Hm, a greeting.", say("Hello there, friend."))])
    async with Agent(engine) as agent:
        events = [event async for event in agent.stream("Hi.")]
    texts = [event.text for event in events if isinstance(event, TextDelta)]
    assert len(texts) > 1
    assert "".join(texts) == "Hello there, friend."
    thoughts = [event.text for event in events if isinstance(event, ReasoningDelta)]
    assert "".join(thoughts) == "Hm, a greeting."


async def test_a_session_goes_on_over_several_runs(remote: Remote) -> None:
    engine, script, _ = await remote([say("One."), say("Two."), say("Three.")])
    async with Agent(engine).session() as session:
        for _ in range(3):
            await session.run("Next?")
    assert [m["content"] for m in session.messages if m["role"] == "assistant"] == [
        *("One.", "Two.", "Three.")
    ]
    told = script.sessions[-1].turns[0]
    assert [message["content"] for message in told][-3:] == ["Next?", "Two.", "Next?"]


async def test_a_session_goes_on_in_another_event_loop(remote: Remote) -> None:
    engine, _, _ = await remote([say("One."), say("Two."), say("Three.")])
    session = Agent(engine).session()
    with another_loop() as there:
        texts = [
            (await session.run("Next?")).text,
            (await on_loop(there, lambda: session.run("Next?"))).text,
        ]
    texts.append((await session.run("Next?")).text)
    await session.aclose()
    assert texts == ["One.", "Two.", "Three."]


async def test_sampling_reaches_the_server(remote: Remote) -> None:
    engine, script, _ = await remote([say("One two three four.")])
    sampling = Sampling(temperature=0.5, top_p=0.9, seed=3, max_tokens=2, top_k=7)
    async with Agent(engine, sampling=sampling) as agent:
        answer = await agent.run("Count.")
    assert (answer.text.strip(), answer.reason) == ("One two", "length")
    told = script.sessions[-1].samplings[-1]
    assert (told.temperature, told.top_p, told.seed, told.max_tokens, told.top_k) == (
        *(0.5, 0.9, 3, 2, 7),
    )


async def test_the_end_of_a_session_reaches_our_server(remote: Remote, kind: str) -> None:
    engine, script, _ = await remote([say("Hi.")])
    async with Agent(engine).session() as session:
        await session.run("Hello.")
    await engine.end_session(Origin(session=session.id))
    ended = [origin.session for origin in script.ended_sessions]
    assert ended == ([session.id] if kind == "ours" else [])


async def test_the_example_runs(remote: Remote) -> None:
    engine, _, _ = await remote(
        [
            *(call("price", item="lamp"), say("It costs 24 euros.")),
            *(call("price", item="chair"), say("59 euros.")),
        ]
    )
    example = Path(__file__).parents[3] / "examples" / "14_remote_agent.py"
    run = await asyncio.create_subprocess_exec(
        sys.executable, str(example), engine.url, stdout=PIPE, stderr=PIPE
    )
    out, err = await run.communicate()
    assert run.returncode == 0, err.decode()[-2000:]
    told = out.decode()
    assert '[price {"item": "lamp"} -> 24]' in told
    assert "59 euros." in told
    assert "2 turns" in told
