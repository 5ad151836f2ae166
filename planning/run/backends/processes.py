"""Engines as processes of this machine."""

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

from caesura.planning.run.backends.command import Devices, engine_command, local_devices
from caesura.planning.run.backends.metrics import facts_of, is_healthy
from caesura.planning.run.host import Endpoint, HostError, Replica

KEEPER = Path(__file__).with_name("keeper.py")
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
