"""What a session's trajectory tells of runs, tools, branches and other histories."""

import random
from pathlib import Path
from typing import Any

import pytest

from caesura import Agent, EngineFailed, RemoteEngine, ScriptedEngine, Session, UsageError, tool
from caesura.runtime.testing import Item, call, fail, inline, say
from caesura.runtime.trajectories.recorder import TrajectoryRecorder
from caesura.scheduler.session_log import LoggedTurn, TurnOutcome
from caesura.trajectories import Segment, Trajectory
from tests.runtime.trajectories.computed import ComputedEngine


@tool
def double(n: int) -> int:
    """Double a number."""
    return 2 * n


def model(messages: Any, tools: Any) -> Item:
    """Double a number that was asked for, and answer everything else."""
    if messages[-1]["role"] == "user" and str(messages[-1]["content"]).isdecimal():
        return call("double", n=int(messages[-1]["content"]))
    return say(f"{len(messages)} messages.")


@pytest.fixture
def engine() -> ComputedEngine:
    return ComputedEngine(model, random.Random(3))


def shape(trajectory: Trajectory) -> list[tuple[str | None, str]]:
    """Return the place of each branch's parent, and its sources."""
    places = {each.id: str(at) for at, each in enumerate(trajectory.branches)}
    return [
        (None if each.parent is None else places[each.parent], sources(each.segments))
        for each in trajectory.branches
    ]


def sources(segments: tuple[Segment, ...]) -> str:
    return " ".join(each.source for each in segments)


async def test_a_run_with_a_tool_is_one_sequence(engine: ComputedEngine) -> None:
    agent = Agent(engine, [double], instructions="Be brief.", trajectories=True)
    async with agent.session() as session:
        await session.run("2")
        await session.run("Thanks.")
        trajectory = await session.trajectory()
    (branch,) = trajectory.branches
    assert sources(branch.segments) == "prompt sampled tool sampled user sampled"
    assert (branch.session, branch.model) == (session.id, engine.model)
    prompt, called, result, answer, user, last = branch.segments
    told = [each.messages for each in branch.segments]  # behind the instructions
    assert told == [(0, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7)]
    assert [each.stop_reason for each in (called, answer, last)] == ["call", "stop", "stop"]
    assert (prompt.stop_reason, result.stop_reason, user.started_at) == (None, None, None)
    assert answer.resume is not None and answer.resume.handling == "preserve"
    assert called.resume is None and answer.cached_tokens is not None
    # A wait begins where the turn before it ends, and the next turn begins where it ends.
    assert called.started_at is not None and called.seconds is not None
    assert result.started_at == pytest.approx(called.started_at + called.seconds)
    assert result.started_at is not None and result.seconds is not None
    assert answer.started_at == pytest.approx(result.started_at + result.seconds)
    assert called.loss_mask == (1,) * len(called.tokens) and set(result.loss_mask) == {0}

    rollout = trajectory.rollout()
    assert trajectory.rollouts() == (rollout,)
    assert rollout.prompt_ids == prompt.tokens
    tokens = [token for each in branch.segments[1:] for token in each.tokens]
    assert list(rollout.completion_ids) == tokens
    assert rollout.ids == engine.computed[session.id][-1][0] + last.tokens
    assert rollout.stop_reason == "stop"


async def test_calls_within_a_sentence_are_calls_too() -> None:
    engine = ComputedEngine([inline("It is ", "double", n=3), say(" then.")], random.Random(1))
    async with Agent(engine, [double], trajectories=True).session() as session:
        await session.run("What is it?")
        (branch,) = (await session.trajectory()).branches
    assert sources(branch.segments) == "prompt sampled tool sampled"
    assert branch.segments[1].stop_reason == "call"
    assert [each.messages for each in branch.segments] == [(0, 1), (1, 2), (2, 3), (3, 4)]


async def test_forks_and_rewinds_are_branches_whose_tokens_count_once(
    engine: ComputedEngine,
) -> None:
    agent = Agent(engine, [double], trajectories=True)
    async with agent.session() as session:
        await session.run("2")
        first = session.fork()
        await session.run("More.")
        session.rewind()
        await session.run("Less.")
        async with first:
            await first.run("Other.")
            forked = await first.trajectory()
        own = await session.trajectory()
    assert shape(own) == [
        (None, "prompt sampled tool sampled user sampled"),
        ("0", "user sampled"),
    ]
    assert shape(forked) == [
        (None, "prompt sampled tool sampled"),
        ("0", "user sampled"),
    ]
    behind = sum(len(each.tokens) for each in own.branches[0].segments[:4])
    assert own.branches[1].branch_point == forked.branches[1].branch_point == behind
    assert [each.session for each in forked.branches] == [session.id, first.id]
    rollouts = [*own.rollouts(), *forked.rollouts()]
    assert [each.branch for each in rollouts] == [
        f"{session.id}/0",
        f"{session.id}/1",
        f"{first.id}/0",
    ]
    computed = [*engine.computed[session.id], *engine.computed[first.id]]
    assert sum(sum(each.loss_mask) for each in rollouts) == sum(len(each[1]) for each in computed)
    assert len({each.prompt_ids for each in rollouts}) == 1
    whole = forked.rollout(own=False)
    assert sum(whole.loss_mask) > sum(forked.rollout().loss_mask)


async def test_an_edited_answer_begins_a_branch_and_the_sampled_one_stays(
    engine: ComputedEngine,
) -> None:
    async with Agent(engine, trajectories=True).session() as session:
        await session.run("Hi.")
        question = session.messages[0]
        session.messages = [question, {"role": "assistant", "content": "Well."}]
        await session.run("And now?")
        trajectory = await session.trajectory()
    (_, first), (_, second) = shape(trajectory)
    assert (first, second) == ("prompt sampled", "prompt sampled")
    before = [rollout.ids for rollout in trajectory.rollouts()]
    assert before == [each[0] + each[1] for each in engine.computed[session.id]]


async def test_a_template_that_rewrites_a_turn_begins_a_branch_within_it() -> None:
    recorder = TrajectoryRecorder("s")
    recorder.uses("m")
    recorder.begin(LoggedTurn([1, 2], replaces=True), "user", 10.0)
    recorder.sampled([8, 8, 3])
    recorder.end(TurnOutcome("stop", paused=True), 12.0)
    recorder.begin(LoggedTurn([1, 2, 8, 5, 6], replaces=True), "tool", 15.0)
    recorder.sampled([4])
    recorder.end(TurnOutcome("length"), 16.0)
    trajectory = recorder.trajectory()
    first, second = trajectory.branches
    assert sources(first.segments) == "prompt sampled"
    assert (second.parent, second.branch_point) == ("s/0", 3)
    assert sources(second.segments) == "template sampled"
    assert [each.tokens for each in trajectory.segments("s/1")] == [(1, 2), (8,), (5, 6), (4,)]
    assert [each.stop_reason for each in trajectory.segments("s/1")] == [None] * 3 + ["length"]
    rollout = trajectory.rollout("s/1")
    assert rollout.loss_mask == (0, 0, 0, 1)
    assert trajectory.rollout("s/1", own=False).loss_mask == (1, 0, 0, 1)
    assert (first.segments[1].started_at, first.segments[1].seconds) == (10.0, 2.0)


async def test_a_run_that_broke_off_has_no_stop_reason(engine: ComputedEngine) -> None:
    broken = ComputedEngine([fail(EngineFailed("died"), "It is")], random.Random(1))
    async with Agent(broken, trajectories=True).session() as session:
        with pytest.raises(EngineFailed, match="died"):
            await session.run("Hi.")
        rollout = (await session.trajectory()).rollout()
    assert rollout.stop_reason is None and rollout.completion_ids and all(rollout.loss_mask)


async def test_during_a_run_what_was_sampled_so_far_is_there(engine: ComputedEngine) -> None:
    seen: list[Trajectory] = []
    held: list[Session] = []

    @tool(name="double")
    async def looking(n: int) -> int:
        """Double a number."""
        seen.append(await held[0].trajectory())
        return 2 * n

    async with Agent(engine, [looking], trajectories=True).session() as session:
        held.append(session)
        with pytest.raises(UsageError, match=f"nothing was sampled yet in .*{session.id}"):
            (await session.trajectory()).rollout()
        await session.run("2")
        whole = await session.trajectory()
    (before,), (after,) = seen[0].branches, whole.branches
    assert before.segments == after.segments[:2]


async def test_a_kept_session_goes_on_from_the_tokens_of_its_history(
    engine: ComputedEngine, tmp_path: Path
) -> None:
    agent = Agent(engine, [double], trajectories=True)
    for prompt in ("2", "More.", "And more."):
        async with agent.session(id="u", store=tmp_path / "s") as session:
            await session.run(prompt)
            trajectory = await session.trajectory()
    (branch,) = trajectory.branches
    assert sources(branch.segments) == "prompt sampled tool sampled" + 2 * " user sampled"
    assert branch.segments[1].stop_reason == "call" and branch.model == engine.model
    times = [each.started_at for each in branch.segments]
    assert times[:-1] == [None] * 7 and times[-1] is not None
    assert trajectory.rollout().ids == sum(engine.computed["u"][-1], ())


async def test_another_agent_goes_on_in_a_branch_of_its_model() -> None:
    second = ScriptedEngine([say("You get it back.")], model="second")
    other = Agent(second, name="billing", instructions="You do refunds.")
    first = ScriptedEngine([call("transfer_to_billing")], model="first")
    agent = Agent(first, instructions="Find out.", handoffs=[other], trajectories=True)
    async with agent.session() as session:
        await session.run("Money back!")
        trajectory = await session.trajectory()
    assert [each.model for each in trajectory.branches] == ["first", "second"]


async def test_sessions_record_nothing_unless_their_agent_asks_for_it(
    engine: ComputedEngine,
) -> None:
    async with Agent(engine).session(id="plain") as session:
        await session.run("Hi.")
        with pytest.raises(UsageError, match=r"'plain' records no trajectory: .*trajectories=True"):
            await session.trajectory()
        async with session.fork() as fork:
            with pytest.raises(UsageError, match="records no trajectory"):
                await fork.trajectory()
    wrong: Any = "yes"
    with pytest.raises(UsageError, match="trajectories is of type str: write trajectories=True"):
        Agent(engine, trajectories=wrong)


async def test_a_server_keeps_its_tokens_to_itself(engine: ComputedEngine) -> None:
    address = "http://127.0.0.1:1/v1"
    given: list[Any] = [address, [engine, RemoteEngine(address)]]
    for models in given:
        with pytest.raises(UsageError, match=r"at http://127\.0\.0\.1:1.* keeps its tokens"):
            Agent(models, trajectories=True)
    recorder = TrajectoryRecorder("s")
    recorder.begin(LoggedTurn([]), "user", 1.0)  # as the log of a server's session has it
    recorder.sampled([1])
    with pytest.raises(UsageError, match="'s' has no whole trajectory: the engine keeps"):
        recorder.trajectory()


async def test_tokens_that_nobody_knows_are_an_error_and_no_gap() -> None:
    first = ScriptedEngine([call("double", n=1), fail(EngineFailed("killed"))], model="first")
    second = ScriptedEngine([say("2"), say("4")], model="second")
    async with Agent([first, second], [double], trajectories=True).session() as session:
        await session.run("1")
        with pytest.raises(UsageError, match="no whole trajectory: second went on with it"):
            await session.trajectory()
    recorder = TrajectoryRecorder("s")
    recorder.begin(LoggedTurn([1], has_media=True), "user", 1.0)
    with pytest.raises(UsageError, match="the tokens of pictures, sounds and of another model"):
        recorder.forked("t").trajectory()


async def test_an_unknown_branch_is_told_with_those_that_there_are(engine: ComputedEngine) -> None:
    async with Agent(engine, trajectories=True).session(id="u") as session:
        await session.run("Hi.")
        trajectory = await session.trajectory()
    with pytest.raises(UsageError, match="no branch 'u/7' in the trajectory; there are: u/0"):
        trajectory.rollout("u/7")
