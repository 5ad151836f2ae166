"""When spans are sent, and where, by OpenTelemetry's own variables."""

import importlib.util
import json
import logging
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caesura.distribution import install
from caesura.runtime.receiver import Receiver, receiver_in, receiver_of_process
from caesura.runtime.recording import conventions
from caesura.runtime.tracing.content import (
    MAX_CHARACTERS,
    MAX_INPUT_CHARACTERS,
    MAX_MESSAGES,
    each_message,
    input_messages,
    is_captured,
    whole_input,
)
from caesura.runtime.tracing.export import Exports
from caesura.runtime.tracing.setup import from_environment, tracing_of

HTTP = "http/protobuf"


@pytest.mark.parametrize(
    ("environ", "receiver"),
    [
        ({}, None),
        ({"ENDPOINT": "http://c:4318"}, Receiver(HTTP, "http://c:4318/v1/traces")),
        ({"ENDPOINT": "http://c:4318/"}, Receiver(HTTP, "http://c:4318/v1/traces")),
        ({"TRACES_ENDPOINT": "http://c/here"}, Receiver(HTTP, "http://c/here")),
        (
            {"TRACES_ENDPOINT": "http://c/here", "ENDPOINT": "http://d"},
            Receiver(HTTP, "http://c/here"),
        ),
        ({"ENDPOINT": "http://c:4317", "PROTOCOL": "grpc"}, Receiver("grpc", "http://c:4317")),
        (
            {"ENDPOINT": "http://c", "PROTOCOL": "grpc", "TRACES_PROTOCOL": HTTP},
            Receiver(HTTP, "http://c/v1/traces"),
        ),
        ({"ENDPOINT": "  "}, None),
        ({"PROTOCOL": "grpc"}, None),
        ({"ENDPOINT": "http://c", "PROTOCOL": "http/json"}, None),
    ],
)
def test_endpoints_and_protocols(environ: dict[str, str], receiver: Receiver | None) -> None:
    named = {f"OTEL_EXPORTER_OTLP_{name}": value for name, value in environ.items()}
    assert receiver_in(named) == receiver


@pytest.mark.parametrize(
    ("said", "is_on"),
    [
        ({"OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, False),
        ({"OTEL_SDK_DISABLED": "True"}, False),
        ({"OTEL_SDK_DISABLED": "false"}, True),
    ],
)
def test_switches(said: dict[str, str], is_on: bool) -> None:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}
    assert (receiver_in(endpoint | said) is not None) == is_on


def test_asking_for_otlp_is_enough() -> None:
    receiver = receiver_in({"OTEL_TRACES_EXPORTER": "otlp"})
    assert receiver == Receiver(HTTP, "http://localhost:4318/v1/traces")


def test_a_process_has_one_tracing_whatever_the_environment_becomes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert tracing_of() is None
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:9")
    assert tracing_of() is None  # as when vLLM sets it
    from_environment.cache_clear()
    receiver_of_process.cache_clear()
    assert tracing_of() is not None
    assert tracing_of() is tracing_of()


def test_a_missing_package_is_told_with_the_command(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: None if name.startswith("opentelemetry") else found(name),
    )
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c")
    assert tracing_of() is None
    assert tracing_of() is None
    (told,) = caplog.records
    assert told.levelno == logging.WARNING
    assert install("tracing") in told.getMessage()


def test_off_imports_nothing_of_opentelemetry() -> None:
    program = (
        "import sys, caesura.runtime.sdk.agent as a, caesura.runtime.server;"
        "import caesura.runtime.testing as s; a.Agent(s.ScriptedEngine([]));"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_our_names_are_those_of_the_installed_conventions() -> None:
    from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

    known = {
        value
        for name, value in vars(gen_ai_attributes).items()
        if name.startswith("GEN_AI_") and isinstance(value, str)
    }
    ours = {
        value
        for value in vars(conventions).values()
        if isinstance(value, str) and value.startswith("gen_ai.")
    }
    assert ours and ours <= known
    operations = {each.value for each in gen_ai_attributes.GenAiOperationNameValues}
    assert {conventions.INVOKE_AGENT, conventions.CHAT, conventions.EXECUTE_TOOL} <= operations


@pytest.mark.parametrize("said", ["", "false", "1 ", "no_content"])
def test_content_is_off_unless_asked_for(said: str) -> None:
    assert not is_captured({"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": said})


texts = st.none() | st.text() | st.lists(st.dictionaries(st.text(), st.text()), max_size=3)
calls = st.fixed_dictionaries(
    {"id": st.text(), "function": st.fixed_dictionaries({"name": st.text()})}
)
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "tool", "assistant"]), "content": texts},
    optional={"tool_calls": st.none() | st.lists(calls, max_size=3), "tool_call_id": st.text()},
)


@settings(deadline=None)
@given(st.lists(messages, max_size=30))
def test_any_messages_can_be_told(said: list[dict[str, Any]]) -> None:
    written = json.loads(input_messages(each_message(said)))
    assert [each["role"] for each in written] == [each["role"] for each in said[-MAX_MESSAGES:]]


def test_long_conversations_are_bounded() -> None:
    said = [{"role": "user", "content": "x" * 100_000}] * 100
    assert len(input_messages(each_message(said))) < MAX_MESSAGES * (MAX_CHARACTERS + 200)
    first = {"role": "system", "content": "Keep quiet."}
    whole = whole_input(each_message([first, *said]))
    assert len(whole.text) < MAX_INPUT_CHARACTERS + 200
    told = json.loads(whole.text)
    assert told[0]["role"] == "system"
    assert len(told) + whole.left_out == 101


def test_a_short_conversation_is_told_as_a_whole() -> None:
    said = each_message([{"role": "user", "content": str(number)} for number in range(100)])
    whole = whole_input(said)
    assert (len(json.loads(whole.text)), whole.left_out) == (100, 0)
    assert whole_input([]).text == "[]"


@settings(deadline=None)
@given(st.text())
def test_any_setting_of_a_batch_leaves_a_usable_one(text: str) -> None:
    names = ("MAX_QUEUE_SIZE", "MAX_EXPORT_BATCH_SIZE", "SCHEDULE_DELAY")
    exports = Exports(NotImplemented, "nowhere", {f"OTEL_BSP_{name}": text for name in names})
    assert 0 < exports._max_batch <= exports._max_queue
    assert exports._delay_seconds > 0
