"""A scripted session goes on from a log, as a real one does."""

from dataclasses import replace

import pytest

from caesura.intercept.calls.events import CallFinished, TurnEnded
from caesura.runtime.testing import ScriptedEngine, call, say, think
from caesura.scheduler.messages import SessionSpec
from caesura.scheduler.session_log import LoggedTurn, MemoryLog

USER = {"role": "user", "content": "Go on then."}
SCRIPT = [think("hm, hm", call("add", a=1, b=2)), say("It is three.")]


async def turns(engine: ScriptedEngine, log: MemoryLog | None) -> list:
    session = engine.open(SessionSpec(), log)
    first = [event async for event in session.turn([USER])]
    call_id = next(event.call_id for event in first if isinstance(event, CallFinished))
    result = {"role": "tool", "tool_call_id": call_id, "name": "add", "content": "3"}
    return [*first, *[event async for event in session.turn([result])]]


def cut(log: MemoryLog, tokens: int) -> list[LoggedTurn]:
    """What a log holds that was lost behind some tokens."""
    kept = []
    for each in log.turns:
        sampled = each.sampled[:tokens]
        whole = len(sampled) == len(each.sampled)
        kept.append(replace(each, sampled=sampled, outcome=each.outcome if whole else None))
        tokens -= len(sampled)
        if not whole or not tokens:
            break
    return kept


async def test_a_log_is_replayed_without_the_script() -> None:
    log = MemoryLog("run")
    undisturbed = await turns(ScriptedEngine(SCRIPT), log)
    assert [each.outcome.paused for each in log.turns if each.outcome] == [True, False]
    assert await turns(ScriptedEngine([]), MemoryLog("run", log.turns)) == undisturbed


@pytest.mark.parametrize("share", [0, 0.1, 0.3, 0.5, 0.6, 0.8, 0.99])
async def test_a_session_goes_on_where_its_log_ends(share: float) -> None:
    log = MemoryLog("run")
    undisturbed = await turns(ScriptedEngine(SCRIPT), log)
    length = sum(len(each.sampled) for each in log.turns)
    kept = cut(log, int(length * share))
    ended = sum(each.outcome is not None for each in kept)
    again = MemoryLog("run", kept)
    events = await turns(ScriptedEngine(SCRIPT[ended:]), again)
    assert events == undisturbed
    assert isinstance(events[-1], TurnEnded)
    assert again.turns == log.turns
