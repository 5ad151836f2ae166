"""An engine that can sleep, behind vLLM's own routes, and hosts that start such engines."""

import asyncio
import socket
from contextlib import suppress

import uvicorn
from fastapi import FastAPI
from vllm.entrypoints.serve.dev.cache.api_router import attach_router as attach_cache
from vllm.entrypoints.serve.dev.rpc.api_router import attach_router as attach_rpc
from vllm.entrypoints.serve.dev.sleep.api_router import attach_router as attach_sleep

from caesura.planning.application.application import Model
from caesura.planning.run.host import Endpoint, HostError, Replica


class SleepyClient:
    """Stands for vLLM's `EngineClient`: it keeps what is in the devices' memory, as vLLM does."""

    def __init__(self) -> None:
        self.resident = {"weights", "kv_cache"}
        self.scheduling = True
        self.weights = True
        """Whether the weights are the model's."""
        self.calls: list[str] = []
        self.fails = False

    async def sleep(self, level: int, mode: str) -> None:
        self.calls.append(f"sleep {level} {mode}")
        if self.fails:
            raise RuntimeError("the engine is broken")
        self.scheduling = False
        if level:
            self.resident.clear()
            self.weights = level == 1

    async def release_kv_cache_memory(self) -> None:
        self.calls.append("release")
        if self.scheduling:
            raise RuntimeError("release_kv_cache_memory() requires a completed pause first")
        self.resident.remove("kv_cache")

    async def wake_up(self, tags: list[str] | None) -> bool:
        self.calls.append(f"wake {tags}")
        if self.fails:
            raise RuntimeError("the engine is broken")
        self.resident |= set(tags or ("weights", "kv_cache"))
        self.scheduling = len(self.resident) == 2
        return self.scheduling

    async def collective_rpc(
        self, method: str, timeout: float | None, args: tuple[str, ...], kwargs: dict[str, str]
    ) -> list[None]:
        assert "weights" in self.resident, "there is no memory to read weights into"
        self.calls.append(method)
        self.weights = True
        return [None]

    async def is_sleeping(self) -> bool:
        return not self.scheduling or len(self.resident) < 2

    async def reset_prefix_cache(self, running: bool, external: bool) -> bool:
        self.calls.append(f"reset {external}")
        return True


class SleepyServer:
    """Serves a `SleepyClient` by vLLM's routers."""

    def __init__(self, *, dev_mode: bool = True) -> None:
        self.client = SleepyClient()
        app = FastAPI()
        app.state.engine_client = self.client
        if dev_mode:
            for attach in (attach_sleep, attach_cache, attach_rpc):
                attach(app)
        config = uvicorn.Config(app, log_level="critical", lifespan="off")
        self._server = uvicorn.Server(config)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> Endpoint:
        listener = socket.create_server(("127.0.0.1", 0))
        self._task = asyncio.create_task(self._server.serve([listener]))
        return Endpoint(f"http://127.0.0.1:{listener.getsockname()[1]}/v1", "fake")

    async def stop(self) -> None:
        self._server.should_exit = self._server.force_exit = True
        if self._task is not None:
            with suppress(asyncio.CancelledError):
                await self._task


class OneEngineHost:
    """A host of two devices that refuses replicas on devices that are taken."""

    def __init__(self, made: "list[OneEngineHost]") -> None:
        made.append(self)
        self.server: SleepyServer | None = None
        self.placed: dict[str, Replica] = {}
        self.closed = False

    devices = 2

    async def place(self, replica: Replica) -> None:
        for other in self.placed.values():
            if set(other.devices) & set(replica.devices):
                raise HostError(f"{other.name} holds a device of {replica.name}")
        self.placed[replica.name] = replica

    async def load(self, replica: Replica) -> Endpoint:
        assert replica.name in self.placed
        self.server = SleepyServer()
        return await self.server.start()

    async def drain(self, replica: Replica, seconds: float) -> bool:
        return True

    async def evict(self, replica: Replica) -> None:
        self.placed.pop(replica.name, None)

    async def alive(self, replica: Replica) -> bool:
        return self.server is not None and not self.closed

    async def usable(self) -> tuple[int, ...]:
        return (0, 1)

    async def close(self) -> None:
        self.closed = True
        if self.server is not None:
            await self.server.stop()


SMALL, LARGE = Model("small", "small"), Model("large", "large")
