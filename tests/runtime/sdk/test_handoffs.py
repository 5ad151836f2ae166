"""Handoffs: another agent goes on with the conversation, by its own instructions and tools."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from caesura import (
    Agent,
    Context,
    Hooks,
    LimitReached,
    Limits,
    Refuse,
    ScriptedEngine,
    Sessions,
    UsageError,
    tool,
)
from caesura.runtime.events import HandedOff, HookActed, RunEnded, RunEvent
from caesura.runtime.testing import Item, call, calls, say
from caesura.scheduler.messages import Message

pytestmark = pytest.mark.timeout(120)


@tool
def refund(euros: int) -> str:
    """Give money back."""
    return f"refunded {euros}"


def desk(script: Sequence[Item], **options: Any) -> tuple[Agent[Any, Any], ScriptedEngine]:
    """Return an agent that may pass the conversation to two others, all on one script."""
    engine = ScriptedEngine(script)
    billing = Agent(engine, [refund], name="billing", instructions="You do refunds.", **options)
    sales = Agent(engine, name="sales", instructions="You sell.")
    triage = Agent(engine, name="triage", instructions="Find out.", handoffs=[billing, sales])
    return triage, engine


PASS = call("transfer_to_billing")


async def test_another_agent_goes_on_with_its_own_instructions_and_tools() -> None:
    triage, engine = desk([PASS, call("refund", euros=3), say("You get 3 euros.")])
    async with triage.session() as session:
        events: list[RunEvent] = [event async for event in session.stream("I want money back.")]
        messages = session.messages
    [handed] = [event for event in events if isinstance(event, HandedOff)]
    assert (handed.agent, handed.call.name) == ("billing", "transfer_to_billing")
    ended = events[-1]
    assert isinstance(ended, RunEnded)
    assert (ended.text, ended.agent, ended.usage.turns) == ("You get 3 euros.", "billing", 3)
    assert ended.usage.calls == 2 and ended.total_usage == ended.usage
    first, second = engine.sessions
    names = [[each["function"]["name"] for each in s.spec.tools] for s in engine.sessions]
    assert names == [["transfer_to_billing", "transfer_to_sales"], ["refund"]]
    assert [each["role"] for each in second.turns[0]] == ["system", "user", "assistant", "tool"]
    assert second.turns[0][0]["content"] == "You do refunds."
    assert second.turns[0][3]["content"] == "billing goes on with the conversation."
    assert messages[0]["content"] == "You do refunds."
    assert [each["role"] for each in messages].count("system") == 1
    assert first.spec.origin.session == second.spec.origin.session
    assert engine.open_sessions == 0


async def test_the_next_run_is_the_other_agents_too() -> None:
    triage, engine = desk([PASS, say("Billing here."), say("Still billing.")])
    async with triage.session() as session:
        answers = [await session.run("Hello."), await session.run("And?")]
    assert [(each.text, each.agent) for each in answers] == [
        ("Billing here.", "billing"),
        ("Still billing.", "billing"),
    ]
    assert len(engine.sessions) == 2 and len(engine.sessions[1].turns) == 2
    assert [made.name for made, _ in answers[0].calls] == ["transfer_to_billing"]


async def test_an_agent_that_passes_nothing_on_answers_itself() -> None:
    triage, _ = desk([say("I know.")])
    assert (await triage.run("Hello.")).agent == "triage"
    assert (await Agent(ScriptedEngine([say("x")])).run("Hello.")).agent is None


async def test_the_first_of_two_handoffs_counts_and_other_calls_are_made() -> None:
    engine = ScriptedEngine(
        [
            calls(call("refund", euros=1), PASS, call("transfer_to_sales")),
            say("Here."),
        ]
    )
    billing = Agent(engine, name="billing", instructions="Bill.")
    sales = Agent(engine, name="sales", instructions="Sell.")
    triage = Agent(engine, [refund], name="triage", handoffs=[billing, sales])
    answer = await triage.run("Go.")
    assert answer.agent == "billing" and len(answer.calls) == 3
    assert answer.messages[0] == {"role": "system", "content": "Bill."}


async def test_agents_may_pass_it_back() -> None:
    engine = ScriptedEngine([PASS, call("transfer_to_triage"), say("Back again.")])
    billing = Agent(engine, name="billing", instructions="Bill.", handoffs=lambda: [triage])
    triage: Agent[str, Any] = Agent(engine, name="triage", handoffs=[billing])
    answer = await triage.run("Go.")
    assert (answer.text, answer.agent) == ("Back again.", "triage")
    assert answer.messages[0]["role"] == "user"  # the agent has no instructions


@pytest.mark.parametrize("instructions", [None, "Find out."])
@pytest.mark.parametrize("others", [None, "Bill."])
async def test_a_session_in_a_store_goes_on_behind_a_handoff(
    tmp_path: Path, instructions: str | None, others: str | None
) -> None:
    """The agent that opens it goes on; prompts can be forgotten one by one."""
    store = Sessions(tmp_path / "sessions.sqlite")

    def agent(script: Sequence[Item]) -> Agent[Any, Any]:
        engine = ScriptedEngine(script)
        billing = Agent(engine, [refund], name="billing", instructions=others)
        return Agent(engine, name="triage", instructions=instructions, handoffs=[billing])

    script: list[Item] = [say("Hello."), PASS, call("refund", euros=1), say("Done."), say("More?")]
    async with agent(script).session(id="u", store=store) as session:
        for prompt in ("Hi.", "Money!", "And now?"):
            await session.run(prompt)
        told, usage = session.messages, session.usage
    prompts = ["Hi.", "Money!", "And now?"]
    assert [each["content"] for each in told if each["role"] == "user"] == prompts
    assert usage.turns == 5
    heads = [each["content"] for each in told if each["role"] == "system"]
    assert heads == ([] if others is None else [others])
    async with agent([say("Triage here.")]).session(id="u", store=store) as session:
        assert session.messages == told and session.usage == usage
        session.rewind(2)
        assert [each["content"] for each in session.messages][-2:] == ["Hi.", "Hello."]
        answer = await session.run("Back again?")
    assert (answer.text, answer.agent) == ("Triage here.", "triage")


async def test_limits_of_the_run_hold_for_all_who_answer() -> None:
    engine = ScriptedEngine([PASS, call("refund", euros=1), call("refund", euros=1), say("x")])
    billing = Agent(engine, [refund], name="billing")
    triage = Agent(engine, name="triage", handoffs=[billing], limits=Limits(max_turns=2))
    with pytest.raises(LimitReached, match="max_turns=2"):
        await triage.run("Go.")


async def test_each_agent_has_its_own_hooks() -> None:
    class Mine(Hooks[Any]):
        def before_call(self, context: Context[Any], arguments: dict[str, Any]) -> Refuse:
            return Refuse("Not here.")

    triage, _ = desk([PASS, call("refund", euros=3), say("No.")], hooks=[Mine()])
    events = [event async for event in triage.stream("Go.")]
    [acted] = [event for event in events if isinstance(event, HookActed)]
    assert acted.call is not None and acted.call.name == "refund"


async def test_a_refused_handoff_passes_nothing_on() -> None:
    class Nobody(Hooks[Any]):
        def before_call(self, context: Context[Any], arguments: dict[str, Any]) -> Refuse:
            return Refuse("Do it yourself.")

    engine = ScriptedEngine([PASS, say("I do it.")])
    billing = Agent(engine, name="billing")
    triage = Agent(engine, name="triage", handoffs=[billing], hooks=[Nobody()])
    answer = await triage.run("Go.")
    assert (answer.text, answer.agent) == ("I do it.", "triage")


async def test_typed_answers_are_of_the_agent_that_answers() -> None:
    engine = ScriptedEngine([PASS, say("[1]")])
    billing = Agent(engine, name="billing", output=int | str)
    with pytest.raises(UsageError, match="has another output than"):
        Agent(engine, name="triage", output=list[int], handoffs=[billing])
    wanted = list[int]
    billing_too = Agent(engine, name="billing", output=wanted)
    triage = Agent(engine, name="triage", output=wanted, handoffs=[billing_too])
    assert (await triage.run("Go.")).output == [1]


async def test_dependencies_are_checked_for_all_who_may_answer() -> None:
    def look(context: Context[int]) -> str:
        """Look."""
        return str(context.deps)

    engine = ScriptedEngine([PASS, call("look"), say("x")])
    billing = Agent(engine, [look], name="billing")
    triage = Agent(engine, name="triage", handoffs=[billing])
    with pytest.raises(UsageError, match="look needs dependencies of type int"):
        await triage.run("Go.")
    answer = await triage.run("Go.", deps=7)
    assert [result.content for _, result in answer.calls][1] == "7"


async def test_other_models_answer_too() -> None:
    """The other agent has another engine; the conversation is rendered for it."""
    other = ScriptedEngine([say("From elsewhere.")], model="other")
    billing = Agent(other, name="billing")
    triage = Agent(ScriptedEngine([PASS]), name="triage", handoffs=[billing])
    assert (await triage.run("Go.")).text == "From elsewhere."
    assert [each["role"] for each in other.sessions[0].turns[0]] == ["user", "assistant", "tool"]


@pytest.mark.parametrize(
    ("handoffs", "message"),
    [
        ([ScriptedEngine()], "handoffs are agents, got"),
        ([Agent(ScriptedEngine())], "an agent of handoffs needs a name, got None"),
    ],
)
def test_other_handoffs_are_refused(handoffs: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Agent(ScriptedEngine(), handoffs=handoffs)


async def test_the_model_sees_whom_it_may_ask() -> None:
    seen: list[Any] = []

    def model(messages: Sequence[Message], tools: Sequence[Any]) -> Item:
        seen.extend(each["function"] for each in tools)
        return say("x")

    engine = ScriptedEngine(model)
    helper = Agent(engine, name="Fine Wines & Co", instructions="Sell wine.")
    await Agent(engine, handoffs=[helper]).run("Go.")
    assert seen[0]["name"] == "transfer_to_Fine_Wines_Co"
    assert "Sell wine." in seen[0]["description"]


def test_the_example_runs() -> None:
    example = Path(__file__).parents[3] / "examples" / "18_control.py"
    done = subprocess.run(
        [sys.executable, example], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "transfer_to_refunds {} -> refunds goes on with the conversation.",
        "refunds goes on",
        "the model small goes on: the server is away",
        "Guard.after_call changed: 90 euros, paid by card ****",
        'order {"number": 7} -> 90 euros, paid by card ****',
        "Guard.before_call refused: Refunds over 50 euros need a person.",
        'refund {"number": 7, "euros": 90} -> error: Refunds over 50 euros need a person.',
        'refund {"number": 7, "euros": 50} -> 50 euros are on their way to Eva',
        "refunds: 50 euros are on their way, and a person looks at the rest.",
        "5 turns, 4 calls",
        "I help with orders.",
        "refunded: {7: 50}",
    ]
