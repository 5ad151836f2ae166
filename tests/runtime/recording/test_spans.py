"""Spans in a recording, and what is sent elsewhere beside it."""

import asyncio
import importlib.util
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Status, StatusCode

from caesura.distribution import install
from caesura.runtime.errors import UsageError
from caesura.runtime.recording import catalog
from caesura.runtime.recording.recorder import MAX_ENTRY_BYTES, Recorder
from caesura.runtime.recording.storage import Store
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.testing import ScriptedEngine, call, fail, say
from caesura.runtime.tracing.setup import tracing_of
from caesura.runtime.tracing.spans import entry_of
from caesura.scheduler.records import SpanEvent, SpanRecord
from caesura.tools import tool
from tests.kit.spans import Spans, set_up_anew, spans
from tests.runtime.tracing.receivers import http_receiver

__all__ = ["set_up_anew", "spans"]

SECRET = "open sesame"
CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


@pytest.fixture
def recorder(store: Store) -> Iterator[Recorder]:
    with Recorder(store) as made:
        yield made


@pytest.fixture
def telling(store: Store) -> Iterator[Recorder]:
    """A recorder that is to have what is said."""
    with Recorder(store, content=True) as made:
        yield made


async def run(**options: Any) -> None:
    @tool
    async def tell(word: str) -> str:
        """Tell."""
        return f"{word} it is"

    script = [call("tell", word=SECRET), say(f"{SECRET}!")]
    engine = ScriptedEngine(script, model="m")
    async with Agent(engine, [tell], **options) as agent:
        await agent.run(f"The word is {SECRET}.")


def recorded(recorder: Recorder) -> list[dict[str, Any]]:
    recorder.close()
    assert recorder.recording is not None
    return list(catalog.entries(recorder.store.path, recorder.recording))


async def test_a_run_its_turns_and_calls_are_told(recorder: Recorder) -> None:
    await run(recorder=recorder)
    entries = recorded(recorder)
    assert all(each["kind"] == "span" for each in entries)
    begun = [each["name"] for each in entries if each["end"] is None]
    ended = {each["name"]: each for each in entries if each["end"] is not None}
    assert begun == ["invoke_agent m", "execute_tool tell"]
    top = ended["invoke_agent m"]
    assert {each["trace"] for each in entries} == {top["trace"]}
    assert {each["parent"] for each in entries if each["name"] != "invoke_agent m"} == {top["span"]}
    assert top["start"] <= ended["chat m"]["start"] <= ended["chat m"]["end"] <= top["end"]
    assert ended["chat m"]["attributes"]["caesura.request.id"] == "scripted-1"
    assert [each["status"] for each in entries if each["end"]] == ["unset"] * 4
    assert SECRET not in json.dumps(entries)


async def test_faults_are_told(recorder: Recorder) -> None:
    engine = ScriptedEngine([call("nobody"), say("Sorry.")], model="m")
    await Agent(engine, [], recorder=recorder).run("Go.")
    (failed,) = [e for e in recorded(recorder) if e["name"] == "execute_tool nobody" and e["end"]]
    assert failed["status"] == "error"
    assert failed["attributes"]["error.type"] == "unknown_tool"


async def test_what_is_said_is_recorded_if_that_is_wanted_and_goes_nowhere_else(
    telling: Recorder, spans: Spans
) -> None:
    await run(recorder=telling, tracing=spans.processor)
    assert len(spans.all) == 4
    assert SECRET not in spans.text()
    entries = recorded(telling)
    told = [each["attributes"] for each in entries if each["end"] is not None]
    chats = [each for each in told if each["gen_ai.operation.name"] == "chat"]
    assert SECRET in chats[0]["gen_ai.input.messages"]
    assert SECRET in chats[1]["gen_ai.output.messages"]
    (called,) = [each for each in told if each["gen_ai.operation.name"] == "execute_tool"]
    assert called["gen_ai.tool.call.result"] == f"{SECRET} it is"
    assert json.loads(called["gen_ai.tool.call.arguments"]) == {"word": SECRET}
    found = catalog.recording(telling.store.path, int(telling.recording or 0))
    assert found is not None and found.content


async def test_what_is_sent_is_not_recorded_unless_that_is_wanted(
    recorder: Recorder, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CAPTURE, "true")
    await run(recorder=recorder, tracing=spans.processor)
    assert SECRET in spans.text()
    assert SECRET not in json.dumps(recorded(recorder))


async def test_both_can_have_it(
    telling: Recorder, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CAPTURE, "true")
    await run(recorder=telling, tracing=spans.processor)
    assert SECRET in spans.text() and SECRET in json.dumps(recorded(telling))


async def test_all_runs_are_recorded_also_those_that_are_not_sent(
    recorder: Recorder, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    await run(recorder=recorder, tracing=spans.processor)
    assert spans.all == ()
    assert len(recorded(recorder)) == 6


async def test_a_callers_provider_keeps_its_own_spans(recorder: Recorder, spans: Spans) -> None:
    provider = TracerProvider()
    provider.add_span_processor(spans.processor)
    for _ in range(2):
        await run(recorder=recorder, tracing=provider)
    with provider.get_tracer("the caller").start_as_current_span("the caller's"):
        pass
    assert len(spans.all) == 9
    entries = recorded(recorder)
    assert len(entries) == 12
    assert not [each for each in entries if each["name"] == "the caller's"]


def test_without_opentelemetry_the_engines_records_are_all_there_is(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: None if name.startswith("opentelemetry") else found(name),
    )
    assert tracing_of(None, recorder) is None
    (told,) = caplog.records
    assert told.levelno == logging.WARNING
    assert "no spans" in told.getMessage() and install("tracing") in told.getMessage()


async def test_a_recorder_and_a_receiver_at_once(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with http_receiver() as received:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
        both = tracing_of(None, recorder)
        assert both is not None and both.exports is not None
        assert tracing_of(None, recorder) is both
        await run(recorder=recorder)
        await asyncio.to_thread(both.exports.force_flush)
        assert len(received.spans) == 4
        await asyncio.to_thread(both.exports.shutdown)
    assert len(recorded(recorder)) == 6


async def test_what_somebody_else_refused_is_not_quoted(recorder: Recorder) -> None:
    refused = UsageError(f"the model's chat template refused the messages: {SECRET}")
    refused.__cause__ = ValueError(SECRET)
    own = UsageError("this session is closed")
    for error in (refused, own):
        with pytest.raises(UsageError):
            await Agent(ScriptedEngine([fail(error)], model="m"), [], recorder=recorder).run("Go.")
    ended = [each for each in recorded(recorder) if each["end"] is not None]
    assert [each["attributes"]["error.type"] for each in ended] == ["UsageError"] * 4
    assert [each["message"] for each in ended] == ["", "", str(own), str(own)]


def test_a_span_with_too_much_content_is_recorded_without_it(telling: Recorder) -> None:
    span = {"kind": "span", "trace": "t", "span": "s", "start": 1.0, "end": 2.0}
    counted = {"gen_ai.usage.input_tokens": 5}
    for size in (10, MAX_ENTRY_BYTES):
        said = {"gen_ai.input.messages": "x" * size, "gen_ai.tool.call.result": "y"}
        telling.add([{**span, "attributes": {**counted, **said}}])
    small, large = recorded(telling)
    assert small["attributes"]["gen_ai.input.messages"] == "x" * 10
    assert large == {**span, "attributes": counted}
    assert telling.dropped == 0


def test_an_entry_is_that_of_its_record(spans: Spans) -> None:
    provider = TracerProvider()
    provider.add_span_processor(spans.processor)
    tracer = provider.get_tracer("caesura")
    with tracer.start_as_current_span("run", attributes={"a": 1}) as run:
        with tracer.start_as_current_span("turn") as turn:
            turn.add_event("sent", {"b": "c"}, timestamp=2_000_000_000)
            turn.set_status(Status(StatusCode.ERROR, "no"))
        open_entry = entry_of(run)  # type: ignore[arg-type]
    inner, outer = (entry_of(each) for each in spans.all)
    assert [open_entry["end"], open_entry["parent"], open_entry["status"]] == [None, None, "unset"]
    assert (inner["parent"], inner["trace"]) == (outer["span"], outer["trace"])
    for entry in (inner, outer, open_entry):
        told = {name: entry[name] for name in entry if name not in ("kind", "events")}
        events = tuple(SpanEvent(**each) for each in entry["events"])
        assert SpanRecord(**told, events=events).entry() == entry
    assert inner["events"] == [{"name": "sent", "at": 2.0, "attributes": {"b": "c"}}]
    assert (inner["status"], inner["message"]) == ("error", "no")
