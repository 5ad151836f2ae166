"""The spans of a run: which there are, under which, and what they say."""

import asyncio
import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.trace import SpanKind, StatusCode

from caesura.runtime.errors import EngineFailed, LimitReached, UsageError
from caesura.runtime.events import TextDelta
from caesura.runtime.run.limits import Limits
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.testing import ScriptedEngine, call, calls, fail, inline, malformed, say, think
from caesura.runtime.testing.scripted_engine import ScriptedSession
from caesura.runtime.tracing.run import digest_of
from caesura.scheduler.messages import Sampling
from caesura.tools import tool
from caesura.tools.artifacts import Artifact
from caesura.tools.context import current
from caesura.tools.errors import ToolError
from caesura.tools.result import Output, ToolCall
from tests.kit.spans import Spans, facts
from tests.kit.waiting import until


@tool
async def double(n: int) -> int:
    """Double a number."""
    return 2 * n


@tool
async def broken() -> str:
    """Always fail."""
    raise RuntimeError("no such luck")


def agent(spans: Spans, script: Any, tools: Any = (), **options: Any) -> Agent:
    engine = script if isinstance(script, ScriptedEngine) else ScriptedEngine(script, model="m")
    return Agent(engine, tools, tracing=spans.processor, **options)


def error_of(span: ReadableSpan) -> object:
    """The error type, which is there if and only if the status says so."""
    failed = span.status.status_code is StatusCode.ERROR
    assert failed == ("error.type" in facts(span))
    return facts(span).get("error.type")


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    assert span.context is not None and parent.context is not None
    return span.parent is not None and (
        (span.parent.span_id, span.context.trace_id)
        == (parent.context.span_id, parent.context.trace_id)
    )


async def test_a_run_has_a_chat_a_turn_and_a_span_a_call(spans: Spans) -> None:
    script = [calls(call("double", n=1), call("double", n=2)), say("2 and 4.")]
    sampling = Sampling(temperature=0.5, max_tokens=50)
    asked = agent(spans, script, [double], name="doubler", sampling=sampling)
    async with asked.session() as session:
        await session.run("Double 1 and 2.")
        usage = session.usage

    run = spans.one("invoke_agent doubler")
    chats, tools = spans.named("chat m"), spans.named("execute_tool double")
    assert (len(chats), len(tools), len(spans.all)) == (2, 2, 5)
    assert run.parent is None and all(is_child(each, run) for each in (*chats, *tools))
    assert spans.all[-1] is run
    assert (run.kind, chats[0].kind, tools[0].kind) == (
        SpanKind.INTERNAL,
        SpanKind.CLIENT,
        SpanKind.INTERNAL,
    )
    assert {error_of(span) for span in spans.all} == {None}

    said = facts(run)
    conversation = said["gen_ai.conversation.id"]
    assert said == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": "m",
        "gen_ai.agent.name": "doubler",
        "gen_ai.conversation.id": conversation,
        "caesura.request.id": "scripted-1",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": usage.prompt_tokens + usage.cached_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "caesura.appended_tokens": usage.prompt_tokens,
        "caesura.turns": 2,
        "caesura.calls": 2,
    }
    first, second = map(facts, chats)
    assert first["gen_ai.operation.name"] == "chat"
    assert first["gen_ai.response.finish_reasons"] == ("tool_calls",)
    assert second["gen_ai.response.finish_reasons"] == ("stop",)
    assert (first["gen_ai.request.temperature"], first["gen_ai.request.max_tokens"]) == (0.5, 50)
    assert first["gen_ai.response.time_to_first_chunk"] >= 0
    for name, total in (
        ("caesura.appended_tokens", usage.prompt_tokens),
        ("gen_ai.usage.cache_read.input_tokens", usage.cached_tokens),
        ("gen_ai.usage.output_tokens", usage.completion_tokens),
    ):
        assert first[name] + second[name] == total
    assert {facts(each)["gen_ai.tool.call.id"] for each in tools} == {"call_1", "call_2"}
    assert facts(tools[0]) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "double",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": facts(tools[0])["gen_ai.tool.call.id"],
        "gen_ai.conversation.id": conversation,
        "caesura.tool.call_digest": facts(tools[0])["caesura.tool.call_digest"],
        "caesura.tool.attempts": 1,
    }


async def test_equal_calls_have_equal_digests(spans: Spans) -> None:
    """Of the arguments only a digest is told, whatever their order and white space."""
    same = [ToolCall("a", "f", '{"x": 1, "y": [2]}'), ToolCall("b", "f", '{"y":[2],"x":1}')]
    others = [
        ToolCall("c", "f", '{"x": 2}'),
        ToolCall("d", "g", '{"x": 2}'),
        ToolCall("e", "f", "{"),
    ]
    assert len({digest_of(each) for each in same}) == 1
    assert len({digest_of(each) for each in [*same, *others]}) == 4
    await agent(spans, [call("double", n=4), call("double", n=4), say("8")], [double]).run("?")
    first, second = map(facts, spans.named("execute_tool"))
    assert first["caesura.tool.call_digest"] == second["caesura.tool.call_digest"]
    assert "4" not in str({name for name in first if "arguments" in name})


async def test_the_input_of_a_turn_counts_the_cached_context(spans: Spans) -> None:
    await agent(spans, [call("double", n=4), say("8")], [double]).run("Double 4.")
    first, second = map(facts, spans.named("chat"))
    held = first["gen_ai.usage.input_tokens"] + first["gen_ai.usage.output_tokens"]
    assert first["gen_ai.usage.input_tokens"] == first["caesura.appended_tokens"]
    assert second["gen_ai.usage.cache_read.input_tokens"] == held
    assert second["gen_ai.usage.input_tokens"] == held + second["caesura.appended_tokens"]


async def test_the_input_of_a_sessions_second_run_has_the_first(
    spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    async with agent(spans, [say("A"), say("B")]).session() as session:
        await session.run("a")
        await session.run("b")
    told = [json.loads(facts(span)["gen_ai.input.messages"]) for span in spans.named("chat")]
    said = [[each["parts"][0]["content"] for each in messages] for messages in told]
    assert said == [["a"], ["a", "A", "b"]]
    assert facts(spans.named("invoke_agent")[1])["gen_ai.input.messages"] == json.dumps(told[1])


async def test_a_resumed_turn_tells_of_its_pause(spans: Spans) -> None:
    await agent(spans, [call("double", n=4), say("8")], [double]).run("Double 4.")
    first, second = map(facts, spans.named("chat"))
    assert not [name for name in first if name.startswith("caesura.pause")]
    told = {name: second[name] for name in second if name.startswith("caesura.pause")}
    assert told.pop("caesura.pause.handling") == "preserve"
    held = first["gen_ai.usage.input_tokens"] + first["gen_ai.usage.output_tokens"]
    assert told == {
        "caesura.pause.seconds": 0.0,
        "caesura.pause.queue_seconds": 0.0,
        "caesura.pause.context_tokens": held,
        "caesura.pause.cached_tokens": held,
        "caesura.pause.loaded_tokens": 0,
    }


async def test_the_runs_of_a_session_are_one_conversation(spans: Spans) -> None:
    async with agent(spans, [say("A"), say("B")]).session() as session:
        await session.run("a")
        await session.run("b")
    one, two = spans.named("invoke_agent")
    assert one.name == "invoke_agent m"
    assert facts(one)["gen_ai.conversation.id"] == facts(two)["gen_ai.conversation.id"]
    assert one.context is not None and two.context is not None
    assert one.context.trace_id != two.context.trace_id


async def test_calls_in_mid_sentence_and_malformed_ones(spans: Spans) -> None:
    script = [
        inline("It is ", "double", n=2),
        calls(malformed("<tool_call>{oops", "no JSON", "double")),
        say("done"),
    ]
    await agent(spans, script, [double]).run("Go.")
    assert len(spans.named("chat")) == 3
    assert facts(spans.one("invoke_agent"))["caesura.calls"] == 2
    assert error_of(spans.one("execute_tool double")) is None  # the malformed one never ran
    (event,) = spans.named("chat")[1].events
    assert event.name == "caesura.call_malformed"
    assert dict(event.attributes or {}) == {"gen_ai.tool.name": "double"}


async def test_a_turn_tells_when_its_tokens_went_to_the_engine(
    spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that renders tells when it had done so; of others the time is not known."""
    await agent(spans, [say("Hello.")]).run("Hi.")
    assert not spans.named("chat")[0].events
    monkeypatch.setattr(ScriptedSession, "sent_at", 1234.5, raising=False)
    await agent(spans, [say("Hello.")]).run("Hi.")
    (event,) = spans.named("chat")[1].events
    assert (event.name, event.timestamp) == ("caesura.request_sent", 1_234_500_000_000)


async def test_a_turn_tells_how_many_of_its_tokens_were_thought(spans: Spans) -> None:
    script = [think("Four and four.", say("Eight, surely.")), say("Yes.")]
    first = await agent(spans, script, [double]).run("What is 4 + 4?")
    (turn,) = map(facts, spans.named("chat"))
    assert turn["gen_ai.usage.reasoning.output_tokens"] == first.usage.reasoning_tokens == 3
    assert turn["gen_ai.usage.output_tokens"] == first.usage.completion_tokens > 3


@pytest.mark.parametrize(
    ("made", "error"),
    [
        (call("broken"), "failed"),
        (call("nobody"), "unknown_tool"),
        (call("double", n="many"), "invalid_arguments"),
    ],
)
async def test_a_tool_that_fails_fails_its_own_span_only(
    spans: Spans, made: Any, error: str
) -> None:
    await agent(spans, [made, say("Sorry.")], [double, broken]).run("Go.")
    failed = spans.one("execute_tool")
    assert error_of(failed) == error
    assert failed.status.description is None  # it would be the tool's own words
    assert error_of(spans.one("invoke_agent")) is None
    assert "no such luck" not in spans.text()


async def test_retries_and_files_are_told(spans: Spans) -> None:
    left = [ToolError("not yet"), ToolError("nor now")]
    made = Artifact("0" * 24 + ".png", "image/png", 7, Path("no.png"))

    @tool(retries=2, safe_to_repeat=True)
    async def draw() -> Output:
        """Draw."""
        if left:
            raise left.pop()
        return Output("Saved.", (made,))

    await agent(spans, [call("draw"), say("Here.")], [draw]).run("Draw.")
    span = spans.one("execute_tool draw")
    assert facts(span)["caesura.tool.attempts"] == 3
    assert facts(span)["caesura.tool.artifacts"] == (made.name,)
    events = [(event.name, dict(event.attributes or {})) for event in span.events]
    assert events == [("caesura.retry", {"caesura.retry.error": "failed"})] * 2


async def test_waiting_for_a_person_is_told(spans: Spans, tmp_path: Any) -> None:
    file = tmp_path / "caesura.toml"
    file.write_text(f'[data]\ndirectory = "{tmp_path}"\n')
    script = [call("ask_user", question="Which city?"), say("Oslo.")]

    async def answer(pending: Any) -> str:
        return "Oslo"

    asked = agent(spans, script, ["ask_user"], config=file, on_question=answer)
    async with asked:
        await asked.run("Go.")
    span = spans.one("execute_tool ask_user")
    events = [(event.name, dict(event.attributes or {})) for event in span.events]
    assert events == [
        ("caesura.person.asked", {"caesura.person.kind": "question"}),
        ("caesura.person.settled", {"caesura.person.state": "answered"}),
    ]
    assert facts(span)["caesura.person.seconds"] > 0


async def test_a_dead_engine_fails_the_chat_and_the_run(spans: Spans) -> None:
    with pytest.raises(EngineFailed):
        await agent(spans, [fail(EngineFailed("out of memory"), "I am")]).run("Go.")
    for name in ("chat", "invoke_agent"):
        assert error_of(spans.one(name)) == "EngineFailed"
        assert spans.one(name).status.description == "out of memory"


async def test_a_limit_fails_the_run_and_is_named(spans: Spans) -> None:
    limits = Limits(max_turns=1)
    with pytest.raises(LimitReached):
        await agent(spans, [call("double", n=1)], [double], limits=limits).run("Go.")
    assert error_of(spans.one("invoke_agent")) == "LimitReached"
    assert facts(spans.one("invoke_agent"))["caesura.limit"] == "max_turns"
    assert error_of(spans.one("chat")) is None
    assert error_of(spans.one("execute_tool")) is None


async def test_a_cut_answer_is_no_error(spans: Spans) -> None:
    await agent(spans, [say("one two three")], sampling=Sampling(max_tokens=2)).run("Count.")
    assert facts(spans.one("invoke_agent"))["gen_ai.response.finish_reasons"] == ("length",)
    assert error_of(spans.one("invoke_agent")) is None


async def test_cancelling_a_run_ends_every_span(spans: Spans) -> None:
    entered = asyncio.Event()

    @tool
    async def hang() -> str:
        """Wait for ever."""
        entered.set()
        await asyncio.Event().wait()
        return ""

    script = [calls(call("hang"), call("double", n=1))]
    run = asyncio.create_task(agent(spans, script, [hang, double]).run("Go."))
    await entered.wait()
    await until(lambda: spans.named("chat") and spans.named("execute_tool double"))
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert error_of(spans.one("execute_tool hang")) == "cancelled"
    assert error_of(spans.one("execute_tool double")) is None
    assert error_of(spans.one("chat")) is None  # the turn had ended
    assert error_of(spans.one("invoke_agent")) == "cancelled"


async def test_leaving_the_stream_early_ends_every_span(spans: Spans) -> None:
    async with aclosing(agent(spans, [say("a long story")]).stream("Tell.")) as events:
        async for event in events:
            assert isinstance(event, TextDelta)
            break
    assert error_of(spans.one("chat")) == "cancelled"
    assert error_of(spans.one("invoke_agent")) == "cancelled"
    assert spans.all[-1].name == "invoke_agent m"


async def test_a_call_that_is_cancelled_before_it_begins_has_an_end(spans: Spans) -> None:
    async with aclosing(agent(spans, [call("double", n=1)], [double]).stream("Go.")) as events:
        async for event in events:
            if type(event).__name__ == "CallFinished":
                break  # the call's task has not taken its first step
    assert error_of(spans.one("execute_tool double")) == "cancelled"


async def test_what_a_tool_traces_itself_is_a_child(spans: Spans) -> None:
    provider = TracerProvider()
    provider.add_span_processor(spans.processor)
    own = provider.get_tracer("the tool's own")

    @tool
    async def look() -> str:
        """Look."""
        with own.start_as_current_span("inside the task"):
            return current().headers["traceparent"]

    @tool
    def look_in_a_thread() -> str:
        """Look."""
        with own.start_as_current_span("inside the thread"):
            return "seen"

    script = [calls(call("look"), call("look_in_a_thread")), say("Seen.")]
    async with agent(spans, script, [look, look_in_a_thread]).session() as session:
        answer = await session.run("Go.")
    span = spans.one("execute_tool look")
    assert is_child(spans.one("inside the task"), span)
    assert is_child(spans.one("inside the thread"), spans.one("execute_tool look_in_a_thread"))
    assert span.context is not None
    ids = f"{span.context.trace_id:032x}-{span.context.span_id:016x}"
    assert answer.calls[0][1].content.startswith(f"00-{ids}-0")


async def test_a_run_is_a_child_of_the_callers_span(spans: Spans) -> None:
    provider = TracerProvider()
    provider.add_span_processor(spans.processor)
    engine = ScriptedEngine([say("Hi.")], model="m")
    with provider.get_tracer("app").start_as_current_span("the caller's"):
        await Agent(engine, tracing=provider).run("Hi?")
    assert is_child(spans.one("invoke_agent"), spans.one("the caller's"))


async def test_the_global_provider_is_left_alone(spans: Spans) -> None:
    before = trace.get_tracer_provider()
    await agent(spans, [say("Hi.")]).run("Hi?")
    assert trace.get_tracer_provider() is before


async def test_a_span_that_is_not_sampled_costs_no_content(
    spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    answer = await agent(spans, [call("double", n=1), say("2")], [double]).run("Go.")
    assert answer.text == "2"
    assert spans.all == ()


def test_what_is_no_tracing_is_refused() -> None:
    with pytest.raises(UsageError, match="tracing must be a TracerProvider"):
        Agent(ScriptedEngine([]), tracing="yes")  # type: ignore[call-overload]


async def test_off_leaves_calls_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    @tool
    async def look() -> None:
        """Look at the call."""
        seen.append(current().watch)

    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    off = Agent(ScriptedEngine([call("look"), say("Hi.")]), [look], tracing=False)
    async with off.session() as session:
        await session.run("Hi?")
        assert session._settings.tracing is None
    assert seen == [None]


# -- content -------------------------------------------------------------------------------------


SECRET = "open sesame"


async def secret_run(spans: Spans) -> None:
    @tool
    async def tell(word: str) -> str:
        """Tell."""
        return f"{word} it is"

    script = [calls(call("tell", word=SECRET), text=SECRET), say(f"{SECRET} " * 2000)]
    await agent(spans, script, [tell], instructions="Keep quiet.").run(f"The word is {SECRET}.")


async def test_content_is_not_sent(spans: Spans) -> None:
    await secret_run(spans)
    assert len(spans.all) == 4
    assert SECRET not in spans.text()


async def test_content_is_sent_if_asked_for_and_bounded(
    spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    await secret_run(spans)
    first, second = map(facts, spans.named("chat"))
    system, user = json.loads(first["gen_ai.input.messages"])
    assert system == {"role": "system", "parts": [{"type": "text", "content": "Keep quiet."}]}
    assert user["parts"] == [{"type": "text", "content": f"The word is {SECRET}."}]
    (written,) = json.loads(first["gen_ai.output.messages"])
    assert written["finish_reason"] == "tool_call"
    arguments = json.dumps({"word": SECRET})
    text, made = written["parts"]
    assert text == {"type": "text", "content": SECRET}
    assert (made["type"], made["name"], made["arguments"]) == ("tool_call", "tell", arguments)
    *before, result = json.loads(second["gen_ai.input.messages"])
    assert before == [system, user, {"role": "assistant", "parts": written["parts"]}]
    assert result["parts"][0]["response"] == f"{SECRET} it is"
    (answer,) = json.loads(second["gen_ai.output.messages"])
    assert answer["parts"][0]["content"].startswith(SECRET)
    assert 4096 < len(answer["parts"][0]["content"]) < 4200
    called = facts(spans.one("execute_tool tell"))
    assert called["gen_ai.tool.call.arguments"] == arguments
    assert called["gen_ai.tool.call.result"] == f"{SECRET} it is"
