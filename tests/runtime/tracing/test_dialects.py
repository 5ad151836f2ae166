"""The spans that leave keep the ingestion rules of Langfuse, Phoenix and Jaeger.

The rules are the tools' documentation, as far as it concerns spans like ours. None of the tools
was run: what is checked is what the rules ask for.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Any, NamedTuple

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from caesura.runtime.receiver import receiver_in
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.testing import ScriptedEngine, call, calls, say, think
from caesura.runtime.tracing.dialects import DIALECTS, VARIABLE, dialects_in
from caesura.runtime.tracing.export import Exports
from caesura.runtime.tracing.tracing import exporter_of, through
from caesura.scheduler.messages import Sampling
from caesura.tools import tool
from tests.runtime.tracing.receivers import Received, http_receiver

LANGFUSE = "https://langfuse.com/integrations/native/opentelemetry#property-mapping"
PHOENIX = "https://github.com/Arize-ai/openinference/blob/main/spec/semantic_conventions.md"
JAEGER = "https://opentelemetry.io/docs/specs/otel/compatibility/"
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"

RUN, TURN, CALL = "invoke_agent", "chat", "execute_tool"
KINDS = (RUN, TURN, CALL)

Facts = dict[str, Any]


class Rule(NamedTuple):
    """What a tool's documentation asks of spans of some kinds."""

    source: str
    says: str
    kinds: tuple[str, ...]
    holds: Callable[[Facts, Span], object]


def is_usage(text: Any) -> bool:
    """Whole numbers by type of usage, in JSON."""
    read = json.loads(text)
    return isinstance(read, dict) and all(
        type(count) is int and count >= 0 for count in read.values()
    )


def in_span(text: Any, span: Span) -> bool:
    """A moment in ISO 8601 with a zone, within the span."""
    at = datetime.fromisoformat(text)
    nanoseconds = at.timestamp() * 1e9
    early, late = span.start_time_unix_nano - 1e6, span.end_time_unix_nano + 1e6
    return at.tzinfo is not None and early <= nanoseconds <= late


RULES = [
    Rule(LANGFUSE, "the type is one of those that are drawn", KINDS, lambda facts, _: facts[
        "langfuse.observation.type"] in ("agent", "generation", "tool")),
    Rule(LANGFUSE, "a session groups traces", KINDS, lambda facts, _: facts["langfuse.session.id"]),
    Rule(LANGFUSE, "the model is the generation's", (TURN,), lambda facts, _: facts[
        "langfuse.observation.model.name"] == "m"),
    Rule(LANGFUSE, "parameters are JSON", (TURN,), lambda facts, _: json.loads(
        facts["langfuse.observation.model.parameters"])["temperature"] == 0.5),
    Rule(LANGFUSE, "usage is JSON of counts", (RUN, TURN), lambda facts, _: is_usage(
        facts["langfuse.observation.usage_details"])),
    Rule(LANGFUSE, "the first token has an ISO time", (TURN,), lambda facts, span: in_span(
        facts["langfuse.observation.completion_start_time"], span)),
    Rule(LANGFUSE, "the trace has a name", (RUN,), lambda facts, _: facts[
        "langfuse.trace.name"] == "payer"),
    Rule(PHOENIX, "every span has a kind in capitals", KINDS, lambda facts, _: facts[
        "openinference.span.kind"] in ("AGENT", "LLM", "TOOL")),
    Rule(PHOENIX, "a session groups traces", KINDS, lambda facts, _: facts["session.id"]),
    Rule(PHOENIX, "an LLM names its system", (TURN,), lambda facts, _: facts["llm.system"]),
    Rule(PHOENIX, "an LLM names its model", (TURN,), lambda facts, _: facts["llm.model_name"]),
    Rule(PHOENIX, "parameters are JSON", (TURN,), lambda facts, _: isinstance(
        json.loads(facts["llm.invocation_parameters"]), dict)),
    Rule(PHOENIX, "total tokens are the sum", (TURN,), lambda facts, _: facts[
        "llm.token_count.total"] == facts["llm.token_count.prompt"] + facts[
        "llm.token_count.completion"] > 0),
    Rule(PHOENIX, "cached tokens are a part of the prompt's", (TURN,), lambda facts, _: facts.get(
        "llm.token_count.prompt_details.cache_read", 0) <= facts["llm.token_count.prompt"]),
    Rule(PHOENIX, "an agent counts no tokens of its turns again", (RUN,), lambda facts, _: not [
        name for name in facts if name.startswith("llm.token_count")]),
    Rule(PHOENIX, "a tool has a name", (CALL,), lambda facts, _: facts["tool.name"] == "pay"),
    Rule(PHOENIX, "an agent has a name", (RUN,), lambda facts, _: facts["agent.name"] == "payer"),
    Rule(PHOENIX, "a value has its type", KINDS, lambda facts, _: all(
        facts[f"{side}.mime_type"] in ("application/json", "text/plain") and facts[f"{side}.value"]
        for side in ("input", "output"))),
    Rule(PHOENIX, "messages are flat and have roles", (TURN,), lambda facts, _: facts[
        "llm.input_messages.0.message.role"] and facts[
        "llm.output_messages.0.message.role"] == "assistant"),
    Rule(JAEGER, "a client's span names its peer", (TURN,), lambda facts, span: span.kind
         == Span.SPAN_KIND_CLIENT and facts["peer.service"] == "vllm"),
    Rule(JAEGER, "other spans are internal and have no peer", (RUN, CALL), lambda facts, span:
         span.kind == Span.SPAN_KIND_INTERNAL and "peer.service" not in facts),
    Rule(JAEGER, "an error is a status", KINDS, lambda facts, span: (
        span.status.code == Status.STATUS_CODE_ERROR) == ("error.type" in facts)),
]  # fmt: skip


@tool
async def pay(amount: int) -> str:
    """Pay."""
    if amount > 100:
        raise RuntimeError("too much")
    return f"paid {amount}"


def facts(span: Span) -> Facts:
    found: Facts = {}
    for each in span.attributes:
        kind = each.value.WhichOneof("value")
        found[each.key] = getattr(each.value, kind) if kind else None
    return found


def of_kind(received: Received, kind: str) -> list[Span]:
    return [span for span in received.spans if facts(span).get("gen_ai.operation.name") == kind]


@pytest.fixture
async def receiver() -> AsyncIterator[Received]:
    async with http_receiver() as received:
        yield received


async def sent(received: Received) -> None:
    """Run an agent, one of whose calls fails, and wait until its spans have been sent."""
    target = receiver_in({"OTEL_EXPORTER_OTLP_ENDPOINT": received.url})
    assert target is not None
    exports = Exports(lambda: exporter_of(target), received.url, {})
    two = calls(call("pay", amount=5), call("pay", amount=900), text="Paying.")
    engine = ScriptedEngine([think("Hm.", two), say("Done.")], model="m")
    sampling = Sampling(temperature=0.5)
    agent = Agent(engine, [pay], tracing=exports, name="payer", sampling=sampling)
    async with agent.session() as session:
        await session.run("Pay both.")
    assert await asyncio.to_thread(exports.force_flush)
    assert exports.dropped == 0
    await asyncio.to_thread(exports.shutdown)


async def test_the_spans_keep_every_rule(
    receiver: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CONTENT, "true")
    through.cache_clear()
    await sent(receiver)
    assert [len(of_kind(receiver, kind)) for kind in KINDS] == [1, 2, 2]
    for rule in RULES:
        for kind in rule.kinds:
            for span in of_kind(receiver, kind):
                said = facts(span)
                assert rule.holds(said, span), f"{rule.source}: {rule.says} ({span.name}: {said})"


async def test_texts_are_those_of_the_conversation(
    receiver: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CONTENT, "true")
    await sent(receiver)
    run = facts(of_kind(receiver, RUN)[0])
    assert "Pay both." in run["input.value"] and "Done." in run["output.value"]
    first, second = sorted(of_kind(receiver, TURN), key=lambda span: span.start_time_unix_nano)
    said = facts(first)
    assert said["llm.input_messages.0.message.content"] == "Pay both."
    assert said["llm.output_messages.0.message.content"] == "Paying."
    at = "llm.output_messages.0.message.tool_calls.1.tool_call.function"
    assert said[f"{at}.name"] == "pay" and json.loads(said[f"{at}.arguments"]) == {"amount": 900}
    answers = facts(second)
    assert answers["llm.input_messages.0.message.content"] == "Pay both."
    assert answers["llm.input_messages.1.message.role"] == "assistant"
    assert answers["llm.input_messages.2.message.role"] == "tool"
    assert answers["llm.input_messages.2.message.content"] == "paid 5"
    paid, refused = sorted(map(facts, of_kind(receiver, CALL)), key=lambda one: one["input.value"])
    assert (paid["input.value"], paid["output.value"]) == ('{"amount": 5}', "paid 5")
    assert refused["langfuse.observation.level"] == "ERROR"


async def test_without_content_no_text_is_sent(receiver: Received) -> None:
    await sent(receiver)
    for span in receiver.spans:
        names = [name for name in facts(span) if ".value" in name or "_messages" in name]
        assert names == [], span.name


async def test_usage_is_told_once_in_langfuse(receiver: Received) -> None:
    """It adds up what all observations tell, so a run tells nothing of its turns' tokens."""
    await sent(receiver)
    (run,) = of_kind(receiver, RUN)
    assert json.loads(facts(run)["langfuse.observation.usage_details"]) == {}
    for span in of_kind(receiver, TURN):
        said = facts(span)
        usage = json.loads(said["langfuse.observation.usage_details"])
        cached = usage.get("input_cached_tokens", 0)
        assert cached == said["gen_ai.usage.cache_read.input_tokens"]
        assert usage["input"] + cached == said["gen_ai.usage.input_tokens"]
        written = usage["output"] + usage.get("output_reasoning_tokens", 0)
        assert written == said["gen_ai.usage.output_tokens"]


async def test_one_option_leaves_the_conventions_alone(
    receiver: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "none")
    await sent(receiver)
    assert len(receiver.spans) == 5
    for span in receiver.spans:
        prefixes = {name.partition(".")[0] for name in facts(span)}
        assert prefixes <= {"gen_ai", "caesura", "error", "session", "user"}, span.name


async def test_other_spans_pass_as_they_are(receiver: Received) -> None:
    target = receiver_in({"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url})
    assert target is not None
    exports = Exports(lambda: exporter_of(target), receiver.url, {})
    tracer = through(exports)._tracer
    with tracer.start_as_current_span("a tool's own", attributes={"mine": 3}):
        pass
    assert await asyncio.to_thread(exports.force_flush)
    (span,) = receiver.spans
    assert facts(span) == {"mine": 3}
    await asyncio.to_thread(exports.shutdown)


@pytest.mark.parametrize(("given", "service"), [("", "caesura"), ("my-agents", "my-agents")])
async def test_the_service_has_a_name(
    receiver: Received, monkeypatch: pytest.MonkeyPatch, given: str, service: str
) -> None:
    """Jaeger lists services, and `unknown_service:python` tells nobody anything."""
    if given:
        monkeypatch.setenv("OTEL_SERVICE_NAME", given)
    await sent(receiver)
    assert receiver.resource["service.name"] == service


def test_dialects_are_chosen_by_name(caplog: pytest.LogCaptureFixture) -> None:
    assert dialects_in({}) == tuple(DIALECTS.values())
    assert dialects_in({VARIABLE: "none"}) == ()
    assert dialects_in({VARIABLE: " Phoenix , jaeger"}) == (
        DIALECTS["phoenix"],
        DIALECTS["jaeger"],
    )
    assert caplog.text == ""
    assert dialects_in({VARIABLE: "zipkin"}) == ()
    assert "'zipkin'" in caplog.text and "langfuse" in caplog.text
