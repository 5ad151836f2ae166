"""Sessions that go on from their tokens: from a store, as branches, and within a run.

The same tests run on a scripted engine, on the bundled model here, and behind a server.
"""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from caesura import Agent, RemoteEngine, Sampling, ScriptedEngine, Session, tool
from caesura.runtime.engine import Engine
from caesura.runtime.events import CallStarted, RunEvent, TextDelta, TurnEnded
from caesura.runtime.launch import CPU_BLOCK_SIZE
from caesura.runtime.sdk.across import SessionAcross
from caesura.runtime.testing import Item, call, say
from caesura.scheduler.messages import Message
from caesura.scheduler.vllm.client.engine import VllmEngine
from caesura.scheduler.vllm.client.session import VllmSession
from caesura.tools.calculator.tool import calculator

pytestmark = pytest.mark.engine

GREEDY = Sampling(temperature=0, max_tokens=200)
QUESTION = "What is 48 * 17? Please be exact."


@pytest.fixture(params=["scripted", "real", "remote"])
async def on(
    request: pytest.FixtureRequest, engine: VllmEngine, settled: Any, remote: RemoteEngine
) -> Engine:
    """An engine; the scripted one calls the calculator once, and answers."""
    kinds: dict[str, Engine] = {"real": engine, "remote": remote}

    def model(messages: Any, tools: Any) -> Item:
        if messages[-1] == {"role": "user", "content": QUESTION}:
            return call("calculator", expression="48 * 17")
        return say(f"It is {sum(each['role'] == 'user' for each in messages)}.")

    return kinds.get(request.param) or ScriptedEngine(model)


def tokens_of(session: Session) -> list[int]:
    """Return the tokens of the engine's session, which are those that are kept."""
    held = session._engine_session
    held = held._session if isinstance(held, SessionAcross) else held
    assert isinstance(held, VllmSession)
    assert session._memory.record.context() == held.tokens
    return list(held.tokens)


def said(messages: Iterable[Message]) -> list[tuple[str, str, list[Any]]]:
    """Return what messages say; branches make calls of their own, with ids of their own."""
    return [
        (each["role"], each["content"], [made["function"] for made in each.get("tool_calls", ())])
        for each in messages
    ]


def last_turn(events: list[RunEvent]) -> TurnEnded:
    return [each for each in events if isinstance(each, TurnEnded)][-1]


def text_of(events: list[RunEvent]) -> str:
    return "".join(each.text for each in events if isinstance(each, TextDelta))


async def test_a_session_goes_on_alike_from_a_store_as_a_branch_and_without_a_break(
    on: Engine, tmp_path: Path
) -> None:
    agent = Agent(on, [calculator], sampling=GREEDY)
    async with agent.session(id="u", store=tmp_path / "s") as session:
        await session.run(QUESTION)
        assert any(each["role"] == "tool" for each in session.messages)
    async with agent.session(id="u", store=tmp_path / "s") as session:
        first, second = session.fork(2)
        async with first, second:
            answers = await asyncio.gather(
                *(each.run("Thank you!") for each in (session, first, second))
            )
        whole = said(answers[0].messages)
        assert whole == said(answers[1].messages) == said(answers[2].messages)
        assert len({first.id, second.id, session.id}) == 3
        session.rewind()
        again = await session.run("Thank you!")
        assert said(again.messages) == whole
        asked = [each["role"] for each in session.messages].index("user", 1)
        session.messages = [*session.messages[:asked], {"role": "user", "content": "Bye!"}]
        other = await session.run("Bye, I said.")
        assert [each["content"] for each in other.messages if each["role"] == "user"] == [
            QUESTION,
            "Bye!",
            "Bye, I said.",
        ]
    async with agent.session(id=first.id, store=tmp_path / "s") as session:
        assert session.messages == answers[1].messages


async def test_a_run_goes_on_where_it_was_in_another_session(on: Engine) -> None:
    made, entered, leave = [], asyncio.Event(), asyncio.Event()

    @tool(name="calculator", safe_to_repeat=True)
    async def slow(expression: str) -> str:
        """Evaluate arithmetic."""
        made.append(expression)
        entered.set()
        await leave.wait()
        return "816"

    agent = Agent(on, [slow], sampling=GREEDY)
    async with agent.session() as session:
        task = asyncio.create_task(session.run(QUESTION))
        await entered.wait()
        states = [session.state()]
        leave.set()
        whole = await task
        states.append(session.state())
    calls = len(made)
    for state in states:
        async with agent.session(state=state) as session:
            if session.is_under_way:
                answer = await session.run()
                assert [each.id for each, _ in answer.calls] == [each.id for each, _ in whole.calls]
                assert answer.text == whole.text
            assert session.messages == whole.messages
    assert len(made) == calls + 1  # the one call that had no result, and may be repeated


async def test_a_run_goes_on_within_its_answer(on: Engine, tmp_path: Path) -> None:
    agent, states = Agent(on, [calculator], sampling=GREEDY), list[str]()
    async with agent.session() as session:
        await session.run("Hello! Who are you?")
        async for event in session.stream(QUESTION):
            if isinstance(event, TextDelta | CallStarted) and len(states) < 3:
                states.append(session.state())
        whole = session.messages
    for number, state in enumerate(states):
        async with agent.session(id=f"{number}", store=tmp_path / "s", state=state) as session:
            assert session.is_under_way
            await session.run()
            assert said(session.messages) == said(whole)
            made = [each["id"] for message in whole for each in message.get("tool_calls", ())]
            again = [
                each["id"] for message in session.messages for each in message.get("tool_calls", ())
            ]
            assert again == made


async def test_the_tokens_are_those_that_were_sampled_and_branches_compute_nothing_twice(
    engine: VllmEngine, settled: Any, tmp_path: Path
) -> None:
    wild = Sampling(temperature=2.0, seed=3, max_tokens=3 * CPU_BLOCK_SIZE)
    agent = Agent(engine, [calculator], sampling=wild)
    async with agent.session(id="u", store=tmp_path / "s") as session:
        await session.run("Tell me a story.")
        before = tokens_of(session)
    async with agent.session(id="u", store=tmp_path / "s") as session:
        rendered = engine.rendering.renderer.prompt(list(session.messages), [calculator.spec()])
        assert rendered[: len(before)] != before, "the test needs an answer that renders otherwise"
        branches = session.fork(3, sampling=GREEDY)
        told = [[event async for event in each.stream("Go on.")] for each in branches]
        full = (len(before) - 1) // CPU_BLOCK_SIZE * CPU_BLOCK_SIZE
        for branch, events in zip(branches, told, strict=True):
            assert tokens_of(branch)[: len(before)] == before
            assert full <= last_turn(events).cached_tokens
            assert text_of(events) == text_of(told[0])
            await branch.aclose()
        events = [event async for event in session.stream("Go on.")]
        assert tokens_of(session)[: len(before)] == before
        session.rewind()
        await session.run("And so?")
        assert tokens_of(session)[: len(before)] == before
        session.rewind(2)
        await session.run("Tell me another story.")
        assert len(tokens_of(session)) and session.messages[0]["content"].startswith("Tell me an")
