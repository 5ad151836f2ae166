"""Arize Phoenix takes our spans; only where CAESURA_TEST_PHOENIX_URL names a running one."""

import asyncio
import os
import uuid

import aiohttp
import pytest

from caesura.runtime.receiver import receiver_in
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.testing import ScriptedEngine, call, say
from caesura.runtime.tracing.export import Exports
from caesura.runtime.tracing.tracing import exporter_of
from caesura.tools.calculator.tool import calculator

URL = os.environ.get("CAESURA_TEST_PHOENIX_URL", "")


@pytest.mark.skipif(not URL, reason="CAESURA_TEST_PHOENIX_URL names no Phoenix")
async def test_phoenix_shows_the_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    project = f"caesura-{uuid.uuid4().hex[:8]}"
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", f"openinference.project.name={project}")
    receiver = receiver_in({"OTEL_EXPORTER_OTLP_ENDPOINT": URL})
    assert receiver is not None
    exports = Exports(lambda: exporter_of(receiver), URL, {})
    script = [call("calculator", expression="1+1"), say("2")]
    await Agent(ScriptedEngine(script, model="m"), [calculator], tracing=exports).run("1+1?")
    assert await asyncio.to_thread(exports.force_flush)
    assert exports.dropped == 0
    names: list[str] = []
    async with aiohttp.ClientSession() as http:
        for _ in range(300):
            async with http.get(f"{URL}/v1/projects/{project}/spans") as response:
                if response.status == 200:
                    names = sorted(each["name"] for each in (await response.json())["data"])
            if len(names) == 4:
                break
            await asyncio.sleep(0.2)
    assert names == ["chat m", "chat m", "execute_tool calculator", "invoke_agent"]
