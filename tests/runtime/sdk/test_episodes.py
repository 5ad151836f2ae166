"""`collect`: many sessions at once, whose trajectories and rewards come back in order."""

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from caesura import (
    Agent,
    Context,
    LimitReached,
    Limits,
    RequestFailed,
    Sampling,
    ScriptedEngine,
    UsageError,
    tool,
)
from caesura.runtime.testing import Item, call, fail, say
from caesura.trajectories import Episode, collect, collecting, to_trl, update_weights, updating


@tool
def double(n: int) -> int:
    """Double a number."""
    return 2 * n


def model(messages: Any, tools: Any) -> Item:
    """Double what was asked for; fail for what is no number."""
    said = str(messages[-1]["content"])
    if messages[-1]["role"] == "tool":
        return say(f"It is {said}.")
    return call("double", n=int(said)) if said.isdecimal() else fail(RequestFailed("broken"), "Oh")


def agent_of(script: Any = model, **options: Any) -> Agent[str]:
    return Agent(ScriptedEngine(script), [double], trajectories=True, **options)


async def test_groups_come_back_in_the_order_of_the_prompts() -> None:
    def reward(episode: Episode[str]) -> float:
        assert episode.answer is not None
        return float(str(2 * int(str(episode.prompt))) in episode.answer.text)

    made = await collect(agent_of(), ["4", "5", "4"], samples=2, reward=reward)
    assert [each.prompt for each in made] == ["4", "4", "5", "5", "4", "4"]
    assert [each.reward for each in made] == [1.0] * 6
    assert [each.error for each in made] == [None] * 6
    trajectories = [each.trajectory for each in made]
    assert len({each.session for each in trajectories if each is not None}) == 6
    rows = to_trl([each for each in trajectories if each is not None])
    assert len(rows["prompt_ids"]) == 6 and all(0 < sum(row) < len(row) for row in rows["env_mask"])


async def test_an_error_of_one_loses_no_other() -> None:
    async def reward(episode: Episode[str]) -> float:
        await asyncio.sleep(0)
        return 1 / (int(str(episode.prompt)) - 3)

    broken, right, unpaid = await collect(agent_of(), ["x", "4", "3"], reward=reward)
    assert isinstance(broken.error, RequestFailed)
    assert broken.answer is None and broken.reward is None
    assert broken.trajectory is not None  # what was sampled before it failed
    assert right.error is None and right.reward == 1.0
    assert right.trajectory is not None and right.trajectory.rewards == {"reward": 1.0}
    assert unpaid.answer is not None and unpaid.trajectory is not None and unpaid.reward is None
    assert isinstance(unpaid.error, ZeroDivisionError) and unpaid.trajectory.rewards == {}


async def test_a_run_at_its_limit_keeps_its_trajectory() -> None:
    (made,) = await collect(agent_of(limits=Limits(max_turns=1)), ["4"])
    assert isinstance(made.error, LimitReached)
    assert made.trajectory is not None and made.trajectory.rollout().stop_reason == "call"


async def test_what_was_never_sampled_has_no_trajectory() -> None:
    (made,) = await collect(agent_of([fail(RequestFailed("broken"))]), ["4"])
    assert isinstance(made.error, RequestFailed) and made.trajectory is None


async def test_each_episode_has_dependencies_of_its_own() -> None:
    class Game:
        def __init__(self) -> None:
            self.moves: list[int] = []

    def move(context: Context[Game], n: int) -> str:
        """Move."""
        context.deps.moves.append(n)
        return "Moved."

    def player(messages: Any, tools: Any) -> Item:
        said = str(messages[-1]["content"])
        return say("Done.") if messages[-1]["role"] == "tool" else call("move", n=int(said))

    def reward(episode: Episode[str]) -> float:
        return float(sum(episode.deps.moves))

    agent = Agent(ScriptedEngine(player), [move], trajectories=True)
    made = await collect(agent, ["1", "2"], samples=2, deps=Game, reward=reward)
    assert [each.reward for each in made] == [1, 1, 2, 2]
    assert len({id(each.deps) for each in made}) == 4
    (broken,) = await collect(agent, ["1"], deps=lambda: 1 / 0)
    assert isinstance(broken.error, ZeroDivisionError) and broken.trajectory is None


async def test_seeds_differ_within_a_group() -> None:
    engine = ScriptedEngine(lambda messages, tools: say("Yes."))
    agent = Agent(engine, sampling=Sampling(seed=7), trajectories=True)
    await collect(agent, ["a", "b", "a"], samples=2)
    asked = [(each.messages[0]["content"], each.spec.sampling.seed) for each in engine.sessions]
    assert sorted(asked) == [("a", 7), ("a", 8), ("a", 9), ("a", 10), ("b", 7), ("b", 8)]


async def test_no_more_sessions_than_asked_for_are_under_way() -> None:
    most = now = 0
    turn = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        nonlocal most, now
        now += 1
        most = max(most, now)
        turn.set()
        for _ in range(20):
            await asyncio.sleep(0)
        now -= 1
        return "Waited."

    def waiter(messages: Any, tools: Any) -> Item:
        return say("Done.") if messages[-1]["role"] == "tool" else call("wait")

    agent = Agent(ScriptedEngine(waiter), [wait], trajectories=True)
    made = await collect(agent, ["a", "b", "c"], samples=3, concurrency=2)
    assert most == 2 and len(made) == 9 and turn.is_set()


async def test_what_is_wrong_is_told() -> None:
    agent = agent_of()
    with pytest.raises(UsageError, match=r"an agent that records: .* got trajectories=False"):
        await collect(Agent(ScriptedEngine(model)), ["4"])
    with pytest.raises(UsageError, match="samples must be a whole number from 1, got 0"):
        await collect(agent, ["4"], samples=0)
    with pytest.raises(UsageError, match=r"concurrency must be a whole number from 1, got 1\.5"):
        await collect(agent, ["4"], concurrency=1.5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="takes a list of prompts, got the text 'Hi'"):
        await collect(agent, "Hi")
    with pytest.raises(UsageError, match="nothing to collect"):
        await collect(agent, [])


async def test_episodes_run_while_others_are_taken() -> None:
    """A slow one holds nobody up; what is not waited for comes later, with all its tokens."""
    slow = asyncio.Event()

    async def waits(episode: Episode[str]) -> float:
        if str(episode.prompt) == "1":
            await slow.wait()
        return 1.0

    prompts = map(str, itertools.count(1))
    async with collecting(agent_of(), prompts, concurrency=3, reward=waits) as episodes:
        first = await episodes.take(5)
        assert "1" not in {each.prompt for each in first} and len(first) == 5
        slow.set()
        seen = [*first]
        while "1" not in {each.prompt for each in seen}:
            seen += await episodes.take(1)
        assert all(each.reward == 1.0 and each.trajectory is not None for each in seen)
        assert len({each.prompt for each in seen}) == len(seen)


async def test_the_last_take_returns_what_is_left() -> None:
    agent = agent_of(sampling=Sampling(seed=5))
    async with collecting(agent, ["4", "5"], samples=2, concurrency=8) as episodes:
        assert len(await episodes.take(3)) == 3
        assert len(await episodes.take(3)) == 1
        assert await episodes.take(3) == []
        with pytest.raises(UsageError, match="count must be a whole number from 1, got 0"):
            await episodes.take(0)


async def test_what_is_unfinished_at_the_end_is_cancelled() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def never(episode: Episode[str]) -> float:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return 0.0

    async with collecting(agent_of(), ["4"], reward=never):
        await begun.wait()
    assert ended.is_set()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"prompts": "Hi."}, "collecting takes a list of prompts, got the text 'Hi.'"),
        ({"samples": 0}, "samples must be a whole number from 1, got 0"),
        ({"agent": Agent(ScriptedEngine([]))}, "collecting needs an agent that records"),
    ],
)
async def test_collecting_says_what_is_wrong(given: dict[str, Any], said: str) -> None:
    arguments: dict[str, Any] = {"agent": agent_of(), "prompts": ["4"], **given}
    with pytest.raises(UsageError, match=said):
        async with collecting(**arguments):
            pass


async def test_only_vllms_weights_can_be_changed(tmp_path: Path) -> None:
    engine = ScriptedEngine(["Hi."])
    with pytest.raises(UsageError, match="only its weights can be changed"):
        await update_weights(engine, tmp_path, "1")
    with pytest.raises(UsageError, match=r"the folder of a checkpoint, got .*none"):
        await update_weights(engine, tmp_path / "none", "1")
    for given, said in (
        ({"version": 1}, "version must be a text that names the weights, got 1"),
        ({"version": "1", "kv": "stale"}, "kv must be one of recompute, keep, got 'stale'"),
    ):
        arguments: dict[str, Any] = given
        with pytest.raises(UsageError, match=said):
            async with updating(engine, **arguments):
                pass
