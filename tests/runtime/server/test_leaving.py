"""A client that leaves frees what its request holds, at once."""

import asyncio
from typing import Any

import pytest
from fastapi import FastAPI, Request
from vllm.entrypoints.serve.utils.api_utils import with_cancellation

from caesura.runtime.testing import ScriptedEngine, call
from caesura.scheduler.vllm_server import VllmServer
from tests.kit.waiting import until

LEFT = '{route="/v1/chat/completions",status="499"} 1.0'


async def test_in_the_middle_of_a_stream(serve_script):
    held = asyncio.Event()
    seen = 0

    async def pace(event):
        nonlocal seen
        seen += 1
        if seen > 2:
            await held.wait()

    engine = ScriptedEngine(["Once upon a time there was"], model="tiny/scripted", pace=pace)
    served = await serve_script(engine)
    body = served.body(stream=True)
    async with served.http.post("/v1/chat/completions", json=body) as response:
        assert (await response.content.readline()).startswith(b"data: ")
        assert engine.open_sessions == 1
        response.close()
    await until(lambda: engine.open_sessions == 0)
    assert LEFT in await served.metrics()


async def test_while_the_engine_still_reads_the_prompt(serve_script):
    reached = asyncio.Event()

    async def pace(event):
        reached.set()
        await asyncio.Event().wait()

    engine = ScriptedEngine(["Never said."], model="tiny/scripted", pace=pace)
    served = await serve_script(engine)
    asking = asyncio.create_task(served.chat())
    await reached.wait()
    asking.cancel()
    await until(lambda: engine.open_sessions == 0)


@pytest.mark.parametrize("stream", [True, False])
async def test_while_a_tool_runs(serve_script, hanging, stream):
    served = await serve_script([call("hang"), "Never said."], [hanging.tool])
    asking = asyncio.create_task(served.chat(server_tools=["hang"], stream=stream))
    await hanging.started.wait()
    assert served.engine.open_sessions == 1
    asking.cancel()
    async with asyncio.timeout(60):
        await hanging.cancelled.wait()
    await until(lambda: served.engine.open_sessions == 0)
    text = await served.metrics()
    assert LEFT in text
    assert "caesura_requests_in_flight 0.0" in text


async def test_others_go_on(serve_script, hanging):
    served = await serve_script([call("hang"), call("hang"), "Done."], [hanging.tool])
    leaving = asyncio.create_task(served.chat(server_tools=["hang"]))
    await hanging.started.wait()
    staying = asyncio.create_task(served.chat(server_tools=["hang"]))
    await until(lambda: served.engine.open_sessions == 2)
    leaving.cancel()
    await until(lambda: served.engine.open_sessions == 1)
    hanging.released.set()
    status, body = await staying
    assert (status, body["choices"][0]["message"]["content"]) == (200, "Done.")


class WorksOn:
    """An application whose routes work for ever, in vLLM's way."""

    def __init__(self) -> None:
        self.app = FastAPI()
        self.working = 0
        self.ended = 0
        for path in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/score"):
            self.app.post(path)(self._handler())

    def _handler(self) -> Any:
        @with_cancellation
        async def work(body: dict[str, Any], raw_request: Request) -> None:
            self.working += 1
            try:
                await asyncio.Event().wait()
            finally:
                self.working -= 1
                self.ended += 1

        return work


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/score"]
)
async def test_a_whole_answer_of_vllms_ends(serve_script, path):
    behind = WorksOn()
    served = await serve_script([], vllm=VllmServer(behind.app, None))
    asking = [asyncio.create_task(served.http.post(path, json=served.body())) for _ in range(3)]
    await until(lambda: behind.working == 3)
    asking[0].cancel()
    await until(lambda: behind.ended == 1)
    assert behind.working == 2
    for each in asking:
        each.cancel()
    await until(lambda: behind.working == 0)
    assert "caesura_requests_in_flight 0.0" in await served.metrics()


async def test_a_whole_answer_of_vllms_ends_with_the_server(serve_script):
    behind = WorksOn()
    served = await serve_script([], vllm=VllmServer(behind.app, None))
    asking = asyncio.create_task(served.http.post("/v1/completions", json=served.body()))
    await until(lambda: behind.working == 1)
    served.app.cancel_all()
    async with await asking as response:
        assert response.status == 503
        assert (await response.json())["error"]["code"] == "server_shutting_down"
    await until(lambda: behind.working == 0)


async def test_an_application_that_looks_for_no_disconnect_is_cancelled(serve_script, monkeypatch):
    monkeypatch.setattr("caesura.runtime.server.http.connection._TOLD_SECONDS", 0.01)
    reached, ended = asyncio.Event(), asyncio.Event()

    async def deaf(scope: Any, receive: Any, send: Any) -> None:
        reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    served = await serve_script([], vllm=VllmServer(deaf, None))
    asking = asyncio.create_task(served.http.post("/v1/completions", json=served.body()))
    await reached.wait()
    asking.cancel()
    await until(ended.is_set)
