"""A host whose engines can be asked at one address per model."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from caesura.planning.application.application import Application
from caesura.planning.run.asking.configs import asked_models, with_configs
from caesura.planning.run.asking.router import Router
from caesura.planning.run.host import Endpoint, EngineHost, Replica


class RoutedHost:
    """Tells a router which engines of another host are loaded; else it is that host."""

    def __init__(self, host: EngineHost, router: Router) -> None:
        self._host = host
        self._router = router

    @property
    def devices(self) -> int:
        """Return the number of devices."""
        return self._host.devices

    async def place(self, replica: Replica) -> None:
        """Reserve the replica's devices."""
        await self._host.place(replica)

    async def load(self, replica: Replica) -> Endpoint:
        """Start the replica's engine, and route to it from now on."""
        endpoint = await self._host.load(replica)
        self._router.add(replica.model.name, replica.name, endpoint)
        return endpoint

    async def drain(self, replica: Replica, seconds: float) -> bool:
        """Route to it no more, and wait until its engine runs no request."""
        self._router.remove(replica.model.name, replica.name)
        return await self._host.drain(replica, seconds)

    async def evict(self, replica: Replica) -> None:
        """Free the memory of the replica's devices."""
        self._router.remove(replica.model.name, replica.name)
        await self._host.evict(replica)

    async def alive(self, replica: Replica) -> bool:
        """Return whether the replica's engine still runs."""
        return await self._host.alive(replica)

    async def usable(self) -> tuple[int, ...]:
        """Return the devices that can hold engines."""
        return await self._host.usable()

    async def close(self) -> None:
        """Stop all engines."""
        await self._host.close()


@asynccontextmanager
async def routed(
    application: Application,
    host: EngineHost,
    folder: Path,
    expected_seconds: Mapping[str, float] | None = None,
) -> AsyncIterator[tuple[Application, EngineHost]]:
    """Yield an application and a host whose models can ask each other while the block runs.

    Both are the given ones if no task asks a model. Configurations go into `folder`, with the
    `expected_seconds` of an answer by asked model. Raises `ApplicationError` for models that cannot
    ask.
    """
    if not asked_models(application):
        yield application, host
        return
    async with Router() as router:
        configured = with_configs(application, folder, router.url_of, expected_seconds)
        yield configured, RoutedHost(host, router)
