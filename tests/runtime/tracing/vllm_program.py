"""Runs agents on the bundled model in a vLLM that traces; prints the spans as JSON: `name parent`.

A program of its own: vLLM sets the process's global provider, and writes to its environment.
"""

import asyncio
import json
import os

from caesura.runtime.launch import start_engine
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.tracing.setup import from_environment
from tests.runtime.tracing.receivers import http_receiver


async def main() -> None:
    async with http_receiver() as received:
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = received.url
        os.environ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] = "http/protobuf"
        os.environ["OTEL_BSP_SCHEDULE_DELAY"] = "200"
        arguments = ["--otlp-traces-endpoint", f"{received.url}/v1/traces"]
        engine = await start_engine(vllm_args=arguments)
        try:
            await Agent(engine, []).run("Hello")
            await Agent(engine, ["calculator"]).run("What is 12 * 7?")
            tracing = from_environment()
            assert tracing is not None and tracing.exports is not None
            await asyncio.to_thread(tracing.exports.force_flush)
            for _ in range(3000):
                if {"llm_request", "pause", "decode"} <= set(received.names):
                    break
                await asyncio.sleep(0.02)
        finally:
            await engine.close()
        ids = {span.span_id: span.name for span in received.spans}
        print(json.dumps([[each.name, ids.get(each.parent_span_id)] for each in received.spans]))


if __name__ == "__main__":
    asyncio.run(main())
