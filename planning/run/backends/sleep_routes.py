"""vLLM's routes for sleep mode, as a client of them.

vLLM's server has them with `--enable-sleep-mode` and the environment's `VLLM_SERVER_DEV_MODE=1`,
and so has `caesura serve`, behind which vLLM's server runs.
"""

import json
from collections.abc import Mapping
from typing import Any

import aiohttp

from caesura.planning.run.host import Endpoint, HostError

CALL_SECONDS = 600.0
"""How long an engine may take to sleep or to wake up: weights are copied, or read again."""
MAX_REASON_CHARACTERS = 300
DEV_MODE: Mapping[str, str] = {"VLLM_SERVER_DEV_MODE": "1"}
SLEEP_FLAG = "--enable-sleep-mode"


class SleepRoutes:
    """Calls the routes of one engine's server. Every method raises `HostError`."""

    def __init__(self, http: aiohttp.ClientSession, endpoint: Endpoint) -> None:
        """Create it for a server whose `url` ends in /v1, beside which the routes are."""
        self._http = http
        self._base = endpoint.server
        self._headers = endpoint.headers

    async def sleep(self, level: int) -> None:
        """Abort what the engine runs, and free memory of its devices.

        At level 0 the KV cache alone is freed. At level 1 the weights move to the host's memory
        too, and at level 2 they are dropped. All reset the prefix cache and the connector's.
        """
        await self._call("POST", "sleep", {"level": str(level), "mode": "abort"})
        if level == 0:
            await self._call("POST", "release_kv_cache_memory")

    async def wake_up(self, level: int) -> None:
        """Bring back what a sleep at this level freed, and go on with requests.

        After level 2 the weights are read again before the KV cache takes memory.
        """
        if level == 1:
            await self._call("POST", "wake_up")
        else:
            if level == 2:
                await self._call("POST", "wake_up", {"tags": "weights"})
                await self._call("POST", "collective_rpc", body={"method": "reload_weights"})
            await self._call("POST", "wake_up", {"tags": "kv_cache"})
        if await self.is_sleeping():
            raise HostError(f"{self._base} still sleeps after it was woken up")

    async def reset_prefix_cache(self) -> None:
        """Forget the KV of former requests, on the devices and on the host."""
        await self._call("POST", "reset_prefix_cache", {"reset_external": "true"})

    async def is_sleeping(self) -> bool:
        """Return whether the engine sleeps, or has stopped to schedule."""
        return bool((await self._call("GET", "is_sleeping")).get("is_sleeping"))

    async def _call(
        self,
        method: str,
        route: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Mapping[str, Any]:
        """Return the answer's fields; raise `HostError` for a status other than 200."""
        url = f"{self._base}/{route}"
        time = aiohttp.ClientTimeout(total=CALL_SECONDS)
        try:
            async with self._http.request(
                method, url, params=query, json=body, headers=self._headers, timeout=time
            ) as answer:
                held = await answer.text()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise HostError(f"{url} does not answer: {type(error).__name__} {error}") from error
        if answer.status == 404:
            raise HostError(
                f"{url} does not exist: start vLLM's server with {SLEEP_FLAG} and the environment"
                f" variable {next(iter(DEV_MODE))}=1"
            )
        if answer.status != 200:
            reason = held[:MAX_REASON_CHARACTERS]
            raise HostError(f"{url} answered with status {answer.status}: {reason}")
        return _fields(held)


def _fields(text: str) -> Mapping[str, Any]:
    try:
        fields = json.loads(text or "{}")
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}
