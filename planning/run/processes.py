"""Engines as processes of this machine: their commands, devices and metrics."""

import asyncio
import json
import os
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from caesura.planning.run.host import Endpoint, HostError, Replica
from caesura.processes.worker import KEEPER

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


NVIDIA_GPUS = Path("/proc/driver/nvidia/gpus")

CPU_OPTIONS = ("--no-enable-chunked-prefill",)
"""Options of engines on processors. There vLLM 0.32 ends with an error when it splits the prompt
of a request that has a seed."""


def engine_command(
    replica: Replica, more: Sequence[str] = (), host: str = "127.0.0.1"
) -> list[str]:
    """Return the command that serves a replica on a free port, which it prints as a URL.

    `more` are further options of `vllm serve`, which the model's own arguments override. `host` is
    the address to listen on.
    """
    model = replica.model
    named = ["--model", model.path] if model.path else []  # left out: the bundled model
    configured = ["--config", model.config] if model.config else []
    # A run replaces an engine that has died by a plan of its own.
    quiet = ["--no-restart", "--no-calibrate", "--no-trace", "--no-responses", "--host-gib", "0"]
    options = [*(() if _gpus() else CPU_OPTIONS), *more]
    if len(replica.devices) > 1:
        options += ["--tensor-parallel-size", str(len(replica.devices))]
    if replica.kv_bytes:
        options += ["--kv-cache-memory-bytes", str(replica.kv_bytes)]
    serve = [sys.executable, "-m", "caesura", "serve", *named, *configured, *quiet]
    at = ["--host", host, "--port", "0", "--served-model-name", model.name]
    return [*serve, *at, "--", *options, *model.arguments]


class Devices(Protocol):
    """What the devices of a machine are."""

    @property
    def count(self) -> int:
        """Return how many there are."""
        ...

    def environment(self, devices: Sequence[int]) -> dict[str, str]:
        """Return the variables that bind an engine to devices, numbered from 0."""
        ...

    def cpus(self, devices: Sequence[int]) -> tuple[int, ...]:
        """Return the processors that an engine on these devices may use."""
        ...


@dataclass(frozen=True, slots=True)
class CpuDevices:
    """Parts of the processors of this machine, of equal size, each of which is a device.

    Raises `HostError` if there are fewer processors than devices.
    """

    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.count <= len(_processors()):
            raise HostError(
                f"{self.count} devices were asked for, but this machine has no GPU and"
                f" {len(_processors())} processors, each of which can be one device"
            )

    def environment(self, devices: Sequence[int]) -> dict[str, str]:
        """Return the variables that give each rank the threads of its device."""
        bound = "|".join(",".join(map(str, self.cpus([device]))) for device in devices)
        threads = len(self.cpus(devices[:1]))
        bindings = {"VLLM_CPU_OMP_THREADS_BIND": bound, "OMP_NUM_THREADS": str(threads)}
        # The engine is bound as a whole, so that one rank needs no process of its own. Loading it
        # would take a third more.
        alone = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"} if len(devices) == 1 else {}
        return bindings | alone

    def cpus(self, devices: Sequence[int]) -> tuple[int, ...]:
        """Return the processors of the devices."""
        held = _processors()
        size = len(held) // self.count
        return tuple(cpu for device in devices for cpu in held[device * size : (device + 1) * size])


@dataclass(frozen=True, slots=True)
class GpuDevices:
    """The first GPUs of this machine that CUDA may use.

    Raises `HostError` if there are fewer GPUs than devices.
    """

    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.count <= len(_gpus()):
            raise HostError(
                f"{self.count} devices were asked for, but this machine has {len(_gpus())} GPUs"
            )

    def environment(self, devices: Sequence[int]) -> dict[str, str]:
        """Return the variable that shows CUDA the devices only."""
        return {"CUDA_VISIBLE_DEVICES": ",".join(_gpus()[device] for device in devices)}

    def cpus(self, devices: Sequence[int]) -> tuple[int, ...]:
        """Return all processors."""
        return _processors()


def local_devices(count: int) -> Devices:
    """Return devices of this machine: its GPUs if it has any, else parts of its processors.

    Raises `HostError` if there are fewer.
    """
    return GpuDevices(count) if _gpus() else CpuDevices(count)


def _processors() -> tuple[int, ...]:
    return tuple(sorted(os.sched_getaffinity(0)))


def _gpus() -> list[str]:
    """Return the names by which CUDA_VISIBLE_DEVICES selects this machine's GPUs."""
    if (shown := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [name for name in shown.split(",") if name]
    count = len(list(NVIDIA_GPUS.iterdir())) if NVIDIA_GPUS.is_dir() else 0
    return [str(number) for number in range(count)]


MAX_LOAD_SECONDS = 1800.0
"""How long an engine may take until it answers."""
KILL_SECONDS = 15.0
"""How long a keeper has to kill its engine's processes before it is killed itself."""
POLL_SECONDS = 0.2
LAST_LINES = 8
"""Lines of an engine's log in an error."""
MAX_TAIL_BYTES = 4000

Command = Callable[[Replica], Sequence[str]]


@dataclass(slots=True)
class _Engine:
    """An engine's keeper and its address."""

    process: Process
    log: Path
    endpoint: Endpoint | None = None
    copying: asyncio.Task[str] | None = None


class ProcessHost:
    """Holds engines as processes of this machine, each with a keeper that kills all of it.

    `logs` is a directory for a log of each engine. `command` makes an engine's command, which must
    print the engine's URL in a line of its own. Engines may share a device if each has its
    `kv_bytes`. With `api_key`, engines ask their clients for it.
    """

    def __init__(
        self,
        devices: Devices | int,
        logs: Path,
        *,
        command: Command = engine_command,
        environment: Mapping[str, str] | None = None,
        api_key: str = "",
    ) -> None:
        self._devices = local_devices(devices) if isinstance(devices, int) else devices
        self._logs = logs
        self.command = command
        self._api_key = api_key
        self._environment = dict(environment or {})
        if api_key:
            self._environment["CAESURA_API_KEY"] = api_key
        self._placed: dict[str, Replica] = {}
        self._engines: dict[str, _Engine] = {}

    @property
    def devices(self) -> int:
        """Return the number of devices."""
        return self._devices.count

    async def place(self, replica: Replica) -> None:
        """Reserve the replica's devices; raises `HostError` if another replica holds them."""
        for device in replica.devices:
            if not 0 <= device < self.devices:
                raise HostError(
                    f"{replica.name} can't be placed on device {device}: this machine has"
                    f" {self.devices}, numbered from 0"
                )
        for other in self._placed.values():
            shared = set(other.devices) & set(replica.devices)
            if shared and not (other.kv_bytes and replica.kv_bytes):
                raise HostError(
                    f"{replica.name} can't be placed on device {min(shared)}: {other.name} holds"
                    " it, and engines share a device only if each has a size of its KV cache"
                )
        self._placed[replica.name] = replica

    async def load(self, replica: Replica) -> Endpoint:
        """Start the replica's engine; raises `HostError` with the end of its log if it fails."""
        log = self._logs / f"{replica.name}.log"
        engine = await self._start(replica, log)
        self._engines[replica.name] = engine
        try:
            async with asyncio.timeout(MAX_LOAD_SECONDS):
                url = await _url_or_end(engine)
        except TimeoutError:
            raise HostError(
                f"{replica.name} did not answer within {MAX_LOAD_SECONDS:g} s: see {log}"
            ) from None
        if not url:
            raise HostError(f"{replica.name} did not start: {_tail(log) or 'it wrote no log'}")
        engine.endpoint = await self._checked(
            replica, Endpoint(url, replica.model.name, self._api_key)
        )
        return engine.endpoint

    async def drain(self, replica: Replica, seconds: float) -> bool:
        """Wait until the engine runs no request; return False if `seconds` passed before."""
        engine = self._engines.get(replica.name)
        until = time.monotonic() + seconds
        while engine is not None and engine.endpoint is not None:
            facts = await facts_of(engine.endpoint)
            if facts is None or not facts.requests:
                return True
            if time.monotonic() >= until:
                return False
            await asyncio.sleep(POLL_SECONDS)
        return True

    async def evict(self, replica: Replica) -> None:
        """Kill the engine's processes, and give its devices back."""
        engine = self._engines.pop(replica.name, None)
        if engine is not None:
            await _stop(engine)
        self._placed.pop(replica.name, None)

    async def alive(self, replica: Replica) -> bool:
        """Return whether the replica's engine still runs and says that it works."""
        engine = self._engines.get(replica.name)
        if engine is None or engine.process.returncode is not None:
            return False
        return engine.endpoint is None or await is_healthy(engine.endpoint)

    async def usable(self) -> tuple[int, ...]:
        """Return all devices: this machine is there as long as the run is."""
        return tuple(range(self.devices))

    async def close(self) -> None:
        """Kill all engines. Idempotent."""
        engines, self._engines = list(self._engines.values()), {}
        self._placed.clear()
        await asyncio.gather(*(_stop(engine) for engine in engines))

    async def _start(self, replica: Replica, log: Path) -> _Engine:
        command = list(self.command(replica))
        options = {"command": command, "cpus": self._devices.cpus(replica.devices)}
        bound = self._devices.environment(replica.devices)
        try:
            self._logs.mkdir(parents=True, exist_ok=True)
            with log.open("ab") as written:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", str(KEEPER), json.dumps(options)),
                    stdin=PIPE,  # never written: it closes when this process ends
                    stdout=PIPE,
                    stderr=written,
                    env={**os.environ, **bound, **self._environment},
                    start_new_session=True,
                )
        except OSError as error:
            raise HostError(f"{replica.name} can't be started: {error}") from error
        return _Engine(process, log)

    async def _checked(self, replica: Replica, endpoint: Endpoint) -> Endpoint:
        """Return the endpoint with what the engine reports of its KV cache.

        Raises `HostError` if it is larger than planned.
        """
        facts = await facts_of(endpoint)
        if facts is None:
            return endpoint
        if replica.kv_bytes and facts.kv_bytes > replica.kv_bytes:
            raise HostError(
                f"{replica.name} has a KV cache of {facts.kv_bytes} bytes on each device, but the"
                f" plan gives it {replica.kv_bytes}: leave --kv-cache-memory-bytes out of its"
                " arguments"
            )
        return Endpoint(endpoint.url, endpoint.model, endpoint.api_key, facts.kv_tokens)


async def _url_or_end(engine: _Engine) -> str:
    """Return the URL that the engine prints, or an empty text if it ends before.

    What it prints besides goes to its log, also from then on.
    """
    url = await _copy_until_url(engine)
    engine.copying = asyncio.ensure_future(_copy_until_url(engine))
    return url


async def _copy_until_url(engine: _Engine) -> str:
    assert engine.process.stdout is not None
    with engine.log.open("ab", buffering=0) as log:
        while line := await engine.process.stdout.readline():
            if line.startswith(b"http"):
                return line.decode().strip()
            log.write(line)
    return ""


async def _stop(engine: _Engine) -> None:
    """Close the keeper's input, and wait until it has killed the engine."""
    process = engine.process
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(KILL_SECONDS):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if engine.copying is not None:
        engine.copying.cancel()


def _tail(log: Path) -> str:
    """Return the last lines of a log."""
    with suppress(OSError):
        lines = log.read_bytes()[-MAX_TAIL_BYTES:].decode("utf-8", "replace").splitlines()
        return " | ".join(line.strip() for line in lines[-LAST_LINES:] if line.strip())
    return ""
