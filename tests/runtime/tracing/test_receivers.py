"""Spans on their way to real receivers, and to some that do not take them."""

import asyncio
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from caesura.runtime.errors import EngineFailed
from caesura.runtime.receiver import receiver_in
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.testing import ScriptedEngine, call, calls, fail, malformed, say
from caesura.runtime.tracing import export
from caesura.runtime.tracing.export import Exports
from caesura.runtime.tracing.setup import from_environment
from caesura.runtime.tracing.tracing import exporter_of
from caesura.tools.calculator.tool import calculator
from tests.runtime.tracing.receivers import grpc_receiver, http_receiver

RUN = ["chat m", "chat m", "execute_tool calculator", "invoke_agent m"]


async def run(**options: Any) -> str:
    script = [call("calculator", expression="1+1"), say("2")]
    agent = Agent(ScriptedEngine(script, model="m"), [calculator], **options)
    return (await agent.run("1+1?")).text


Make = Callable[..., tuple[Exports, TracerProvider]]


@pytest.fixture
async def exporting() -> AsyncIterator[Make]:
    """Makes exports to a receiver of the environment's kind, and a provider over them."""
    made: list[TracerProvider] = []

    def make(**environ: str) -> tuple[Exports, TracerProvider]:
        receiver = receiver_in({f"OTEL_{name}": value for name, value in environ.items()})
        assert receiver is not None
        settings = {f"OTEL_BSP_{name}": value for name, value in environ.items()}
        exports = Exports(lambda: exporter_of(receiver), receiver.endpoint, settings)
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(exports)
        made.append(provider)
        return exports, provider

    yield make
    for provider in made:
        await asyncio.to_thread(provider.shutdown)


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def losses(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if "spans are lost" in each.getMessage()]


async def flushed(exports: Exports) -> None:
    assert await asyncio.to_thread(exports.force_flush)


async def test_the_environment_switches_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async with http_receiver() as received:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20k")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "my-agents")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
        assert await run() == "2"
        tracing = from_environment()
        assert tracing is not None and tracing.exports is not None
        await flushed(tracing.exports)
        assert received.names == RUN
        (root,) = [span for span in received.spans if not span.parent_span_id]
        assert root.name == "invoke_agent m"
        assert {span.trace_id for span in received.spans} == {root.trace_id}
        assert received.headers[0]["authorization"] == "Bearer k"
        assert received.resource["service.name"] == "my-agents"
        assert received.resource["deployment.environment.name"] == "test"
        assert tracing.exports.dropped == 0
        await asyncio.to_thread(tracing.exports.shutdown)


async def test_over_grpc(exporting: Make) -> None:
    async with grpc_receiver() as received:
        exports, provider = exporting(
            EXPORTER_OTLP_ENDPOINT=received.url, EXPORTER_OTLP_PROTOCOL="grpc"
        )
        assert await run(tracing=provider) == "2"
        await flushed(exports)
        assert received.names == RUN
        assert exports.dropped == 0


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
async def test_the_spans_of_a_short_program_arrive(protocol: str) -> None:
    program = (
        "from caesura.runtime.sdk.agent import Agent\n"
        "from caesura.runtime.testing import ScriptedEngine, say\n"
        "print(Agent(ScriptedEngine([say('Hi.')], model='m'), []).run_sync('Hi?'))\n"
    )
    async with http_receiver() if protocol != "grpc" else grpc_receiver() as received:
        environ = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": received.url,
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        }
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program),
            env=os.environ | environ,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert await process.communicate() == (b"Hi.\n", b"")
        assert received.names == ["chat m", "invoke_agent m"]


async def test_text_that_cannot_be_encoded_loses_nothing(
    exporting: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    half = "\ud83d"
    script = [
        calls(call(half * 200, text=half), malformed(half, half, half), text=half),
        fail(EngineFailed(half)),
    ]
    async with http_receiver() as received:
        exports, provider = exporting(EXPORTER_OTLP_ENDPOINT=received.url)
        with pytest.raises(EngineFailed):
            await Agent(ScriptedEngine(script, model="m"), [], tracing=provider).run(half)
        await flushed(exports)
        assert exports.dropped == 0
        assert received.names == ["chat m", "chat m", f"execute_tool {'?' * 100}", "invoke_agent m"]


async def test_an_answer_of_500_drops_and_counts(
    exporting: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with http_receiver() as received:
        received.status = 500
        exports, provider = exporting(EXPORTER_OTLP_ENDPOINT=received.url)
        for batch in (1, 2):
            assert await run(tracing=provider) == "2"
            await flushed(exports)
            assert exports.dropped == batch * len(RUN)
        assert received.requests == 2
        (told,) = losses(caplog)  # once, and with the reason
        assert received.url in told and "500" in told
        assert not [each for each in caplog.records if each.name.startswith("opentelemetry")]
        received.status = 200  # it comes back, and so do the spans
        assert await run(tracing=provider) == "2"
        await flushed(exports)
        assert received.names == RUN and exports.dropped == 2 * len(RUN)


async def test_a_receiver_that_is_down_does_not_keep_the_process(
    exporting: Make, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "FLUSH_SECONDS", 0.2)  # read when exports are made
    exports, provider = exporting(EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{free_port()}")
    assert await run(tracing=provider) == "2"
    await asyncio.to_thread(provider.shutdown)
    assert not exports.is_running
    assert exports.dropped == len(RUN)
    (told,) = losses(caplog)
    assert "refused" in told
    assert await run(tracing=provider) == "2"  # after the end, spans are just counted
    assert exports.dropped == 2 * len(RUN)


async def test_a_slow_receiver_costs_only_spans(
    exporting: Make, caplog: pytest.LogCaptureFixture
) -> None:
    async with http_receiver() as received:
        received.held = asyncio.Event()
        exports, provider = exporting(
            EXPORTER_OTLP_ENDPOINT=received.url,
            MAX_QUEUE_SIZE="8",
            MAX_EXPORT_BATCH_SIZE="4",
            SCHEDULE_DELAY="1",
        )
        for _ in range(20):
            assert await run(tracing=provider) == "2"
        # Every run is over, and the receiver has not answered once.
        assert received.spans == []
        assert exports.dropped > 0
        (told,) = losses(caplog)
        assert "faster than it takes them" in told
        received.held.set()
        await flushed(exports)
        assert len(received.spans) + exports.dropped == 20 * len(RUN)


async def test_an_exporter_that_breaks_is_a_loss_like_any_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def make() -> Any:
        raise ImportError("no exporter here")

    exports = Exports(make, "nowhere", {})
    assert await run(tracing=exports) == "2"
    await flushed(exports)
    assert exports.dropped == len(RUN)
    (told,) = losses(caplog)
    assert "nowhere: ImportError: no exporter here" in told
    await asyncio.to_thread(exports.shutdown)
    assert not exports.is_running
