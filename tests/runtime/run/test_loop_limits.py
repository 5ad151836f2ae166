"""A run's limits: each one raises by name, and nothing is left running."""

import asyncio
from typing import Any, cast

import pytest

from caesura.runtime.errors import LimitReached, UsageError
from caesura.runtime.events import RunEnded, TurnEnded
from caesura.runtime.run.context import RunContext
from caesura.runtime.run.limits import Budget, Limits
from caesura.runtime.run.loop import run
from caesura.runtime.testing import ScriptedEngine, call, say
from caesura.scheduler.messages import Sampling, SessionSpec
from caesura.tools import Dispatcher, Registry, tool

ASK = [{"role": "user", "content": "Go on."}]


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@tool
async def double(n: int) -> int:
    """Double a number."""
    return 2 * n


def start(engine, limits, *, tools=(double,), sampling=Sampling(), **options):  # noqa: B008
    registry = Registry(tools)
    session = engine.open(SessionSpec(sampling=sampling or Sampling()))
    context = RunContext(registry, limits=limits, sampling=sampling)
    return run(session, ASK, Dispatcher(registry), context, **options)


async def drain(events):
    return [event async for event in events]


async def test_max_turns():
    engine = ScriptedEngine(lambda messages, tools: call("double", n=len(messages)))
    with pytest.raises(LimitReached) as reached:
        await drain(start(engine, Limits(max_turns=3)))
    assert reached.value.limit == "max_turns"
    assert "max_turns=3" in str(reached.value)
    assert len(engine.sessions[0].turns) == 3


async def test_a_run_may_use_all_of_its_turns():
    engine = ScriptedEngine([call("double", n=1), say("2")])
    events = await drain(start(engine, Limits(max_turns=2)))
    assert events[-1].text == "2"


async def test_default_is_sixteen_turns():
    engine = ScriptedEngine(lambda messages, tools: call("double", n=1))
    with pytest.raises(LimitReached):
        await drain(start(engine, Limits()))
    assert len(engine.sessions[0].turns) == 16


async def test_max_tokens_lowers_each_turns_sampling():
    engine = ScriptedEngine([call("double", n=1), say("It is 2.")])
    sampling = Sampling(temperature=0.5, max_tokens=8)
    await drain(start(engine, Limits(max_tokens=10), sampling=sampling))
    # The call took 3 tokens: `double`, `{"n":` and `1}`.
    assert engine.sessions[0].samplings == [sampling, Sampling(temperature=0.5, max_tokens=7)]


async def test_text_cut_by_max_tokens_ends_the_run():
    engine = ScriptedEngine([say("one two three four")])
    ended = (await drain(start(engine, Limits(max_tokens=2))))[-1]
    assert isinstance(ended, RunEnded)
    assert (ended.reason, ended.text) == ("length", "one two")


async def test_max_tokens_used_up_by_calls():
    engine = ScriptedEngine([call("double", n=1), say("It is 2.")])
    with pytest.raises(LimitReached) as reached:
        await drain(start(engine, Limits(max_tokens=3)))
    assert reached.value.limit == "max_tokens"


async def test_max_tokens_needs_sampling():
    with pytest.raises(UsageError, match="sampling"):
        await drain(start(ScriptedEngine([say("x")]), Limits(max_tokens=3), sampling=None))


async def test_without_a_token_limit_the_sessions_sampling_stands():
    engine = ScriptedEngine([say("x")])
    session = engine.open(SessionSpec(sampling=Sampling(seed=7)))
    await drain(run(session, ASK, Dispatcher(Registry()), RunContext()))
    assert session.samplings == [Sampling(seed=7)]


async def test_max_seconds_ends_a_waiting_run_and_its_tool():
    entered, cancelled = asyncio.Event(), asyncio.Event()

    @tool
    async def hang() -> None:
        """Hang."""
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    for seconds in (0.05, 0.5, 5.0, 30.0):
        engine = ScriptedEngine([call("hang")])
        with pytest.raises(LimitReached) as reached:
            await drain(start(engine, Limits(max_seconds=seconds), tools=[hang]))
        assert reached.value.limit == "max_seconds"
        if entered.is_set():
            break  # on a busy machine the time may be over before the tool begins
    assert entered.is_set()
    assert cancelled.is_set()


async def test_max_seconds_ends_a_decode_that_hangs():
    async def pace(event):
        await asyncio.Event().wait()

    engine = ScriptedEngine([say("never")], pace=pace)
    with pytest.raises(LimitReached, match=r"max_seconds=0\.05"):
        await drain(start(engine, Limits(max_seconds=0.05)))


async def test_max_seconds_counts_the_consumers_time():
    clock = Clock()
    engine = ScriptedEngine([say("a long enough answer")])
    with pytest.raises(LimitReached):
        async for _ in start(engine, Limits(max_seconds=5), clock=clock):
            clock.now += 3


async def test_max_seconds_counts_over_turns():
    clock = Clock()
    engine = ScriptedEngine([call("double", n=1), say("2")])
    with pytest.raises(LimitReached):
        async for event in start(engine, Limits(max_seconds=5), clock=clock):
            if isinstance(event, TurnEnded):
                clock.now = 5.0


async def test_a_timeout_of_the_engine_is_not_a_limit():
    async def pace(event):
        raise TimeoutError("the engine's own")

    with pytest.raises(TimeoutError, match="the engine's own"):
        await drain(start(ScriptedEngine([say("x")], pace=pace), Limits(max_seconds=60)))


@pytest.mark.parametrize(
    "field", ["max_turns", "max_tokens", "max_seconds", "max_requests", "max_calls", "max_cost"]
)
def test_limits_must_be_positive(field):
    with pytest.raises(UsageError, match=field):
        Limits(**cast(Any, {field: 0}))


def test_no_limits():
    budget = Budget(Limits(None, None, None), Clock())
    for _ in range(100):
        assert budget.begin_turn(None) is None
