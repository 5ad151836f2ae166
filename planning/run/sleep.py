"""Engines that sleep instead of ending, by vLLM's sleep mode.

An engine is started once. To be evicted, it frees its devices and sleeps; to be loaded again on the
same devices, it is woken up. vLLM's measurements put that at 0.1 to 6 s, against 30 to 100 s of
starting a process. vLLM's server has the routes for this with `--enable-sleep-mode` and the
environment's `VLLM_SERVER_DEV_MODE=1`, and so has `caesura serve`, behind which it runs.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp

from caesura.planning.run.host import Endpoint, EngineHost, HostError, Replica
from caesura.planning.run.processes import ProcessHost, engine_command, local_devices

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


MAX_ASLEEP = 4
LEVELS = (0, 1, 2)
ASKS_VLLM = (
    "from vllm.platforms import current_platform as p;"
    "print(p.device_type, p.is_sleep_mode_available())"
)


async def check_sleep_mode() -> None:
    """Raise `HostError` if vLLM has no sleep mode on this machine."""
    asked = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", ASKS_VLLM),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    answer = (await asked.communicate())[0].decode().split()
    if not answer:
        raise HostError("vLLM cannot be imported: run `caesura doctor` to see how to fix it")
    if answer[-1] != "True":
        raise HostError(
            f"vLLM has no sleep mode on this machine's devices ({answer[-2]}), only on those of"
            " CUDA, ROCm and XPU: use --backend processes"
        )


async def sleeping_processes(devices: int, logs: Path, *, level: int = 1) -> "SleepHost":
    """Return a host of processes of this machine that sleep; `logs` is a directory for their logs.

    Raises `HostError` if vLLM has no sleep mode here.
    """
    await check_sleep_mode()
    return SleepHost(lambda: sleepy_processes(devices, logs), level=level)


def sleepy_processes(devices: int, logs: Path) -> ProcessHost:
    """Return a host of processes that can be put to sleep, but end when they are evicted."""
    command = partial(engine_command, more=[SLEEP_FLAG])
    return ProcessHost(local_devices(devices), logs, command=command, environment=DEV_MODE)


@dataclass(frozen=True, slots=True)
class _Engine:
    """An engine, the replica that it was started for, and its host, which holds no other."""

    host: EngineHost
    replica: Replica
    endpoint: Endpoint

    def fits(self, replica: Replica) -> bool:
        """Return whether another replica can have it: one of the same model in the same place."""
        own = self.replica
        return (own.model, own.devices, own.kv_bytes) == (
            replica.model,
            replica.devices,
            replica.kv_bytes,
        )


class SleepHost:
    """Keeps evicted engines asleep on their devices, and wakes them up when they are needed again.

    `start` makes a host for one engine; its engines must have vLLM's routes for sleep mode.
    A sleep at `level` 1 keeps the weights in the host's memory, and at 2 they are read again at the
    wake-up. At 0 they stay on the devices, which must have room for those of several models; only
    the KV cache is freed. At most `max_asleep` engines sleep on a device, since each keeps a part
    of its memory there.
    """

    def __init__(
        self, start: Callable[[], EngineHost], *, level: int = 1, max_asleep: int = MAX_ASLEEP
    ) -> None:
        if level not in LEVELS:
            raise HostError(f"there is no sleep level {level}: use 0, 1 or 2")
        self._start = start
        self._level = level
        self._max_asleep = max_asleep
        self._seats = start()
        """Holds no engine: it knows which devices are taken by those that are awake."""
        self._awake: dict[str, _Engine] = {}
        self._asleep: list[_Engine] = []
        """In the order in which they fell asleep."""
        self._http: aiohttp.ClientSession | None = None

    @property
    def devices(self) -> int:
        """Return the number of devices."""
        return self._seats.devices

    async def place(self, replica: Replica) -> None:
        """Reserve the replica's devices; those that sleep there do not hold them."""
        await self._seats.place(replica)

    async def load(self, replica: Replica) -> Endpoint:
        """Wake up an engine of this model and these devices, or start one."""
        engine = await self._woken(replica) or await self._started(replica)
        self._awake[replica.name] = engine
        return engine.endpoint

    async def drain(self, replica: Replica, seconds: float) -> bool:
        """Wait until the engine runs no request; return False if `seconds` passed before."""
        engine = self._awake.get(replica.name)
        return engine is None or await engine.host.drain(engine.replica, seconds)

    async def evict(self, replica: Replica) -> None:
        """Put the engine to sleep, which aborts what it runs; end it if it does not answer."""
        engine = self._awake.pop(replica.name, None)
        if engine is not None and await self._done(engine, self._routes(engine).sleep(self._level)):
            self._asleep.append(engine)
            for device in replica.devices:
                await self._end_oldest(device)
        await self._seats.evict(replica)

    async def alive(self, replica: Replica) -> bool:
        """Return whether the replica's engine still runs."""
        engine = self._awake.get(replica.name)
        return engine is not None and await engine.host.alive(engine.replica)

    async def usable(self) -> tuple[int, ...]:
        """Return the devices that can hold engines."""
        return await self._seats.usable()

    async def close(self) -> None:
        """End all engines, awake or asleep. Idempotent."""
        engines = [*self._awake.values(), *self._asleep]
        self._awake.clear()
        self._asleep.clear()
        await asyncio.gather(*(engine.host.close() for engine in engines))
        await self._seats.close()
        if self._http is not None:
            http, self._http = self._http, None
            await http.close()

    async def _woken(self, replica: Replica) -> _Engine | None:
        """Return an engine that slept in this place, or None; those that do not wake up end."""
        for engine in [each for each in self._asleep if each.fits(replica)]:
            self._asleep.remove(engine)
            if await self._done(engine, self._routes(engine).wake_up(self._level)):
                return engine
        return None

    async def _started(self, replica: Replica) -> _Engine:
        host = self._start()
        try:
            await host.place(replica)
            return _Engine(host, replica, await host.load(replica))
        except BaseException:
            await host.close()
            raise

    async def _end_oldest(self, device: int) -> None:
        """End the engines that have slept longest on a device with too many."""
        asleep = [each for each in self._asleep if device in each.replica.devices]
        for engine in asleep[: -self._max_asleep]:
            self._asleep.remove(engine)
            await engine.host.close()

    async def _done(self, engine: _Engine, call: Awaitable[None]) -> bool:
        """Return whether a call of the engine succeeds; without an answer the engine is ended."""
        try:
            await call
        except HostError:
            await engine.host.close()
            return False
        except BaseException:  # cancelled: the engine may be half awake
            await engine.host.close()
            raise
        return True

    def _routes(self, engine: _Engine) -> SleepRoutes:
        if self._http is None:
            self._http = aiohttp.ClientSession()
        return SleepRoutes(self._http, engine.endpoint)
