"""Branches of a session, and other histories: what comes before keeps its tokens."""

import asyncio
from typing import Any

import pytest

from caesura import Agent, Sampling, ScriptedEngine, UsageError, tool
from caesura.runtime.testing import Item, call, calls, say
from caesura.scheduler.messages import Message
from tests.kit.waiting import until


@tool
def double(n: int) -> int:
    """Double a number."""
    return 2 * n


def counting(messages: Any, tools: Any) -> Item:
    """Say how many prompts there are; double a number at the first."""
    if messages[-1]["role"] == "user" and messages[-1]["content"].isdecimal():
        return calls(call("double", n=int(messages[-1]["content"])), text="So:")
    return say(f"{sum(each['role'] == 'user' for each in messages)} prompts.")


def sent(engine: ScriptedEngine, session: int) -> list[int]:
    """Return how many messages each turn of a session of the engine was sent."""
    return [len(turn) for turn in engine.sessions[session].turns]


def texts(messages: tuple[Message, ...]) -> list[str]:
    return [each["content"] for each in messages if each["role"] != "tool"]


async def test_branches_go_on_by_themselves_from_one_history() -> None:
    engine = ScriptedEngine(counting)
    async with engine, Agent(engine, [double]).session() as session:
        await session.run("1")
        before = session.messages
        first, second = session.fork(2)
        third = session.fork()
        assert first.messages == second.messages == third.messages == before
        async with first, second, third:
            answers = await asyncio.gather(*(each.run("4") for each in (first, second, third)))
            await first.run("More.")
            assert len({each.id for each in (session, first, second, third)}) == 4
        assert session.messages == before
        made = [each.calls[0][0].id for each in answers]
        assert len({*made, before[1]["tool_calls"][0]["id"]}) == 4
        assert (await session.run("More.")).text == "2 prompts."
        assert session.usage.turns == 3 and first.usage.turns == 5
    assert sent(engine, 0) == [1, 1, 1]
    assert [sent(engine, each)[:4] for each in (1, 2, 3)] == [[1, 1, 1, 1]] * 3
    assert not engine.open_sessions


async def test_a_branch_has_its_own_sampling_and_each_its_own_seed() -> None:
    engine = ScriptedEngine(counting)
    agent = Agent(engine, sampling=Sampling(seed=5))
    async with engine, agent.session() as session:
        await session.run("Hi.")
        branches = [*session.fork(2), *session.fork(2, sampling=Sampling(seed=9, max_tokens=7))]
        for branch in branches:
            async with branch:
                await branch.run("Go.")
    used = [each.samplings[-1] for each in engine.sessions[1:]]
    assert [(each.seed, each.max_tokens) for each in used] == [
        (5, None),
        (6, None),
        (9, 7),
        (10, 7),
    ]


async def test_a_branch_for_another_agent_is_a_state() -> None:
    @tool
    def triple(n: int) -> int:
        """Triple a number."""
        return 3 * n

    engine = ScriptedEngine(counting)
    async with engine, Agent(engine, [double]).session() as session:
        await session.run("1")
        same = Agent(engine, [double]).session(state=session.state())
        other = Agent(engine, [triple]).session(state=session.state())
        async with same, other:
            await same.run("More.")
            await other.run("More.")
            assert same.messages == other.messages
    assert sent(engine, 1) == [1, 1, 1] and sent(engine, 2) == [5]


async def test_a_rewound_session_forgets_whole_turns() -> None:
    engine = ScriptedEngine(counting)
    async with engine, Agent(engine, [double], instructions="Be brief.").session() as session:
        for prompt in ("1", "Two.", "Three."):
            await session.run(prompt)
        session.rewind()
        assert (await session.run("Other.")).text == "3 prompts."
        session.rewind(2)
        assert texts(session.messages) == ["Be brief.", "1", "So:", "1 prompts."]
        await session.run("Another.")
        session.rewind(2)
        assert texts(session.messages) == ["Be brief."]
        wrong: list[Any] = [1, 0, -1, True, "1"]
        for turns in wrong:
            with pytest.raises(UsageError, match=rf"has 0 turn\(s\) to forget, got {turns!r}"):
                session.rewind(turns)
        assert (await session.run("First.")).text == "1 prompts."
    # Each time the last turn that stayed was replayed, and the new prompt alone was sent.
    assert [sent(engine, each) for each in range(4)] == [[2, 1, 1, 1], [6, 1], [2, 1, 1], [2]]
    assert not engine.open_sessions


async def test_an_edited_history_keeps_the_tokens_before_the_edit() -> None:
    engine = ScriptedEngine(counting)
    async with engine, Agent(engine, [double]).session() as session:
        for prompt in ("1", "Two.", "Three."):
            await session.run(prompt)
        messages = [dict(each) for each in session.messages]
        at = texts(session.messages).index("2 prompts.") + 1  # one message is a tool's
        assert messages[at]["content"] == "2 prompts."
        messages[at]["content"] = "Two prompts, I think."
        session.messages = messages
        assert session.messages == tuple(messages)
        assert (await session.run("Four.")).text == "4 prompts."
        session.messages = ()
        assert (await session.run("Again.")).text == "1 prompts."
    # From the second prompt on, the messages are sent.
    assert sent(engine, 1) == [1, 1, 5] and sent(engine, 2) == [1]


async def test_a_session_that_began_with_a_history_is_branched_and_kept_too() -> None:
    history = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]
    engine = ScriptedEngine(counting)
    agent = Agent(engine)
    async with engine, agent.session(history) as session:
        branch = session.fork()
        async with branch:
            assert (await branch.run("Go.")).text == "2 prompts."
        assert session.messages == tuple(history)
        async with agent.session(state=branch.state()) as again:
            assert (await again.run("Go.")).text == "3 prompts."
    assert sent(engine, 0) == [3] and sent(engine, 1) == [3, 1]


@pytest.mark.parametrize("n", [0, -1, 1.5, True, "2"])
async def test_a_number_of_branches_that_is_none_is_refused(n: Any) -> None:
    async with Agent(ScriptedEngine()).session() as session:
        with pytest.raises(UsageError, match=f"a whole number from 1, got {n!r}"):
            session.fork(n)


async def test_branches_of_a_session_at_work_go_on_with_its_run() -> None:
    """Each makes the call that is under way itself, and none of those that have a result."""
    made: list[str] = []
    slow = asyncio.Event()
    all_there = asyncio.Semaphore(0)

    @tool
    async def quick() -> str:
        """Answer at once."""
        made.append("quick")
        return "at once"

    @tool
    async def wait() -> str:
        """Wait."""
        made.append("wait")
        number = made.count("wait")
        all_there.release()
        await slow.wait()
        return f"number {number}"

    def model(messages: Any, tools: Any) -> Item:
        results = [each["content"] for each in messages if each["role"] == "tool"]
        return say(" and ".join(results)) if results else calls(call("quick"), call("wait"))

    agent = Agent(ScriptedEngine(model), [quick, wait], trajectories=True)
    async with agent.session() as session:
        run = asyncio.create_task(session.run("Wait."))
        await all_there.acquire()
        await until(lambda: session._memory.record.runs[-1].results)
        first, second = session.fork(2)
        assert first.is_under_way and session.is_under_way
        with pytest.raises(UsageError, match=r"whose prompt was 'Wait.': go on"):
            await first.run("Something else.")
        async with first, second:
            others = [asyncio.create_task(each.run()) for each in (first, second)]
            for _ in others:
                await all_there.acquire()
            assert made == ["quick", "wait", "wait", "wait"]
            slow.set()
            answers = [(await each).text for each in (run, *others)]
            assert sorted(answers) == [f"at once and number {number}" for number in (1, 2, 3)]
            assert not first.is_under_way
            assert (await first.run("Again.")).text == answers[1]
            shared = (await session.trajectory()).branches[0]
            for each in (first, second):
                own = (await each.trajectory()).branches[-1]
                assert own.parent == shared.id and own.segments[0].source == "tool"
                assert own.branch_point == sum(len(one.tokens) for one in shared.segments[:2])


async def test_a_session_at_work_is_not_edited() -> None:
    entered = asyncio.Event()

    @tool
    async def wait() -> None:
        """Wait."""
        entered.set()
        await asyncio.Event().wait()

    async with Agent(ScriptedEngine([call("wait")]), [wait]).session() as session:
        run = asyncio.create_task(session.run("Wait."))
        await entered.wait()
        assert session.is_under_way
        with pytest.raises(UsageError, match="has not ended, so that it cannot be edited"):
            session.messages = ()
        with pytest.raises(UsageError, match="a run is at work in this session"):
            session.rewind()
        run.cancel()
        await asyncio.wait([run])
        assert not session.is_under_way
