"""The interface between a run and the machines: engines are placed, loaded, drained and evicted."""

from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

import aiohttp

from caesura.planning.application.application import Model

CONNECT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Replica:
    """One engine of a model: its devices, numbered from 0, and its KV cache per device in bytes.

    `kv_bytes` 0 leaves the size to the engine.
    """

    model: Model
    number: int
    devices: tuple[int, ...]
    kv_bytes: int = 0

    @property
    def name(self) -> str:
        """Return the replica's name in messages and logs."""
        return f"{self.model.name}-{self.number}"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a loaded engine answers OpenAI-style requests, and the name of its model there.

    `url` is the base of their paths, such as http://127.0.0.1:8000/v1. `kv_tokens` is how many
    tokens the engine says that its KV cache holds, 0 if it does not say.
    """

    url: str
    model: str
    api_key: str = ""
    kv_tokens: int = 0

    @property
    def server(self) -> str:
        """Return the address of the server, without the path of its OpenAI-style requests."""
        return self.url.rstrip("/").removesuffix("/v1")

    @property
    def chat_url(self) -> str:
        """Return the URL of chat completions."""
        return f"{self.url.rstrip('/')}/chat/completions"

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of every request to it."""
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}


class Asking:
    """Sends requests to engines. An asynchronous context manager, which closes its connections."""

    def __init__(self, max_seconds: float, connect_seconds: float | None = CONNECT_SECONDS) -> None:
        """Create it; a request takes `max_seconds` at most, and a connection `connect_seconds`."""
        self._limits = aiohttp.ClientTimeout(total=max_seconds, sock_connect=connect_seconds)
        self._http: aiohttp.ClientSession | None = None

    @property
    def http(self) -> aiohttp.ClientSession:
        """The connections, within the context."""
        assert self._http is not None, "it is used as a context manager"
        return self._http

    async def __aenter__(self) -> Self:
        connections = aiohttp.TCPConnector(limit=0)
        self._http = aiohttp.ClientSession(connector=connections, timeout=self._limits)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.http.close()


class HostError(Exception):
    """An engine could not be placed or loaded, or was lost. The message says why."""


class EngineHost(Protocol):
    """Machines that hold engines. Every method may raise `HostError`.

    The order is: `place` reserves devices, `load` brings the model into their memory, `drain` waits
    for running requests, and `evict` gives the devices back. A replica may be evicted in any state.
    """

    @property
    def devices(self) -> int:
        """Return the number of devices."""
        ...

    async def place(self, replica: Replica) -> None:
        """Reserve the replica's devices."""
        ...

    async def load(self, replica: Replica) -> Endpoint:
        """Start the replica's engine, or wake it up, and return once it answers."""
        ...

    async def drain(self, replica: Replica, seconds: float) -> bool:
        """Wait until its engine runs no request; return False if `seconds` passed before."""
        ...

    async def evict(self, replica: Replica) -> None:
        """Free the memory of the replica's devices: stop its engine, or put it to sleep."""
        ...

    async def alive(self, replica: Replica) -> bool:
        """Return whether the replica's engine still runs."""
        ...

    async def usable(self) -> tuple[int, ...]:
        """Return the devices that can hold engines: fewer, once a machine has gone away."""
        ...

    async def close(self) -> None:
        """Stop all engines. Idempotent."""
        ...


MAX_IN_FLIGHT = 256
"""The most requests that one replica is sent at a time."""
DRAIN_SECONDS = 5.0
"""How long an evicted engine may work on its requests. Those left begin again elsewhere."""
WATCH_SECONDS = 1.0
"""How often the engines are asked whether they still run."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a run; see the constants of their names."""

    max_in_flight: int = MAX_IN_FLIGHT
    drain_seconds: float = DRAIN_SECONDS
    watch_seconds: float = WATCH_SECONDS
