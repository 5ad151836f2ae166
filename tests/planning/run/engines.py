"""Engines for tests: HTTP servers in this process that answer by a rule, and a host of them."""

import asyncio
from collections.abc import Callable
from typing import Any

from aiohttp import web

from caesura.planning.run.host import Endpoint, HostError, Replica

Rule = Callable[[str], str]
"""Makes an answer from the text of the last message."""


class FakeEngine:
    """An HTTP server that answers chat completions after `seconds`."""

    def __init__(self, rule: Rule | None = None, seconds: float = 0.0) -> None:
        self.rule = rule or (lambda text: f"<{text}>")
        self.seconds = seconds
        self.status = 200
        self.held = asyncio.Event()
        self.held.set()
        self.asked: list[str] = []
        self._news = asyncio.Event()
        self.answered: list[str] = []
        self.most_in_flight = 0
        self._runner: web.AppRunner | None = None

    @classmethod
    async def started(cls, engines: "list[FakeEngine]") -> Endpoint:
        """Start an engine, append it to the list, and return its endpoint."""
        engines.append(cls())
        return await engines[-1].start()

    async def start(self) -> Endpoint:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        return Endpoint(f"http://127.0.0.1:{port}/v1", "fake")

    @property
    def runs(self) -> bool:
        return self._runner is not None

    async def until_asked(self, requests: int) -> None:
        """Wait until so many requests have come."""
        async with asyncio.timeout(10):
            while len(self.asked) < requests:
                self._news.clear()
                await self._news.wait()

    async def stop(self) -> None:
        """Break all connections, as a killed process does."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            for each in list(runner.server.connections):
                each.force_close()
                if each.transport is not None:
                    each.transport.abort()
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        body: dict[str, Any] = await request.json()
        text = body["messages"][-1]["content"]
        self.asked.append(text)
        self._news.set()
        status = self.status
        self.most_in_flight = max(self.most_in_flight, len(self.asked) - len(self.answered))
        await asyncio.sleep(self.seconds)
        await self.held.wait()
        self.answered.append(text)
        if status != 200:
            return web.json_response({"error": "told to"}, status=status)
        answer = self.rule(text)
        choice = {"message": {"content": answer}, "finish_reason": "stop"}
        usage = {"prompt_tokens": len(text), "completion_tokens": len(answer)}
        return web.json_response({"choices": [choice], "usage": usage})


class FakeHost:
    """Devices that hold fake engines; checks that no two engines share a device."""

    def __init__(self, devices: int = 2, *, load_seconds: float = 0.0, rule: Rule | None = None):
        self.devices = devices
        self.load_seconds = load_seconds
        self.rule = rule
        self.seconds = 0.0
        self.engines: dict[str, FakeEngine] = {}
        self.placed: dict[str, tuple[int, ...]] = {}
        self.gone: set[int] = set()
        self.calls: list[tuple[str, str]] = []
        self.fail_loads = 0
        self.holds = False
        self.closed = False

    async def place(self, replica: Replica) -> None:
        self.calls.append(("place", replica.name))
        if self.gone & set(replica.devices):
            raise HostError(f"device {min(self.gone)} has gone away")
        taken = {d for held in self.placed.values() for d in held}
        assert not taken & set(replica.devices), f"{replica.name} shares a device"
        self.placed[replica.name] = replica.devices

    async def load(self, replica: Replica) -> Endpoint:
        self.calls.append(("load", replica.name))
        await asyncio.sleep(self.load_seconds)
        if self.fail_loads:
            self.fail_loads -= 1
            raise HostError(f"{replica.name} did not start: told to")
        engine = FakeEngine(self.rule, self.seconds)
        if self.holds:
            engine.held.clear()
        endpoint = await engine.start()
        self.engines[replica.name] = engine
        return endpoint

    async def drain(self, replica: Replica, seconds: float) -> bool:
        self.calls.append(("drain", replica.name))
        return True

    async def evict(self, replica: Replica) -> None:
        self.calls.append(("evict", replica.name))
        self.placed.pop(replica.name, None)
        if (engine := self.engines.pop(replica.name, None)) is not None:
            await engine.stop()

    async def alive(self, replica: Replica) -> bool:
        engine = self.engines.get(replica.name)
        return engine is not None and engine.runs

    async def usable(self) -> tuple[int, ...]:
        return tuple(d for d in range(self.devices) if d not in self.gone)

    async def close(self) -> None:
        for engine in self.engines.values():
            await engine.stop()
        self.engines.clear()
        self.placed.clear()
        self.closed = True

    async def kill(self, name: str) -> None:
        """End an engine as `kill -9` does."""
        await self.engines[name].stop()

    async def lose_device(self, device: int) -> None:
        """Take a device away with all engines on it."""
        self.gone.add(device)
        for name, devices in self.placed.items():
            if device in devices and name in self.engines:
                await self.engines[name].stop()
