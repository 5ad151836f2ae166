"""Hooks: what they see, and what they refuse, change and end, in turns and in calls."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any

import pytest
from pydantic import BaseModel

from caesura import Agent, Context, End, Hooks, InvalidOutput, Refuse, ScriptedEngine, UsageError
from caesura.intercept.calls.events import Event, TextDelta
from caesura.runtime.events import (
    HookActed,
    OutputRefused,
    RunEnded,
    RunEvent,
    ToolReturned,
    TurnEnded,
)
from caesura.runtime.sdk.hooks import WrittenTurn
from caesura.runtime.testing import Item, call, calls, malformed, say, think
from caesura.tools import tool
from caesura.tools.result import ToolResult

pytestmark = pytest.mark.timeout(120)
Made = Callable[..., Any]


class Pay:
    """A tool that remembers what it paid."""

    def __init__(self) -> None:
        self.paid: list[int] = []

        @tool
        async def pay(euros: int) -> str:
            """Pay somebody."""
            self.paid.append(euros)
            return f"paid {euros}, card 1234"

        self.tool = pay


@pytest.fixture
def pay() -> Pay:
    return Pay()


def hook(**methods: Made) -> Hooks[Any]:
    """Return a hook with these methods, which get no `self`."""
    named = {name: staticmethod(method) for name, method in methods.items()}
    made: Hooks[Any] = type("Guard", (Hooks,), named)()
    return made


async def events_of(
    script: Sequence[Item], tools: Sequence[Any], *hooks: Hooks[Any], **options: Any
) -> tuple[list[RunEvent], tuple[Any, ...], ScriptedEngine]:
    """Return the events of a run, its history, and the engine."""
    engine = ScriptedEngine(script)
    async with Agent(engine, tools, hooks=hooks, **options).session() as session:
        events: list[RunEvent] = [event async for event in session.stream("Go.")]
        messages = session.messages
    assert engine.open_sessions == 0
    return events, messages, engine


def acted(events: Sequence[RunEvent]) -> list[tuple[str, str, str]]:
    return [(e.hook, e.action, e.text) for e in events if isinstance(e, HookActed)]


def end(events: Sequence[RunEvent]) -> RunEnded:
    assert isinstance(events[-1], RunEnded)
    return events[-1]


# -- calls ---------------------------------------------------------------------------------------


async def test_a_hook_refuses_a_call(pay: Pay) -> None:
    guard = hook(before_call=lambda context, arguments: Refuse("Too much."))
    events, messages, _ = await events_of([call("pay", euros=90), say("No.")], [pay.tool], guard)
    [returned] = [event for event in events if isinstance(event, ToolReturned)]
    assert (returned.result.content, returned.result.error) == ("error: Too much.", "refused")
    assert acted(events) == [("Guard.before_call", "refused", "Too much.")]
    [told] = [event for event in events if isinstance(event, HookActed)]
    assert told.call == returned.call and events.index(told) < events.index(returned)
    assert messages[2]["content"] == "error: Too much."
    assert pay.paid == []


async def test_a_hook_changes_arguments_and_a_result(pay: Pay) -> None:
    async def less(context: Context[Any], arguments: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"euros": min(arguments["euros"], 50)}

    def hidden(context: Context[Any], result: ToolResult) -> str:
        return result.content.replace("1234", "****")

    guard = hook(before_call=less, after_call=hidden)
    events, messages, _ = await events_of([call("pay", euros=90), say("Done.")], [pay.tool], guard)
    assert pay.paid == [50]
    assert messages[2]["content"] == "paid 50, card ****"
    assert messages[1]["tool_calls"][0]["function"]["arguments"] == '{"euros": 90}'
    assert [each[1] for each in acted(events)] == ["changed", "changed"]


class Slow(Hooks[str]):
    """An async hook with types, as a user writes one."""

    async def before_run(self, context: Context[str], prompt: Any) -> str | None:
        await asyncio.sleep(0)
        return f"{prompt} I am {context.deps}."

    async def tools(self, context: Context[str]) -> list[str]:
        await asyncio.sleep(0)
        return ["pay"]

    async def after_turn(self, context: Context[str], turn: WrittenTurn) -> End | None:
        await asyncio.sleep(0)
        return End(turn.text.upper()) if turn.ended.reason == "stop" else None


async def test_hooks_may_be_async(pay: Pay) -> None:
    engine = ScriptedEngine([call("pay", euros=1), say("Done.")])
    answer = await Agent(engine, ["clock", pay.tool], hooks=[Slow()]).run("Pay.", deps="Eva")
    assert answer.text == "DONE." and answer.messages[0]["content"] == "Pay. I am Eva."
    assert [each["content"] for each in answer.messages[-2:]] == ["paid 1, card 1234", "DONE."]


async def test_several_hooks_are_asked_in_order_up_to_a_refusal(pay: Pay) -> None:
    seen: list[tuple[str, int]] = []

    def made(name: str, answer: Callable[[int], Any]) -> Hooks[Any]:
        def before(context: Context[Any], arguments: dict[str, Any]) -> Any:
            seen.append((name, arguments["euros"]))
            return answer(arguments["euros"])

        return hook(before_call=before)

    hooks = [
        made("a", lambda euros: {"euros": euros + 1}),
        made("b", lambda euros: None),
        made("c", lambda euros: Refuse("no")),
        made("d", lambda euros: None),
    ]
    await events_of([call("pay", euros=1), say("Done.")], [pay.tool], *hooks)
    assert seen == [("a", 1), ("b", 2), ("c", 2)]
    assert pay.paid == []


async def test_a_refused_result_is_an_error(pay: Pay) -> None:
    guard = hook(after_call=lambda context, result: Refuse("It may not be seen."))
    _, messages, _ = await events_of([call("pay", euros=1), say("Done.")], [pay.tool], guard)
    assert messages[2]["content"] == "error: It may not be seen."


async def test_built_in_tools_and_failures_pass_hooks_too(pay: Pay) -> None:
    before: list[str] = []
    after: list[tuple[str, str | None]] = []
    guard = hook(
        before_call=lambda context, arguments: before.append(context.call.name),
        after_call=lambda context, result: after.append((result.name, result.error)),
    )
    asked = calls(call("calculator", expression="1+1"), call("pay", euros="many"), call("nothing"))
    await events_of([asked, say("Done.")], ["calculator", pay.tool], guard)
    assert before == ["calculator"]
    wanted = [("calculator", None), ("nothing", "unknown_tool"), ("pay", "invalid_arguments")]
    assert sorted(after) == wanted


async def test_a_refused_call_asks_nobody_for_approval() -> None:
    asked: list[Any] = []

    @tool(approval=True)
    def pay(euros: int) -> str:
        """Pay."""
        return f"paid {euros}"

    async def approve(item: Any) -> bool:
        asked.append(item.arguments)
        return True

    def before(context: Context[Any], arguments: dict[str, Any]) -> Any:
        return Refuse("Never.") if arguments["euros"] > 50 else {"euros": arguments["euros"] - 1}

    script: list[Item] = [calls(call("pay", euros=90), call("pay", euros=10)), say("Done.")]
    agent = Agent(
        ScriptedEngine(script), [pay], hooks=[hook(before_call=before)], on_approval=approve
    )
    answer = await agent.run("Go.")
    assert [result.content for _, result in answer.calls] == ["error: Never.", "paid 9"]
    assert asked == ['{"euros": 9}']


async def test_a_hook_ends_the_run_at_a_call(pay: Pay) -> None:
    guard = hook(
        before_call=lambda context, arguments: (
            End("I stop here.") if arguments["euros"] > 50 else None
        )
    )
    script: list[Item] = [calls(call("pay", euros=1), call("pay", euros=90)), say("Still here.")]
    engine = ScriptedEngine(script)
    async with Agent(engine, [pay.tool], hooks=[guard]).session() as session:
        answer = await session.run("Go.")
        assert (answer.text, answer.output, answer.reason) == ("I stop here.",) * 2 + ("stop",)
        assert answer.usage.turns == 1
        roles = [each["role"] for each in session.messages]
        assert roles == ["user", "assistant", "tool", "tool", "assistant"]
        assert session.messages[3]["content"].startswith("error: cancelled")
        assert (await session.run("And now?")).text == "Still here."
    assert len(engine.sessions) == 2
    assert list(engine.sessions[1].turns[0]) == [
        *answer.messages,
        {"role": "user", "content": "And now?"},
    ]


@pytest.mark.parametrize("place", ["before_call", "after_call"])
async def test_an_error_of_a_hook_at_a_call_ends_the_run(pay: Pay, place: str) -> None:
    def broken(*given: Any) -> None:
        raise LookupError("no such rule")

    engine = ScriptedEngine([call("pay", euros=1), say("Never.")])
    agent = Agent(engine, [pay.tool], hooks=[hook(**{place: broken})])
    with pytest.raises(LookupError, match="no such rule") as raised:
        await agent.run("Go.")
    assert raised.value.__notes__ == [f"raised by the hook Guard.{place}"]
    assert engine.open_sessions == 0


async def test_arguments_that_do_not_fit_are_the_hooks_fault(pay: Pay) -> None:
    guard = hook(before_call=lambda context, arguments: {"euros": "many"})
    agent = Agent(ScriptedEngine([call("pay", euros=1)]), [pay.tool], hooks=[guard])
    with pytest.raises(ValueError, match=r"a hook changed the arguments of pay to .*many"):
        await agent.run("Go.")


# -- turns ---------------------------------------------------------------------------------------


async def test_a_guardrail_on_input_ends_the_run_before_the_model() -> None:
    def only_shoes(context: Context[Any], prompt: Any) -> Any:
        return None if "shoes" in prompt else End("I sell shoes.")

    engine = ScriptedEngine([say("Size 40.")])
    async with Agent(engine, hooks=[hook(before_run=only_shoes)]).session() as session:
        assert (await session.run("Tell me a joke.")).text == "I sell shoes."
        assert engine.sessions == []
        assert (await session.run("Which shoes?")).text == "Size 40."
    assert [each["role"] for each in engine.sessions[0].turns[0]] == ["user", "assistant", "user"]


async def test_a_hook_changes_the_prompt() -> None:
    guard = hook(before_run=lambda context, prompt: prompt.replace("4711", "****"))
    events, _, _ = await events_of([say("Fine.")], [], guard)
    assert acted(events) == []  # that prompt has no number
    agent = Agent(ScriptedEngine([say("Fine.")]), hooks=[guard])
    answer = await agent.run("My card is 4711.")
    assert answer.messages[0]["content"] == "My card is ****."


async def test_turns_are_seen_before_and_after(pay: Pay) -> None:
    before: list[list[str]] = []
    after: list[WrittenTurn] = []
    guard = hook(
        before_turn=lambda context, messages: before.append([m["role"] for m in messages]),
        after_turn=lambda context, turn: after.append(turn),
    )
    script: list[Item] = [calls(call("pay", euros=1), text="I pay."), say("Done.")]
    await events_of(script, [pay.tool], guard, instructions="Pay.")
    assert before == [["system", "user"], ["tool"]]
    assert [(turn.text, len(turn.calls), turn.ended.reason) for turn in after] == [
        ("I pay.", 1, "call"),
        ("Done.", 0, "stop"),
    ]


async def test_a_guardrail_on_output_stops_the_model_while_it_writes() -> None:
    def look(context: Context[Any], event: Event) -> Any:
        return (
            End("I may not say it.") if isinstance(event, TextDelta) and "7" in event.text else None
        )

    script: list[Item] = [say("The code is 4711, and that is all that I know of it.")]
    events, messages, _ = await events_of(script, [], hook(on_event=look))
    shown = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert shown == "The code is 4" or "7" not in shown
    assert end(events).text == "I may not say it."
    assert acted(events) == [("Guard.on_event", "ended", "I may not say it.")]
    assert not any(isinstance(event, TurnEnded) for event in events)
    assert [each["content"] for each in messages] == ["Go.", "I may not say it."]


async def test_a_refused_answer_is_written_again() -> None:
    def polite(context: Context[Any], turn: WrittenTurn) -> Any:
        return None if "please" in turn.text else Refuse("Say please.")

    script: list[Item] = [say("Go away."), think("Hm.", say("Go away, please."))]
    events, messages, engine = await events_of(script, [], hook(after_turn=polite))
    assert end(events).text == "Go away, please." and end(events).usage.turns == 2
    assert [each["content"] for each in messages] == [
        "Go.",
        "Go away.",
        "Say please.",
        "Go away, please.",
    ]
    assert [event for event in events if isinstance(event, OutputRefused)] == [
        OutputRefused("Go away.", "Say please.")
    ]
    assert len(engine.sessions) == 1


async def test_an_answer_is_refused_so_often() -> None:
    guard = hook(after_turn=lambda context, turn: Refuse("Again."))
    agent = Agent(ScriptedEngine([say("a"), say("b")]), hooks=[guard], output_retries=1)
    with pytest.raises(InvalidOutput, match="refused all answers in 2 tries: Again") as raised:
        await agent.run("Go.")
    assert raised.value.text == "b"


async def test_a_turn_with_calls_cannot_be_refused(pay: Pay) -> None:
    guard = hook(after_turn=lambda context, turn: Refuse("No."))
    agent = Agent(ScriptedEngine([call("pay", euros=1)]), [pay.tool], hooks=[guard])
    with pytest.raises(UsageError, match="refuse them in before_call"):
        await agent.run("Go.")


async def test_an_error_of_a_hook_at_a_turn_ends_the_run() -> None:
    class Politics(Exception):
        """Somebody talks about politics."""

    def no_politics(context: Context[Any], turn: WrittenTurn) -> None:
        raise Politics

    async with Agent(
        ScriptedEngine([say("Vote!"), say("Hello.")]), hooks=[hook(after_turn=no_politics)]
    ).session() as session:
        with pytest.raises(Politics):
            await session.run("Go.")


class Offer(BaseModel):
    """An offer."""

    euros: int


async def test_the_answer_of_a_hook_is_a_typed_agents_output() -> None:
    guard = hook(before_turn=lambda context, messages: End(Offer(euros=3)))
    answer = await Agent(ScriptedEngine(), output=Offer, hooks=[guard]).run("Go.")
    assert answer.output == Offer(euros=3)
    assert answer.text == '{"euros":3}'


async def test_typed_answers_are_refused_too() -> None:
    def cheap(context: Context[Any], turn: WrittenTurn) -> Any:
        return None if len(turn.text) < 13 else Refuse("Cheaper.")

    script: list[Item] = [say('{"euros": 300}'), say('{"euro": 3}'), say('{"euros": 3}')]
    agent = Agent(ScriptedEngine(script), output=Offer, hooks=[hook(after_turn=cheap)])
    answer = await agent.run("Go.")
    assert answer.output == Offer(euros=3)
    told = [each["content"] for each in answer.messages if each["role"] == "user"]
    assert told[1] == "Cheaper." and told[2].startswith("Your answer does not fit")
    assert answer.usage.turns == 3


async def test_hooks_have_the_dependencies_and_the_usage_of_the_run(pay: Pay) -> None:
    seen: list[tuple[Any, int]] = []
    guard = hook(
        before_turn=lambda context, messages: seen.append((context.deps, context.usage.turns))
    )
    engine = ScriptedEngine([call("pay", euros=1), say("a")])
    await Agent(engine, [pay.tool], hooks=[guard]).run("Go.", deps="Eva")
    assert seen == [("Eva", 0), ("Eva", 1)]


# -- tools by step -------------------------------------------------------------------------------


async def test_a_step_may_call_some_tools_and_the_prompt_stays(pay: Pay) -> None:
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    def by_step(context: Context[Any]) -> list[str] | None:
        return ["look"] if context.usage.turns == 0 else None

    script: list[Item] = [call("look"), call("pay", euros=1), say("Done.")]
    _, _, engine = await events_of(script, [look, pay.tool], hook(tools=by_step))
    [session] = engine.sessions
    assert [each["function"]["name"] for each in session.spec.tools] == ["look", "pay"]
    rules = [each and each.calls and each.calls.names for each in session.samplings]
    assert rules == [("look",), None, None]


async def test_several_choices_of_tools_leave_what_all_allow(pay: Pay) -> None:
    hooks = [
        hook(tools=lambda context: ["pay", "calculator"]),
        hook(tools=lambda context: {"calculator", "clock"}),
    ]
    tools = ["calculator", "clock", pay.tool]
    _, _, engine = await events_of([say("Hi.")], tools, *hooks)
    [sampling] = engine.sessions[0].samplings
    assert sampling is not None and sampling.calls is not None
    assert sampling.calls.names == ("calculator",)


class NoGrammars(ScriptedEngine):
    """An engine that cannot make a turn call only some of its tools."""

    def open(self, spec: Any, log: Any = None) -> Any:
        session = super().open(spec, log)
        turn = session.turn

        async def checked(messages: Any, sampling: Any = None) -> Any:
            if sampling is not None and sampling.calls is not None:
                await session.close()
                raise UsageError("no grammar of this model's calls is known")
            async with aclosing(turn(messages, sampling)) as events:
                async for event in events:
                    yield event

        return type(
            "Checked",
            (),
            {"turn": staticmethod(checked), "close": session.close, "remember": session.remember},
        )()


async def test_where_there_is_no_grammar_calls_are_refused(pay: Pay) -> None:
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    def by_step(context: Context[Any]) -> list[str] | None:
        return ["look"] if context.usage.turns < 2 else None

    script: list[Item] = [
        call("look"),
        call("pay", euros=9),
        call("pay", euros=1),
        say("Done."),
        say("Yes."),
    ]
    engine = NoGrammars(script)
    agent = Agent(engine, [look, pay.tool], hooks=[hook(tools=by_step)])
    async with agent.session() as session:
        answer = await session.run("Go.")
        contents = [result.content for _, result in answer.calls]
        assert contents == [
            "seen",
            "error: pay may not be called now; what may be: look",
            "paid 1, card 1234",
        ]
        assert pay.paid == [1]
        assert (await session.run("And?")).text == "Yes."
    assert len(engine.sessions) == 2  # the one that refused, and the one that went on
    assert engine.open_sessions == 0


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["payy"], "Guard.tools allows an unknown tool 'payy'; did you mean 'pay'"),
        ("pay", "Guard.tools must return names of tools or None, got 'pay'"),
    ],
)
async def test_a_wrong_choice_of_tools_is_an_error(pay: Pay, names: Any, message: str) -> None:
    guard = hook(tools=lambda context: names)
    with pytest.raises(UsageError, match=message):
        await Agent(ScriptedEngine(), [pay.tool], hooks=[guard]).run("Go.")


# -- what is no hook -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "wanted"),
    [
        ("before_run", "a prompt, End or None"),
        ("before_turn", "End or None"),
        ("on_event", "End or None"),
        ("after_turn", "Refuse, End or None"),
        ("before_call", "a dict of arguments, Refuse, End or None"),
        ("after_call", "a text, Refuse, End or None"),
    ],
)
async def test_what_a_hook_may_not_return_is_an_error(pay: Pay, place: str, wanted: str) -> None:
    guard = hook(**{place: lambda *given: 3})
    agent = Agent(ScriptedEngine([call("pay", euros=1), say("a")]), [pay.tool], hooks=[guard])
    with pytest.raises(UsageError, match=f"Guard.{place} must return {wanted}, got 3"):
        await agent.run("Go.")


def test_a_method_that_is_no_hook_is_told() -> None:
    with pytest.raises(TypeError, match=r"Guard.before_tool is no hook: there are before_run,"):
        hook(before_tool=lambda: None)


@pytest.mark.parametrize(
    ("hooks", "message"),
    [
        (hook(), "hooks is a list, got Guard: write hooks="),
        ([print], "is no hook: write a subclass of caesura.Hooks"),
    ],
)
def test_an_agent_takes_hooks_alone(hooks: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Agent(ScriptedEngine(), hooks=hooks)


async def test_a_malformed_call_passes_no_hook(pay: Pay) -> None:
    seen: list[Any] = []
    guard = hook(after_call=lambda context, result: seen.append(result))
    await events_of([malformed("{", "it is cut"), say("Done.")], [pay.tool], guard)
    assert seen == []
