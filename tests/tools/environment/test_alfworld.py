import asyncio
import json
import re

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from caesura.runtime.cli.game import PROMPT, play
from caesura.runtime.run.limits import Limits
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.testing import ScriptedEngine
from caesura.tools.environment.tool import TASK_TYPES
from caesura.tools.tool import Tool
from tests.tools.environment.playing import Player, opened

pytestmark = pytest.mark.timeout(280)


async def played(tool: Tool) -> tuple[str, int]:
    """The last line of a game that the scripted player has played, and the number of its calls."""
    agent = Agent(ScriptedEngine(play, context_tokens=10**6), [tool], limits=Limits(max_turns=60))
    answer = await agent.run(PROMPT)
    assert all(result.error is None for _, result in answer.calls)
    return answer.calls[-1][1].content.splitlines()[-1], len(answer.calls)


@pytest.fixture(scope="module")
async def house(games):
    """One tool for the tests that follow; each session starts the next game."""
    async with opened(games, task_types=["pick_and_place_simple"], games=2) as tool:
        yield tool


async def test_a_game_is_played_to_its_end_by_a_session(house):
    last, calls = await played(house)
    assert last == "Done: won"
    assert 4 < calls < 50


@pytest.fixture(scope="module")
async def player(house):
    """One session for the tests that follow."""
    player = Player(house)
    yield player
    await player.leave()


async def test_what_a_game_shows(player):
    begun = (await player.do("reset")).splitlines()
    assert begun[0].startswith("You are in the middle of a room. Looking quickly around you, you")
    assert re.fullmatch(r"Your task is to: put (a|some) \w+ (in|on) \w+\.", begun[1])
    places = begun[-1].removeprefix("You can: ").split(", ")
    assert len(begun) == 3
    arrived = await player.do(f" {places[0].upper()}. ")
    assert arrived.startswith(f"You arrive at {places[0].removeprefix('go to ')}.")
    nothing = await player.do("fly to the moon")
    assert nothing.startswith("Nothing happens.\nYou can: ")
    assert nothing.splitlines()[1] == arrived.splitlines()[-1]


async def test_games_are_kept_come_again_and_are_won_by_their_walkthroughs(player, games):
    begun = [await player.do("reset") for _ in range(3)]
    assert begun[0] != begun[1]
    assert begun[0] == begun[2]
    kept = [json.loads(path.read_text()) for path in (games / "data").rglob("*.tw-pddl")]
    assert len(kept) == 2
    goal = re.search(r"Your task is to: (.*)\.", begun[2])
    assert goal
    (plan,) = [game["walkthrough"] for game in kept if goal[1] in game["grammar"]]
    shown = [await player.do(action) for action in plan]
    assert all("\nYou can: " in each for each in shown[:-1])
    assert shown[-1].endswith("\nDone: won")


@pytest.mark.parametrize(
    "action", ["go to " + "x" * 10**5, "look\nlook", '"}\n{"id": 1}', "\x00\x1b[2J", "{o.name}"]
)
async def test_hostile_actions(player, action):
    await any_text_is_an_action(player, action)


@given(action=st.text() | st.text(st.characters(categories=["Cc", "Cs", "Zl"])))
@examples(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
async def test_any_text_is_an_action(player, action):
    await any_text_is_an_action(player, action)


async def any_text_is_an_action(player: Player, action: str) -> None:
    told = await player.start(action)
    assert told.error is None
    assert told.content.splitlines()[-1].startswith(("You can: ", "Done: "))


@pytest.mark.slow
async def test_sessions_play_different_games_at_the_same_time(games):
    async with opened(games, max_environments=3, spares=1, games=3) as tool:
        ended = await asyncio.gather(*(played(tool) for _ in range(3)))
    assert [last for last, _ in ended] == ["Done: won"] * 3


@pytest.mark.slow
@pytest.mark.parametrize("task_type", TASK_TYPES)
async def test_games_of_every_kind_can_be_won_by_what_the_tool_says(games, task_type):
    async with opened(games, task_types=[task_type], games=2, seed=1) as tool:
        assert [(await played(tool))[0] for _ in range(2)] == ["Done: won"] * 2


@pytest.mark.slow
async def test_a_game_is_the_same_in_another_process(tmp_path):
    begun = []
    for directory in (tmp_path / "one", tmp_path / "two", tmp_path / "two"):
        async with opened(directory, seed=3, games=1) as tool:
            player = Player(tool)
            begun.append([await player.do(each) for each in ("reset", "look")])
            await player.leave()
        (kept,) = directory.rglob("*.tw-pddl")
        kept.write_text("this is no game any more")
    assert begun[0] == begun[1] == begun[2]


async def test_where_data_cannot_be_kept_games_are_drawn_each_time(tmp_path):
    (tmp_path / "data").write_text("no directory")
    async with opened(tmp_path, task_types=["pick_and_place_simple"]) as tool:
        player = Player(tool)
        assert "Your task is to: " in await player.do("reset")
        await player.leave()
