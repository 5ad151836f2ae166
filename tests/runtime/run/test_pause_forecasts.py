"""Forecasts that tools give of their calls, on their way to the session that is paused."""

import asyncio

import pytest

from caesura.runtime.run.context import RunContext
from caesura.runtime.run.loop import PauseForecasts, run
from caesura.runtime.testing import ScriptedEngine, call, calls, say
from caesura.scheduler.messages import SessionSpec
from caesura.tools import Dispatcher, Registry, Tool, tool
from caesura.tools.context import current

ASK = [{"role": "user", "content": "Go on."}]


async def told(script: list[object], *tools: Tool) -> list[float]:
    """Return the forecasts that the session of a run was told."""
    engine, registry = ScriptedEngine(script), Registry(tools)
    session = engine.open(SessionSpec(registry.specs()))
    events = run(
        session,
        ASK,
        Dispatcher(registry),
        RunContext(registry),
        clock=lambda: 100.0,
    )
    last = [event async for event in events][-1]
    assert last.text == "Done."
    return session.expected_pauses


def foretells(name: str, *seconds: float, after: int = 3) -> Tool:
    @tool(name=name)
    async def foretell() -> str:
        """Say how long this takes."""
        for each in seconds:
            current().expect(each)
        for _ in range(after):
            await asyncio.sleep(0.01)
        return "There."

    return foretell


async def test_a_paused_session_is_told_how_long_its_call_will_last() -> None:
    script = [call("slow"), say("Done.")]
    assert await told(script, foretells("slow", 12.5)) == [12.5]


async def test_a_later_forecast_is_told_too() -> None:
    assert (await told([call("slow"), say("Done.")], foretells("slow", 12.5, 3.0)))[-1] == 3.0


async def test_a_turn_of_several_calls_waits_for_the_last_of_them() -> None:
    script = [calls(call("slow"), call("quick")), say("Done.")]
    forecasts = await told(script, foretells("slow", 12.5), foretells("quick", 1.0))
    assert set(forecasts) == {12.5}


async def test_a_call_without_a_forecast_leaves_the_turn_without_one() -> None:
    script = [calls(call("slow"), call("silent")), say("Done.")]
    assert await told(script, foretells("slow", 12.5), foretells("silent", after=9)) == []


async def test_a_session_that_takes_no_forecast_does_not_delay_the_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def hang(self: object, seconds: float) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("caesura.runtime.testing.ScriptedSession.expect_pause", hang)
    async with asyncio.timeout(60):
        await told([call("slow"), say("Done.")], foretells("slow", 12.5))


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
async def test_an_impossible_forecast_is_the_tools_mistake(seconds: float) -> None:
    engine = ScriptedEngine([call("slow"), say("Done.")])
    registry = Registry([foretells("slow", seconds)])
    session = engine.open(SessionSpec(registry.specs()))
    dispatcher = Dispatcher(registry)
    events = run(session, ASK, dispatcher, RunContext(registry))
    returned = [e.result for e in [event async for event in events] if hasattr(e, "result")]
    assert "expected seconds must be positive and finite" in returned[0].content
    assert session.expected_pauses == []


def test_forecasts_that_have_passed_say_nothing() -> None:
    now = 0.0
    forecasts = PauseForecasts(lambda: now)
    forecasts.take("a", 2.0)
    assert forecasts.left_seconds(["a"]) == 2.0
    now = 2.5
    assert forecasts.left_seconds(["a"]) is None
    assert forecasts.left_seconds([]) is None
