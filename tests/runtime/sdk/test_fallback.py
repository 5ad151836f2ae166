"""Models that stand in for each other: a run goes on, and makes no call twice."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from caesura import (
    Agent,
    ContextOverflow,
    EngineFailed,
    Limits,
    Prices,
    RequestAborted,
    RequestFailed,
    ScriptedEngine,
    UsageError,
)
from caesura.runtime.events import ModelChanged, OutputWritten, RunEnded, RunEvent, TurnEnded
from caesura.runtime.sdk import fallback
from caesura.runtime.testing import Item, call, calls, fail, say

pytestmark = pytest.mark.timeout(120)


class Work:
    """A tool that counts its calls."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def work(self, text: str) -> str:
        """Work."""
        self.made.append(text)
        return f"did {text}"


@pytest.fixture
def work() -> Work:
    return Work()


def engines(*scripts: Sequence[Item]) -> list[ScriptedEngine]:
    return [ScriptedEngine(each, model=f"model-{n}") for n, each in enumerate(scripts)]


async def streamed(agent: Agent[Any, Any]) -> list[RunEvent]:
    return [event async for event in agent.stream("Go.")]


async def test_a_run_goes_on_from_its_history_with_the_next_model(work: Work) -> None:
    first, second = engines([call("work", text="a"), fail(EngineFailed("killed"))], [say("Done.")])
    events = await streamed(Agent([first, second], [work.work], instructions="Work."))
    assert work.made == ["a"]
    changes = [event for event in events if isinstance(event, ModelChanged)]
    assert changes == [ModelChanged("model-1", "killed")]
    assert isinstance(events[-1], RunEnded) and events[-1].text == "Done."
    assert events[-1].usage.turns == 2
    [fed] = second.sessions[0].turns
    assert [each["role"] for each in fed] == ["system", "user", "assistant", "tool"]
    assert fed[3]["content"] == "did a"
    assert second.sessions[0].spec == first.sessions[0].spec
    assert first.open_sessions == second.open_sessions == 0


async def test_what_was_written_of_a_turn_is_void(work: Work) -> None:
    first, second = engines([fail(EngineFailed("killed"), "It is")], [say("It was.")])
    agent = Agent([first, second])
    async with agent.session() as session:
        answer = await session.run("Go.")
        assert answer.text == "It was."
        assert [each["content"] for each in session.messages] == ["Go.", "It was."]


async def test_calls_of_a_turn_that_broke_are_made_once(work: Work) -> None:
    async def pace(event: Any) -> None:
        if isinstance(event, TurnEnded):
            raise EngineFailed("killed")

    script = [calls(call("work", text="a"), call("work", text="b"))]
    first = ScriptedEngine(script, pace=pace)
    [second] = engines([say("Done.")])
    events = await streamed(Agent([first, second], [work.work]))
    assert sorted(work.made) == ["a", "b"]
    assert isinstance(events[-1], RunEnded) and events[-1].text == "Done."
    assert [each["role"] for each in second.sessions[0].turns[0]] == [
        *("user", "assistant", "tool", "tool")
    ]
    assert sum(isinstance(event, ModelChanged) for event in events) == 1


async def test_a_model_that_does_not_start_is_left_out_for_a_while() -> None:
    asked: list[str] = []

    async def away() -> Any:
        asked.append("away")
        raise EngineFailed("no route")

    [engine] = engines([say("a"), say("b"), say("c")])

    async def here() -> Any:
        return engine

    now = [0.0]
    made = fallback.FallbackEngine([away, here], lambda: now[0])
    agent = Agent(made)
    await made.begin()
    assert (await agent.run("Go.")).text == "a"
    await made.begin()
    assert asked == ["away"]
    now[0] += fallback.REST_SECONDS
    await made.begin()
    assert asked == ["away"] * 2
    assert made.model == engine.model


@pytest.mark.parametrize(
    ("error", "goes_on"),
    [
        (EngineFailed("killed"), True),
        (RequestFailed("the server failed"), True),
        (RequestAborted("paused by its operator"), False),
        (UsageError("no such adapter"), False),
    ],
)
async def test_what_counts_as_a_failure(error: Exception, goes_on: bool) -> None:
    agent = Agent(engines([fail(error)], [say("Done.")]))
    if goes_on:
        assert (await agent.run("Go.")).text == "Done."
    else:
        with pytest.raises(type(error), match=str(error)):
            await agent.run("Go.")


@pytest.mark.parametrize(("window", "goes_on"), [(4096, True), (64, False)])
async def test_a_longer_window_takes_what_overflows(window: int, goes_on: bool) -> None:
    first = ScriptedEngine([say("Never.")], context_tokens=64)
    second = ScriptedEngine([say("Done.")], context_tokens=window)
    agent, prompt = Agent([first, second]), "word " * 100
    if goes_on:
        assert (await agent.run(prompt)).text == "Done."
    else:
        with pytest.raises(ContextOverflow):
            await agent.run(prompt)


async def test_the_last_models_error_is_raised() -> None:
    agent = Agent(engines([fail(EngineFailed("one"))], [fail(EngineFailed("two"))]))
    with pytest.raises(EngineFailed, match="two"):
        await agent.run("Go.")


async def test_a_session_stays_with_the_model_that_works() -> None:
    first, second = engines([say("a"), fail(EngineFailed("killed"))], [say("b"), say("c")])
    async with Agent([first, second]).session() as session:
        texts = [(await session.run("Go.")).text for _ in range(3)]
    assert texts == ["a", "b", "c"]
    assert [len(each) for each in second.sessions[0].turns] == [3, 1]


async def test_a_typed_answer_is_written_again_as_a_whole() -> None:
    first, second = engines([fail(EngineFailed("killed"), "[1, 2")], [say("[3]")])
    agent = Agent([first, second], output=list[int])
    written = [each for each in await streamed(agent) if isinstance(each, OutputWritten)]
    assert written[-1].output == [3] and written[-1].complete
    assert [1, 2, 3] not in [each.value for each in written]


async def test_the_history_is_paid_for_at_the_next_model() -> None:
    """The second model computes the whole history, once."""
    first, second = engines([say("a b"), fail(EngineFailed("killed"))], [say("c")])
    limits = Limits(prices=Prices(prompt=1e6, completion=0))
    async with Agent([first, second], limits=limits).session() as session:
        await session.run("One.")
        answer = await session.run("Two.")
    assert answer.cost == answer.total_usage.prompt_tokens == 4


@pytest.mark.parametrize(
    "made",
    [
        lambda: Agent([]),
        lambda: Agent([ScriptedEngine()], model="other"),
        lambda: Agent(["a", "b"], api_key="k"),
    ],
)
def test_several_models_are_one_list(made: Callable[[], Any]) -> None:
    with pytest.raises(UsageError, match="several models are one list"):
        made()


def test_an_agent_names_its_models() -> None:
    assert "model-0, then model-1" in repr(Agent(engines([], [])))
