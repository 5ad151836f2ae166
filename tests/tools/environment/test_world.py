import asyncio
import re
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from caesura.tools.context import ToolRun
from caesura.tools.environment import tool as tool_module
from tests.kit.processes import gone, started
from tests.kit.waiting import until
from tests.tools.environment.playing import FROZEN_LAKE, Player, opened, processes

pytestmark = pytest.mark.timeout(120)
ODD = {"backend": "gymnasium", "id": "odd_worlds:Odd"}


@pytest.fixture(autouse=True)
def odd_worlds(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    monkeypatch.setattr(tool_module, "_check", lambda options: None)  # `test_setup.py` has it


async def it_hangs(directory: Path) -> None:
    await until((directory / "hangs").exists)


def pid_in(text: str) -> int:
    found = re.search(r"process (\d+)", text)
    assert found
    return int(found[1])


async def test_a_game_from_its_start_to_its_end(tmp_path):
    async with opened(tmp_path, **FROZEN_LAKE) as tool:
        player = Player(tool)
        begun = await player.do("reset")
        assert begun.startswith("[red S]FFF\n")
        assert "Your task is to: " in begun
        assert begun.endswith("\nYou can: left, down, right, up")
        assert "F[red F]FH" not in await player.do("Down.")
        for action in ("down", "right", "right", "down"):
            await player.do(action)
        assert (await player.do("right")).endswith("Reward: 1\nDone: won")
        assert '"reset"' in await player.do("left")
        assert (await player.do("restart")).startswith("[red S]FFF\n")
        await player.leave()


async def test_an_action_without_a_game_starts_one_and_says_so(tmp_path):
    async with opened(tmp_path, **ODD) as tool:
        player = Player(tool)
        first = await player.do("win")
        assert first.startswith("No game was under way: this one starts now.\ngame 0 in process")
        assert (await player.do("win")).endswith("Done: won")
        await player.leave()


async def test_a_game_ends_when_the_steps_are_used_up(tmp_path):
    async with opened(tmp_path, **ODD, max_steps=2) as tool:
        player = Player(tool)
        await player.do("reset")
        assert (await player.do("hello")).endswith(
            "\nYou can: write a text of up to 300 characters"
        )
        assert (await player.do("hello")).endswith("All 2 steps are used up.\nDone: lost")
        await player.do("reset")
        assert "Done" not in await player.do("hello")
        assert (await player.do("lose")).endswith("Done: lost")
        await player.leave()


async def test_sessions_play_at_the_same_time_each_in_a_process_of_its_own(tmp_path):
    async with opened(tmp_path, **ODD) as tool:
        players = [Player(tool) for _ in range(3)]
        begun = await asyncio.gather(*(player.do("reset") for player in players))
        assert {text[:6] for text in begun} == {"game 0", "game 1", "game 2"}
        pids = [pid_in(text) for text in begun]
        assert len(set(pids)) == 3
        await players[0].leave()
        assert await gone(pids[:1])
        assert set(pids[1:]) <= started()
        assert "you said hello" in await players[1].do("hello")
        await asyncio.gather(*(player.leave() for player in players))
        assert await gone(pids)


async def test_calls_of_one_turn_are_done_in_their_order(tmp_path):
    async with opened(tmp_path, **ODD) as tool:
        player = Player(tool)
        results = await asyncio.gather(*map(player.start, ["reset", "one", "two", "win"]))
        assert [each.content.split("\n")[0][:12] for each in results[1:]] == [
            "you said one",
            "you said two",
            "over",
        ]
        await player.leave()


async def test_when_all_environments_are_taken_the_model_is_told(tmp_path):
    async with opened(tmp_path, **ODD, max_environments=1) as tool:
        first, second = Player(tool), Player(tool)
        await first.do("reset")
        refused = await second.start("reset")
        assert refused.error == "failed"
        assert "all 1 environments are in use" in refused.content
        await first.leave()
        assert (await second.do("reset")).startswith("game 1 in process")
        await second.leave()


async def test_spares_are_made_again_and_not_too_many(tmp_path):
    before = started()
    async with opened(tmp_path, **ODD, spares=2) as tool:
        assert started() == before  # no process starts before a session plays
        player, other = Player(tool), Player(tool)
        await player.do("reset")
        assert await processes(3, before)
        await other.do("reset")
        assert await processes(4, before)
        await player.leave()
        assert await processes(3, before)
        await other.leave()
        assert await processes(2, before)


async def test_a_spare_that_died_is_not_handed_out(tmp_path):
    before = started()
    async with opened(tmp_path, **ODD, spares=1) as tool:
        player, other = Player(tool), Player(tool)
        pid = pid_in(await player.do("reset"))
        assert await processes(2, before)
        spares = started() - before - {pid, psutil.Process(pid).ppid()}
        for spare in spares:
            psutil.Process(spare).kill()
        assert await gone(spares)
        await asyncio.sleep(0.1)  # in which the event loop hears of it
        assert (await other.do("reset")).startswith("game 1 in process")
        await asyncio.gather(player.leave(), other.leave())


async def test_a_call_that_takes_too_long_loses_the_game(tmp_path):
    async with opened(tmp_path, **ODD, kwargs={"mark": str(tmp_path)}) as tool:
        player = Player(tool)
        pid = pid_in(await player.do("reset"))
        short = Player(replace(tool, timeout_seconds=0.2), ToolRun(player.dispatcher.scope))
        timed_out = await short.start("hang")
        assert timed_out.error == "timeout"
        assert await gone([pid])
        told = await player.start("hello")
        assert told.error == "failed"
        assert 'lost with its process: "reset" starts a new one' in told.content
        assert pid_in(await player.do("reset")) != pid
        assert "you said hello" in await player.do("hello")
        await asyncio.gather(player.leave(), short.leave())


@pytest.mark.parametrize("action, reason", [("exit", "ended"), ("fail", "out of order")])
async def test_a_game_that_breaks_down(tmp_path, action, reason):
    async with opened(tmp_path, **ODD, max_environments=1) as tool:
        player = Player(tool)
        pid = pid_in(await player.do("reset"))
        told = await player.start(action)
        assert told.error == "failed"
        assert reason in told.content
        assert '"reset" starts a new one' in told.content
        assert await gone([pid])
        assert pid_in(await player.do("reset")) != pid  # its place is free again
        await player.leave()


async def test_a_session_that_ends_while_its_game_hangs(tmp_path):
    async with opened(tmp_path, **ODD, kwargs={"mark": str(tmp_path)}) as tool:
        player = Player(tool)
        pid = pid_in(await player.do("reset"))
        await player.do("start")
        below = started()
        hanging = player.start("hang")
        await it_hangs(tmp_path)
        await player.leave()
        assert (await hanging).error == "cancelled"
        assert await gone([pid])
        assert len(below - started()) >= 2  # what the game had started is gone too


async def test_a_session_that_ends_while_its_game_is_made(tmp_path):
    before = started()
    async with opened(tmp_path, **ODD, max_environments=1, spares=0) as tool:
        for _ in range(3):
            player = Player(tool)
            starting = player.start("reset")
            await asyncio.sleep(0)
            await player.leave()
            assert (await starting).error == "cancelled"
        # The worker being started is for the next caller.
        player = Player(tool)
        assert "in process" in await player.do("reset")
        assert await processes(1, before)
        await player.leave()


async def test_a_session_that_ends_during_a_reset(tmp_path):
    (tmp_path / "slow").touch()
    async with opened(tmp_path, **ODD, kwargs={"mark": str(tmp_path)}) as tool:
        player = Player(tool)
        resetting = player.start("reset")
        await it_hangs(tmp_path)
        await player.leave()
        assert (await resetting).error == "cancelled"


async def test_tools_closed_while_a_session_plays(tmp_path):
    player = None
    async with opened(tmp_path, **ODD) as tool:
        player = Player(tool)
        await player.do("reset")
    told = await player.start("hello")
    assert told.error == "failed"
    assert "are closed" in (await player.start("reset")).content
    await player.leave()


async def test_long_observations_are_cut(tmp_path):
    async with opened(tmp_path, **ODD) as tool:
        player = Player(tool)
        await player.do("reset")
        told = await player.do("long")
        assert len(told) < 3000
        assert told.endswith("\nYou can: write a text of up to 300 characters")
        assert (await player.do("listed")).endswith("\nYou can: north, south")
        await player.leave()


async def test_discrete_actions_by_the_environments_own_names(tmp_path):
    async with opened(tmp_path, backend="gymnasium", id="odd_worlds:Numbers") as tool:
        player = Player(tool)
        assert await player.do("reset") == "[0.0, 0.0]\nYou can: Stay, Go, Stop"
        assert await player.do("go") == "[2.0, 2.0]\nReward: 0.5\nYou can: Stay, Go, Stop"
        assert await player.do("fly") == "Nothing happens.\nYou can: Stay, Go, Stop"
        assert await player.do("Stop") == "[3.0, 3.0]\nReward: 0.5\nDone: won"
        await player.leave()


async def test_the_taxi_works_as_it_is(tmp_path):
    async with opened(tmp_path, backend="gymnasium", id="Taxi-v4") as tool:
        player = Player(tool)
        begun = await player.do("reset")
        assert "[yellow " in begun and "[blue " in begun and "[magenta " in begun
        allowed = begun.partition("You can: ")[2].split(", ")
        assert set(allowed) < {"south", "north", "east", "west", "pick up", "drop off"}
        assert "Reward: -1\n" in await player.do(allowed[0])
        await player.leave()


async def test_the_cliff_works_as_it_is(tmp_path):
    async with opened(tmp_path, backend="gymnasium", id="CliffWalking-v1") as tool:
        player = Player(tool)
        await player.do("reset")
        for action in ["up", *["right"] * 11]:
            assert "You can: up, right, down, left" in await player.do(action)
        assert (await player.do("down")).endswith("Done: won")
        await player.leave()


@pytest.fixture(scope="module")
async def lake(tmp_path_factory):
    async with opened(tmp_path_factory.mktemp("lake"), **FROZEN_LAKE, max_steps=10**6) as tool:
        player = Player(tool)
        await player.do("reset")
        yield player
        await player.leave()


@given(
    action=st.text() | st.text(st.characters(categories=["Cc", "Cs", "Zl"])) | st.just("x" * 10**5)
)
@examples(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
async def test_any_text_is_an_action(lake, action):
    told = await lake.start(action)
    assert told.error is None
    assert told.content.splitlines()[-1].startswith(("You can: ", "Done: "))
