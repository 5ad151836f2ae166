"""A server whose engine dies, and one that ends: what clients, probes and people see."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import aiohttp
import pytest
from starlette.responses import JSONResponse

from caesura.runtime.errors import EngineFailed
from caesura.runtime.server import serve
from caesura.runtime.server.about import loading_app
from caesura.runtime.server.http.sockets import SocketLimits, open_listener
from caesura.runtime.supervision import EngineLost, Phase, Readiness, RestartRules, Supervisor
from caesura.runtime.testing import ScriptedEngine, call
from caesura.scheduler.vllm_server import VllmServer
from caesura.tools.people import People, with_approval
from caesura.tools.registry import Registry
from caesura.tools.tool import Tool, tool
from tests.kit.server import settings
from tests.kit.waiting import until

HELLO = [{"role": "user", "content": "Hello"}]


class Held(ScriptedEngine):
    """An engine whose restarts wait until the test lets them go on, or fail."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        self.fails = False

    async def restart(self) -> None:
        self.begun.set()
        await self.go_on.wait()
        if self.fails:
            raise EngineFailed("no memory is free")
        await super().restart()


class Serving:
    """A supervised `serve` under way, and a client."""

    def __init__(self, engine: ScriptedEngine, tools: Any = (), **options: Any) -> None:
        self.engine = engine
        self.readiness = Readiness(asyncio.get_running_loop().time)
        self.readiness.start_seconds = 7.0
        rules = RestartRules(first_seconds=0.001, most_deaths=2)
        restarts = options.pop("restarts", True)
        self.supervisor = Supervisor(engine, self.readiness, rules=rules if restarts else None)
        self._url = asyncio.get_running_loop().create_future()
        options = {"shutdown_timeout": 60.0, "supervisor": self.supervisor} | options
        announce = self._url.set_result
        ours = serve(engine, Registry(tools), *settings(port=0, **options), announce=announce)
        self.task = asyncio.ensure_future(ours)
        self.http = aiohttp.ClientSession()

    async def get(self, path: str) -> tuple[int, Any, Any]:
        root = (await asyncio.wait_for(asyncio.shield(self._url), 60)).removesuffix("/v1")
        async with self.http.get(f"{root}{path}") as response:
            body = await response.text() if path == "/metrics" else await response.json()
            return response.status, body, response.headers.get("Retry-After")

    def ask(self, *tools: str, path: str = "/chat/completions") -> "asyncio.Task[Any]":
        async def ask() -> Any:
            url = await asyncio.wait_for(asyncio.shield(self._url), 60)
            body = {"model": "scripted", "messages": HELLO, "server_tools": list(tools)}
            body["user"] = "me"  # an approval of somebody unknown is not kept
            async with self.http.post(f"{url}{path}", json=body) as response:
                return response.status, await response.json(), response.headers.get("Retry-After")

        return asyncio.ensure_future(ask())

    async def aclose(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.http.close()


@pytest.fixture
async def serving() -> AsyncIterator[Callable[..., Serving]]:
    started: list[Serving] = []

    def start(*arguments: Any, **options: Any) -> Serving:
        started.append(Serving(*arguments, **options))
        return started[-1]

    yield start
    for each in started:
        await each.aclose()


class Paying:
    """A tool that a person approves, and what was paid."""

    def __init__(self, people: People) -> None:
        self.people = people
        self.paid: list[int] = []

        @tool(approval=True)
        async def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return f"paid {amount}"

        self.tool: Tool = with_approval(pay, people)

    @property
    def waits(self) -> bool:
        return bool(self.people.waited_for)


@pytest.fixture
async def paying(tmp_path: Any) -> AsyncIterator[Paying]:
    people = People(tmp_path / "people.sqlite")
    yield Paying(people)
    await people.aclose()


async def test_a_stream_goes_on_while_probes_tell_of_the_restart(serving):
    async def pace(event: Any) -> None:
        if not engine.begun.is_set():
            engine.die(EngineFailed("it was killed"))

    engine = Held(["It goes on."], pace=pace)
    served = serving(engine)
    asking = served.ask()
    await engine.begun.wait()
    assert await served.get("/health") == (200, {"status": "restarting"}, None)
    status, body, retry = await served.get("/ready")
    assert (status, body) == (503, {"status": "restarting", "reason": "it was killed"})
    assert int(retry) in (6, 7)  # what a start has taken, less what has passed
    assert "caesura_engine_up 0.0" in (await served.get("/metrics"))[1]
    engine.go_on.set()
    status, body, _ = await asking
    assert (status, body["choices"][0]["message"]["content"]) == (200, "It goes on.")
    await until(lambda: served.readiness.phase is Phase.READY)
    assert (await served.get("/ready"))[:2] == (200, {"status": "ready"})
    metrics = (await served.get("/metrics"))[1]
    assert "caesura_engine_restarts_total 1.0" in metrics
    assert 'caesura_engine_deaths_total{kind="died"} 1.0' in metrics
    assert 'caesura_engine_last_death{reason="it was killed"} 1.0' in metrics


async def test_what_only_vllm_answers_is_told_when_to_come_back(serving):
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        engine.die()
        body = {"error": {"message": "EngineCore encountered an issue", "code": 500}}
        await JSONResponse(body, 500)(scope, receive, send)

    engine = Held()
    served = serving(engine, vllm=VllmServer(broken, None))
    for _ in range(2):  # the first ends with the engine, the second finds it dead
        status, body, retry = await served.ask(path="/completions")
        assert (status, body["error"]["code"]) == (503, "engine_restarting")
        assert int(retry) in (6, 7)
        await engine.begun.wait()
    engine.go_on.set()


async def test_an_engine_that_is_given_up_cancels_what_waits_for_a_person(serving, paying):
    engine = Held([call("pay", amount=3), "Paid."])
    engine.fails = True
    engine.go_on.set()
    served = serving(engine, [paying.tool], people=paying.people)
    asking = served.ask("pay")
    await until(lambda: paying.waits)
    engine.die()
    status, body, _ = await asking
    assert (status, body["error"]["code"]) == (503, "engine_failed")
    with pytest.raises(EngineLost, match="crash loop, it died 2 times within 600 s: no memory"):
        await served.task
    items = await paying.people.listed(("open", "cancelled", "answered", "orphaned"))
    assert [item.state for item in items] == ["cancelled"]
    assert paying.paid == []


async def test_a_call_that_is_approved_while_the_engine_restarts_waits_for_it(serving, paying):
    engine = Held([call("pay", amount=3), "Paid."])
    served = serving(engine, [paying.tool], people=paying.people)
    asking = served.ask("pay")
    await until(lambda: paying.waits)
    engine.die()
    await engine.begun.wait()
    await paying.people.decide(paying.people.waited_for[0].id, True)
    await until(lambda: not paying.waits)
    assert paying.paid == []
    engine.go_on.set()
    status, body, _ = await asking
    assert (status, body["choices"][0]["message"]["content"]) == (200, "Paid.")
    assert paying.paid == [3]


async def test_without_restarts_the_server_ends_with_the_reason(serving):
    engine = Held()
    served = serving(engine, restarts=False)
    await served.get("/ready")
    engine.die(EngineFailed("it was killed"))
    with pytest.raises(EngineLost, match=r"not restarted .* it was killed"):
        await served.task
    assert not engine.begun.is_set()


async def test_a_signal_ends_new_work_before_the_port_is_closed(serving, hanging):
    served = serving(ScriptedEngine([call("hang"), "Done."]), [hanging.tool], drain_delay=3600.0)
    asking = served.ask("hang")
    await hanging.started.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    await until(lambda: served.readiness.draining)
    assert (await served.get("/health"))[0] == 200
    status, body, _ = await served.get("/ready")
    assert (status, body["status"]) == (503, "draining")
    status, body, retry = await served.ask()
    assert (status, body["error"]["code"], retry) == (503, "server_shutting_down", "1")
    hanging.released.set()
    status, body, _ = await asking
    assert (status, body["choices"][0]["message"]["content"]) == (200, "Done.")
    os.kill(os.getpid(), signal.SIGTERM)  # the second one hurries
    await asyncio.wait_for(served.task, 60)


async def test_the_end_does_not_wait_for_people_and_keeps_their_items(serving, paying):
    engine = ScriptedEngine([call("pay", amount=3)])
    served = serving(engine, [paying.tool], people=paying.people, shutdown_timeout=3600.0)
    asking = served.ask("pay")
    await until(lambda: paying.waits)
    os.kill(os.getpid(), signal.SIGTERM)
    status, body, retry = await asking
    assert (status, body["error"]["code"], retry) == (503, "server_shutting_down", "1")
    assert "waits for a person" in body["error"]["message"]
    await asyncio.wait_for(served.task, 60)
    assert paying.paid == []
    items = await paying.people.listed(("open", "cancelled", "orphaned"))
    assert [item.state for item in items] == ["orphaned"]


async def test_the_end_does_not_wait_for_tools_that_need_longer(serving):
    started = asyncio.Event()

    @tool(expected_seconds=600.0, timeout_seconds=None)
    async def research() -> str:
        """Take long."""
        started.set()
        await asyncio.Event().wait()
        return "never"

    served = serving(ScriptedEngine([call("research")]), [research], shutdown_timeout=300.0)
    asking = served.ask("research")
    await started.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    assert (await asking)[0] == 503
    await asyncio.wait_for(served.task, 60)


async def test_a_tool_that_swallows_its_cancellation_does_not_hold_the_end(serving, monkeypatch):
    monkeypatch.setattr("caesura.tools.dispatcher.GRACE_SECONDS", 0.01)
    started, released = asyncio.Event(), asyncio.Event()

    @tool
    async def stubborn() -> str:
        """Never end."""
        started.set()
        while not released.is_set():
            with suppress(asyncio.CancelledError):
                await released.wait()
        return "at last"

    served = serving(ScriptedEngine([call("stubborn")]), [stubborn], shutdown_timeout=0.01)
    asking = served.ask("stubborn")
    await started.wait()
    os.kill(os.getpid(), signal.SIGINT)
    assert (await asking)[0] == 503
    await asyncio.wait_for(served.task, 60)
    released.set()


@pytest.mark.parametrize("phase", [Phase.LOADING, Phase.READY])
async def test_probes_are_answered_until_the_server_takes_work(phase):
    # For a moment the engine is ready, and the application that takes work is not there yet.
    readiness = Readiness(asyncio.get_running_loop().time, phase)
    first = loading_app(readiness)
    async with (
        open_listener("127.0.0.1", 0, SocketLimits(), first) as listener,
        aiohttp.ClientSession(f"http://127.0.0.1:{listener.port}") as http,
    ):
        said = []
        for path in ("/health", "/ready", "/v1/models"):
            async with http.get(path) as response:
                said.append((response.status, "Retry-After" in response.headers))
    assert said == [(200, False), (503, True), (503, True)]
