"""What an engine says of itself in its Prometheus metrics."""

from dataclasses import dataclass

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from caesura.planning.run.host import Endpoint

SECONDS = 10.0
"""How long an engine may take to answer."""
REQUESTS = {"vllm:num_requests_running", "vllm:num_requests_waiting"}
CACHE = "vllm:cache_config_info"


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """An engine's requests, and its KV cache in bytes of each device and in tokens; 0: unknown."""

    requests: int = 0
    kv_bytes: int = 0
    kv_tokens: int = 0


def facts_in(text: str) -> EngineFacts:
    """Return the facts in metrics; raises `ValueError` for a text of another format."""
    requests = kv_bytes = kv_tokens = 0
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in REQUESTS:
                requests += int(sample.value)
            elif sample.name == CACHE:
                kv_bytes = _number(sample.labels.get("kv_cache_memory_bytes"))
                kv_tokens = _number(sample.labels.get("kv_cache_size_tokens"))
    return EngineFacts(requests, kv_bytes, kv_tokens)


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0


async def facts_of(endpoint: Endpoint) -> EngineFacts | None:
    """Return what an engine says of itself, or None if it does not answer."""
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SECONDS)) as http,
            http.get(f"{endpoint.server}/metrics", headers=endpoint.headers) as answer,
        ):
            answer.raise_for_status()
            return facts_in(await answer.text())
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
        return None


async def is_healthy(endpoint: Endpoint) -> bool:
    """Return whether an engine answers, and says that it works; a slow one counts as healthy."""
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SECONDS)) as http,
            http.get(f"{endpoint.server}/health") as answer,
        ):
            return answer.status == 200
    except TimeoutError:
        return True
    except (aiohttp.ClientError, OSError):
        return False
