"""vLLM's own server with our scheduler and connector, and clients that know nothing of them.

A client with tools of its own asks; others fill the cache meanwhile; its follow-up finds the KV of
its first request all the same, which the same server without retention has lost.
"""

import json
import random
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from openai import AsyncOpenAI

from caesura.scheduler.vllm.wire import WATCH_KEY
from caesura.tools.calculator.tool import calculator
from tests.engine.stock_server import vllm_server

pytestmark = [pytest.mark.engine, pytest.mark.slow]

CALCULATOR = calculator.spec()
SYSTEM = "You answer questions about numbers. " * 6


async def cached_in_the_follow_up(address: str) -> tuple[int, int]:
    """Ask, let others fill the cache, follow up; return its cached and the first's tokens."""
    rng = random.Random(1)
    async with AsyncOpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
        options: dict[str, Any] = {"model": "tiny", "temperature": 0, "max_tokens": 200}
        messages: list[Any] = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": "What is 48 * 17?"},
        ]
        first = await client.chat.completions.create(
            messages=messages, tools=[CALCULATOR], **options
        )
        (call,) = first.choices[0].message.tool_calls or ()
        assert first.usage is not None
        for _ in range(12):
            words = " ".join(str(rng.randrange(10**6)) for _ in range(40))
            await client.chat.completions.create(
                messages=[{"role": "user", "content": words}], **options
            )
        messages += [
            first.choices[0].message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": call.id, "content": "816"},
        ]
        followed = await client.chat.completions.create(
            messages=messages, tools=[CALCULATOR], **options
        )
        assert "816" in (followed.choices[0].message.content or "")
        assert followed.usage is not None
        details = followed.usage.prompt_tokens_details
        return (details.cached_tokens or 0) if details else 0, first.usage.prompt_tokens


async def test_a_follow_up_finds_its_kv(tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    async with vllm_server(records, retention=60) as address:
        cached, prompt = await cached_in_the_follow_up(address)
        assert cached >= prompt // 32 * 32
        async with aiohttp.ClientSession() as http, http.get(f"{address}/metrics") as answer:
            metrics = await answer.text()
    assert "caesura_kv_pauses_total" in metrics
    kinds = [json.loads(line) for line in records.read_text().splitlines()]
    (pause,) = [record for record in kinds if record["kind"] == "pause"]
    assert pause["outcome"] == "followed"
    assert pause["tool"] == "calculator"


async def test_without_retention_it_is_lost(tmp_path: Path) -> None:
    """The control: the others really do fill the cache."""
    async with vllm_server(tmp_path / "records.jsonl", retention=0) as address:
        cached, _ = await cached_in_the_follow_up(address)
        status, error = await refused_for_its_watch_plan(address)
    assert cached == 0
    assert status == 400, error
    assert "64" in error["error"]["message"]


async def refused_for_its_watch_plan(address: str) -> tuple[int, dict[str, Any]]:
    """Send a watch plan with a number that no message to the engine can hold."""
    plan = {"vllm_xargs": {WATCH_KEY: [10**30]}}
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], **plan}
    url = f"{address}/v1/chat/completions"
    async with aiohttp.ClientSession() as http, http.post(url, json=body) as answer:
        return answer.status, await answer.json()
