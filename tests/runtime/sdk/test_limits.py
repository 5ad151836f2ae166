"""Limits of runs with their sub-agents: requests, calls and money."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from caesura import Agent, LimitReached, Limits, Prices, ScriptedEngine, UsageError
from caesura.runtime.events import RunEnded, ToolReturned, TurnEnded
from caesura.runtime.run.limits import configured_limits
from caesura.runtime.testing import Item, call, calls, say
from caesura.scheduler.messages import Message
from caesura.tools.config.caesura_toml import Config
from caesura.tools.services import SetupError

pytestmark = pytest.mark.timeout(120)
PRICES = Prices(prompt=10.0, completion=100.0, cached=1.0)


def note(text: str) -> str:
    """Note a text."""
    return "noted"


def model(messages: Sequence[Message], tools: Sequence[Any]) -> Item:
    """Let the chief ask its helper twice, and the helper note once."""
    names = [each["function"]["name"] for each in tools]
    if messages[-1]["role"] == "tool":
        return say("All is done.")
    if "helper" in names:
        return calls(call("helper", task="one"), call("helper", task="two"))
    return call("note", text="x")


def agents(limits: Limits, helper_limits: Limits | None = None) -> tuple[Any, ScriptedEngine]:
    engine = ScriptedEngine(model)
    helper = Agent(engine, [note], name="helper", instructions="Help.", limits=helper_limits)
    return Agent(engine, [helper], limits=limits), engine


async def test_an_answer_has_its_own_usage_and_the_total() -> None:
    agent, _ = agents(Limits())
    answer = await agent.run("Go.")
    assert (answer.usage.turns, answer.usage.calls) == (2, 2)
    assert (answer.total_usage.turns, answer.total_usage.calls) == (6, 4)
    assert answer.total_usage.completion_tokens > answer.usage.completion_tokens
    assert answer.cost == 0.0
    [ended] = [event async for event in agent.stream("Go.") if isinstance(event, RunEnded)]
    assert ended.total_usage == answer.total_usage


async def test_a_reached_limit_tells_what_was_used_until_then() -> None:
    agent, _ = agents(Limits(max_requests=3, max_cost=100, prices=PRICES))
    with pytest.raises(LimitReached) as raised:
        await agent.run("Go.")
    error = raised.value
    assert error.limit == "max_requests"
    assert (error.total_usage.turns, error.total_usage.calls) == (3, 4)
    assert error.total_usage.completion_tokens > 0
    assert error.cost > 0


async def test_without_sub_agents_the_total_is_the_usage() -> None:
    answer = await Agent(ScriptedEngine([call("note", text="x"), say("a b")]), [note]).run("Go.")
    assert answer.total_usage == answer.usage


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits(max_requests=5), "more than max_requests=5 turns of all agents"),
        (Limits(max_calls=3), "more than max_calls=3 calls|the max_calls of the run"),
    ],
)
async def test_a_bound_is_one_for_all_agents(limits: Limits, message: str) -> None:
    """Of six turns and four calls the last is too much; the chief is told, or its helper is."""
    agent, engine = agents(limits)
    told = []
    try:
        async for event in agent.stream("Go."):
            if isinstance(event, ToolReturned):
                told.append(event.result.content)
    except LimitReached as reached:
        told.append(str(reached))
    assert any(re.search(message, each) for each in told), told
    assert engine.open_sessions == 0


async def test_as_many_requests_and_calls_as_needed_are_enough() -> None:
    agent, _ = agents(Limits(max_requests=6, max_calls=4))
    assert (await agent.run("Go.")).text == "All is done."


async def test_calls_of_one_run_are_bounded() -> None:
    made: list[str] = []

    def work(text: str) -> str:
        """Work."""
        made.append(text)
        return text

    engine = ScriptedEngine([calls(*(call("work", text=str(n)) for n in range(3))), say("x")])
    with pytest.raises(LimitReached, match="more than max_calls=2 calls") as reached:
        await Agent(engine, [work], limits=Limits(max_calls=2)).run("Go.")
    assert reached.value.limit == "max_calls"
    assert "2" not in made


async def test_a_cost_is_that_of_a_providers_bill() -> None:
    """Each turn pays for its whole context, and less for what is cached of it."""
    engine = ScriptedEngine([call("note", text="x"), say("a b c"), say("d")])
    limits = Limits(prices=PRICES)
    turns: list[TurnEnded] = []
    async with Agent(engine, [note], limits=limits).session() as session:
        costs = []
        for prompt in ("Go.", "Go on."):
            async for event in session.stream(prompt):
                if isinstance(event, TurnEnded):
                    turns.append(event)
                if isinstance(event, RunEnded):
                    costs.append(event.cost)
    held, bills = 0, []
    for turn in turns:
        computed = held + turn.prompt_tokens - turn.cached_tokens
        assert computed >= 0
        bill = 10 * computed + turn.cached_tokens + 100 * turn.completion_tokens
        bills.append(bill / 1e6)
        held += turn.prompt_tokens + turn.completion_tokens
    assert costs == pytest.approx([sum(bills[:2]), bills[2]])


async def test_money_is_spent_by_sub_agents_too() -> None:
    agent, _ = agents(Limits(prices=PRICES))
    alone, _ = agents(Limits(prices=PRICES), Limits(prices=Prices(prompt=0, completion=0)))
    assert (await agent.run("Go.")).cost > (await alone.run("Go.")).cost > 0


async def test_a_run_ends_when_its_money_is_spent() -> None:
    engine = ScriptedEngine([call("note", text="x")] * 9)
    limits = Limits(max_cost=0.001, prices=Prices(prompt=0, completion=200.0))
    with pytest.raises(LimitReached, match=r"more than max_cost=0\.001, the cost of its tokens"):
        await Agent(engine, [note], limits=limits).run("Go.")
    assert len(engine.sessions[0].turns) == 2  # of three tokens each


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: Limits(max_calls=0), "max_calls must be a positive number or None, got 0"),
        (lambda: Limits(max_requests="3"), "max_requests must be a positive number"),  # type: ignore[arg-type]
        (lambda: Limits(max_cost=1.0), r"max_cost=1.0 needs prices=Prices\("),
        (lambda: Limits(prices=3), r"prices must be Prices\(prompt=..., completion=...\), got 3"),  # type: ignore[arg-type]
        (lambda: Prices(prompt=-1, completion=0), "the price prompt must be a number from 0"),
    ],
)
def test_other_bounds_are_refused(made: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        made()


def test_a_configuration_bounds_them_too(tmp_path: Path) -> None:
    file = tmp_path / "caesura.toml"
    file.write_text(
        "[limits]\nmax_calls = 3\nmax_requests = 4\nmax_cost = 0.5\n"
        "prices = { prompt = 1, completion = 2 }\n"
    )
    limits = configured_limits(Config.load(file).limits)
    assert limits == Limits(
        max_calls=3, max_requests=4, max_cost=0.5, prices=Prices(prompt=1, completion=2)
    )
    file.write_text("[limits]\nmax_cost = 0.5\n")
    with pytest.raises(SetupError, match=r"limits.*max_cost needs prices"):
        Config.load(file)
