"""Serving until a signal."""

import asyncio
import os
import signal
import socket

import aiohttp
import pytest

from caesura.runtime.errors import UsageError
from caesura.runtime.server import serve
from caesura.runtime.server.load.options import ServerOptions
from caesura.runtime.testing import ScriptedEngine, call
from caesura.tools.registry import Registry
from tests.kit.server import settings
from tests.kit.waiting import until

FOREVER = 3600.0
BODY = {"model": "scripted", "messages": [{"role": "user", "content": "x"}]}


class Serving:
    """A `serve` under way."""

    def __init__(self, engine, tools=(), **options):
        self._url = asyncio.get_running_loop().create_future()
        options = {"shutdown_timeout": FOREVER} | options
        self.task = asyncio.create_task(
            serve(
                engine, Registry(tools), *settings(port=0, **options), announce=self._url.set_result
            )
        )

    async def url(self):
        return await asyncio.wait_for(self._url, 60)

    async def ask(self, http, **fields):
        url = f"{await self.url()}/chat/completions"
        async with http.post(url, json=BODY | fields) as response:
            return response.status, await response.json()

    async def over(self):
        await asyncio.wait_for(self.task, 60)


@pytest.fixture
async def http():
    async with aiohttp.ClientSession() as session:
        yield session


async def test_serves_and_stops_at_a_signal(http):
    serving = Serving(ScriptedEngine(["Fine."]))
    url = await serving.url()
    assert url.startswith("http://127.0.0.1:") and url.endswith("/v1")
    assert (await serving.ask(http))[0] == 200
    os.kill(os.getpid(), signal.SIGTERM)
    await serving.over()
    with pytest.raises(aiohttp.ClientConnectorError):
        await http.get(f"{url}/models")


async def test_work_under_way_is_finished(http, hanging, capsys):
    serving = Serving(ScriptedEngine([call("hang"), "Done."]), [hanging.tool])
    asking = asyncio.create_task(serving.ask(http, server_tools=["hang"]))
    await hanging.started.wait()
    os.kill(os.getpid(), signal.SIGINT)
    told = ""

    def waits():
        nonlocal told
        told += capsys.readouterr().err
        return "waiting for 1 requests under way, 3600 s at most" in told

    await until(waits)
    assert not serving.task.done()
    hanging.released.set()
    status, body = await asking
    assert (status, body["choices"][0]["message"]["content"]) == (200, "Done.")
    await serving.over()


async def test_work_is_broken_off_by_a_second_signal(http, hanging, capsys):
    engine = ScriptedEngine([call("hang")])
    serving = Serving(engine, [hanging.tool])
    asking = asyncio.create_task(serving.ask(http, server_tools=["hang"]))
    await hanging.started.wait()
    os.kill(os.getpid(), signal.SIGINT)
    await until(lambda: "waiting for 1 requests" in capsys.readouterr().err)
    os.kill(os.getpid(), signal.SIGINT)
    await serving.over()
    assert hanging.cancelled.is_set()
    assert engine.open_sessions == 0
    status, body = await asking
    assert (status, body["error"]["code"]) == (503, "server_shutting_down")


async def test_work_is_broken_off_when_its_time_is_over(http, hanging):
    engine = ScriptedEngine([call("hang")])
    serving = Serving(engine, [hanging.tool], shutdown_timeout=0.05)
    asking = asyncio.create_task(serving.ask(http, server_tools=["hang"]))
    await hanging.started.wait()
    serving.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving.over()
    assert hanging.cancelled.is_set()
    assert engine.open_sessions == 0
    status, body = await asking
    assert (status, body["error"]["code"]) == (503, "server_shutting_down")


async def test_url_is_printed(capsys):
    printed = ""

    def said():
        nonlocal printed
        printed += capsys.readouterr().out
        return printed

    task = asyncio.create_task(serve(ScriptedEngine([]), Registry(), ServerOptions(port=0)))
    await until(said)
    assert printed.startswith("http://127.0.0.1:") and printed.endswith("/v1\n")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_port_that_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port} of 127.0.0.1 is in use"):
            await serve(ScriptedEngine([]), Registry(), ServerOptions(port=port))


async def test_address_that_is_not_ours():
    with pytest.raises(UsageError, match="cannot listen on"):
        await serve(ScriptedEngine([]), Registry(), ServerOptions(host="192.0.2.1", port=0))
