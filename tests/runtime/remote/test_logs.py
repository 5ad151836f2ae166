"""The log of a session with a server: turns are heard again, and one that was cut goes on."""

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from caesura import Agent, RemoteEngine
from caesura.intercept.calls.events import CallFinished, Event, TextDelta, TurnEnded
from caesura.runtime.testing import call, calls, say
from caesura.scheduler.messages import SessionSpec
from caesura.scheduler.session_log import LoggedTurn, MemoryLog
from tests.kit.waiting import until

Remote = Callable[..., Any]
SPEC = SessionSpec(
    [
        {
            "type": "function",
            "function": {"name": "price", "parameters": {"type": "object", "properties": {}}},
        }
    ]
)
ASKED = [{"role": "user", "content": "Both?"}]
BOTH = calls(call("price", item="lamp"), call("price", item="chair"), text="I look.")


async def conversation(engine: RemoteEngine, log: MemoryLog | None) -> list[list[Event]]:
    """Return the events of two turns: one that calls, and one behind the results."""
    session = engine.open(SPEC, log)
    told = [[event async for event in session.turn(ASKED)]]
    results = [
        {"role": "tool", "tool_call_id": event.call_id, "name": event.name, "content": "24"}
        for event in told[0]
        if isinstance(event, CallFinished)
    ]
    told.append([event async for event in session.turn(results)])
    await session.close()
    return told


def cut(turns: Sequence[LoggedTurn], lines: int) -> list[LoggedTurn]:
    """Return what is left of a log behind some of its lines."""
    kept = []
    for turn in turns:
        whole = bytes(turn.sampled).splitlines(keepends=True)
        sampled = list(b"".join(whole[:lines]))
        ended = lines >= len(whole)
        kept.append(replace(turn, sampled=sampled, outcome=turn.outcome if ended else None))
        lines -= len(whole)
        if not ended:
            break
    return kept


def said(turns: list[list[Event]]) -> list[tuple[str, list[str], list[str]]]:
    return [
        (
            "".join(each.text for each in events if isinstance(each, TextDelta)),
            [each.call_id for each in events if isinstance(each, CallFinished)],
            [each.arguments for each in events if isinstance(each, CallFinished)],
        )
        for events in turns
    ]


async def test_turns_are_heard_again_without_the_server(remote: Remote) -> None:
    engine, script, line = await remote([BOTH, say("83 euros in all.")])
    log = MemoryLog("run")
    told = await conversation(engine, log)
    line.seen.clear()
    again = MemoryLog("run", log.turns)
    assert await conversation(engine, again) == told
    assert again.turns == log.turns and line.seen == []
    script.assert_finished()


async def test_a_turn_that_was_cut_goes_on_and_makes_no_call_again(
    remote: Remote, kind: str
) -> None:
    """Wherever the log was cut. What a server still has, it tells again."""
    answer = say("83 euros in all.")
    engine, script, _ = await remote([BOTH, answer, *([answer] * 20), *([BOTH] * 20)])
    log = MemoryLog("run")
    told = said(await conversation(engine, log))
    length = sum(len(bytes(turn.sampled).splitlines()) for turn in log.turns)
    first = len(bytes(log.turns[0].sampled).splitlines())
    calls_at = [
        at
        for at, line in enumerate(bytes(log.turns[0].sampled).splitlines(), 1)
        if json.loads(line)[0] == "CallFinished"
    ]
    for lines in {calls_at[0], calls_at[1], first - 1, first, first + 1, length - 1, length}:
        again = MemoryLog("run", cut(log.turns, lines))
        found = said(await conversation(engine, again))
        if kind == "another" and lines < calls_at[1]:
            # The server cannot tell the rest, so the turn ends behind the call that it made.
            assert found[0][1:] == (told[0][1][:1], told[0][2][:1])
            continue
        assert found == told
    assert script.sessions[-1].turns


@pytest.mark.parametrize("kind", ["ours"])
async def test_a_response_that_the_server_has_lost_ends_behind_its_calls(
    remote: Remote, kind: str
) -> None:
    engine, _, _ = await remote([BOTH, say("83 euros in all."), say("83 euros in all.")])
    log = MemoryLog("run")
    told = await conversation(engine, log)
    kept = cut(log.turns, len(bytes(log.turns[0].sampled).splitlines()) - 1)
    response = json.loads(bytes(kept[0].sampled).splitlines()[0])[1]
    url = f"{engine.url}/responses/{response}"
    async with aiohttp.ClientSession() as http, http.delete(url) as gone:
        assert gone.status == 200
    again = await conversation(engine, MemoryLog("run", kept))
    assert said(again) == said(told)
    assert again[0][-1] == TurnEnded("call", 0, 0, 0)


@pytest.mark.parametrize("kind", ["ours"])
@pytest.mark.parametrize("calls_first", [True, False])
async def test_a_response_that_was_cancelled_is_not_waited_for(
    remote: Remote, calls_first: bool
) -> None:
    """The turn ends behind its calls; without any it is written again."""
    released = asyncio.Event()
    slow = say("I think it over, word by word.")
    first = calls(call("price"), call("slow")) if calls_first else slow
    engine, script, _ = await remote([first, say("24 euros."), say("24 euros.")])

    heard: list[Any] = []

    async def pace(event: Any) -> None:
        heard.append(event)
        if getattr(event, "name", "") == "slow" or (len(heard) == 3 and not calls_first):
            await released.wait()

    script.pace = pace
    log = MemoryLog("run")
    session = engine.open(SPEC, log)
    wanted = CallFinished if calls_first else TextDelta
    async with aclosing(session.turn(ASKED)) as events:
        async for event in events:
            if isinstance(event, wanted):
                break
    await session.close()
    await until(lambda: script.open_sessions == 0)
    released.set()
    session = engine.open(SPEC, MemoryLog("run", log.turns))
    told = [event async for event in session.turn(ASKED)]
    if calls_first:
        assert told[-1] == TurnEnded("call", 0, 0, 0)
        [made] = [event.call_id for event in told if isinstance(event, CallFinished)]
        result = {"role": "tool", "tool_call_id": made, "name": "price", "content": "24"}
        told = [event async for event in session.turn([result])]
        roles = [message["role"] for message in script.sessions[-1].turns[0]]
        assert roles == ["user", "assistant", "tool"]
    await session.close()
    assert said([told])[0][0] == "24 euros."


async def test_a_branch_is_sent_what_is_new_alone_where_the_server_has_the_rest(
    remote: Remote, kind: str
) -> None:
    engine, script, _ = await remote([say("One."), say("Two."), say("Two.")])
    async with Agent(engine).session() as session:
        await session.run("Next?")
        for branch in session.fork(2):
            async with branch:
                assert (await branch.run("Next?")).text == "Two."
                assert [each["content"] for each in branch.messages] == [
                    *("Next?", "One.", "Next?", "Two.")
                ]
    # The server continues from the tokens of the response before, which it has remembered.
    reports = [each.turns[0] for each in script.sessions[1:]]
    assert len(reports) == 2 and all(len(turn) == 3 for turn in reports)
