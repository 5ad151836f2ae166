"""Requests for a model reach one of its engines, at one address that stays the same."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from caesura.planning.application.application import Application, Model, Task
from caesura.planning.run.asking import RoutedHost, Router, routed
from caesura.planning.run.host import Endpoint, Replica
from caesura.tools.model import load_in
from tests.kit.waiting import until

EXPERT = Model("expert", "org/expert")


@dataclass
class Engine:
    """A stand-in for an engine: it answers once it may, and counts its requests."""

    name: str
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""
    asked: list[str] = field(default_factory=list)

    async def chat(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.append(body["model"])
        await self.may_answer.wait()
        return web.json_response(
            {"by": self.name, "authorized": "Authorization" in request.headers}
        )

    async def metrics(self, request: web.Request) -> web.Response:
        line = f'vllm:num_requests_running{{model_name="expert"}} {len(self.asked)}.0'
        return web.Response(text=f"{line}\n")

    async def start(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self.chat)
        app.router.add_get("/metrics", self.metrics)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        return runner

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.url, "served", "secret")


@pytest.fixture
async def engines() -> AsyncIterator[tuple[Engine, Engine]]:
    both = Engine("a"), Engine("b")
    runners = [await each.start() for each in both]
    yield both
    for runner in runners:
        await runner.cleanup()


async def ask(http: aiohttp.ClientSession, url: str) -> tuple[int, object]:
    async with http.post(f"{url}/chat/completions", json={"model": "expert"}) as answer:
        json = answer.content_type == "application/json"
        return answer.status, await answer.json() if json else await answer.text()


async def test_the_engine_with_the_fewest_requests_is_asked(engines: tuple[Engine, Engine]) -> None:
    async with Router() as router, aiohttp.ClientSession() as http:
        for engine in engines:
            router.add("expert", engine.name, engine.endpoint)
        url = router.url_of("expert")
        first = asyncio.ensure_future(ask(http, url))
        await until(lambda: engines[0].asked)
        second = asyncio.ensure_future(ask(http, url))
        await until(lambda: engines[1].asked)
        async with http.get(f"{url.removesuffix('/v1')}/metrics") as answer:
            assert load_in(await answer.text(), "expert") == 2, "of both engines"
        for engine in engines:
            engine.may_answer.set()
        assert await first == (200, {"by": "a", "authorized": True})
        assert await second == (200, {"by": "b", "authorized": True})
        assert engines[0].asked == ["served"], "by the name that the engine knows"


async def test_a_model_without_an_engine_is_an_error_to_the_asking_model(
    engines: tuple[Engine, Engine],
) -> None:
    async with Router() as router, aiohttp.ClientSession() as http:
        status, told = await ask(http, router.url_of("expert"))
        assert (status, told) == (503, "no engine of the model 'expert' is loaded now")
        router.add("expert", "gone", Endpoint("http://127.0.0.1:1/v1", "expert"))
        assert (await ask(http, router.url_of("expert")))[0] == 502


class OneEngine:
    """A host that has the engine already."""

    devices = 1

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def place(self, replica: Replica) -> None: ...

    async def load(self, replica: Replica) -> Endpoint:
        return self._engine.endpoint

    async def drain(self, replica: Replica, seconds: float) -> bool:
        return True

    async def evict(self, replica: Replica) -> None: ...

    async def alive(self, replica: Replica) -> bool:
        return True

    async def usable(self) -> tuple[int, ...]:
        return (0,)

    async def close(self) -> None: ...


async def test_engines_are_asked_from_their_load_to_their_end(
    engines: tuple[Engine, Engine],
) -> None:
    engine = engines[0]
    engine.may_answer.set()
    replica = Replica(EXPERT, 0, (0,))
    async with Router() as router, aiohttp.ClientSession() as http:
        host = RoutedHost(OneEngine(engine), router)
        url = router.url_of("expert")
        await host.load(replica)
        assert (await ask(http, url))[0] == 200
        await host.evict(replica)
        assert (await ask(http, url))[0] == 503


async def test_nothing_is_routed_where_no_task_asks(
    tmp_path: Path, engines: tuple[Engine, Engine]
) -> None:
    host = OneEngine(engines[0])
    plain = Application("plain", (EXPERT,), (Task("a", "expert", "", ({"x": 1},)),))
    async with routed(plain, host, tmp_path) as found:
        assert found == (plain, host)
