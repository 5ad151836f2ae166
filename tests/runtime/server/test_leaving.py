"""A client that leaves frees what its request holds, at once."""

import asyncio

import pytest

from caesura.runtime.testing import ScriptedEngine, call

LEFT = '{route="/v1/chat/completions",status="499"} 1.0'


async def test_in_the_middle_of_a_stream(serve_script, eventually):
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
    await eventually(lambda: engine.open_sessions == 0)
    assert LEFT in await served.metrics()


async def test_while_the_engine_still_reads_the_prompt(serve_script, eventually):
    reached = asyncio.Event()

    async def pace(event):
        reached.set()
        await asyncio.Event().wait()

    engine = ScriptedEngine(["Never said."], model="tiny/scripted", pace=pace)
    served = await serve_script(engine)
    asking = asyncio.create_task(served.chat())
    await reached.wait()
    asking.cancel()
    await eventually(lambda: engine.open_sessions == 0)


@pytest.mark.parametrize("stream", [True, False])
async def test_while_a_tool_runs(serve_script, hanging, eventually, stream):
    served = await serve_script([call("hang"), "Never said."], [hanging.tool])
    asking = asyncio.create_task(served.chat(server_tools=["hang"], stream=stream))
    await hanging.started.wait()
    assert served.engine.open_sessions == 1
    asking.cancel()
    async with asyncio.timeout(60):
        await hanging.cancelled.wait()
    await eventually(lambda: served.engine.open_sessions == 0)
    text = await served.metrics()
    assert LEFT in text
    assert "caesura_requests_in_flight 0.0" in text


async def test_others_go_on(serve_script, hanging, eventually):
    served = await serve_script([call("hang"), call("hang"), "Done."], [hanging.tool])
    leaving = asyncio.create_task(served.chat(server_tools=["hang"]))
    await hanging.started.wait()
    staying = asyncio.create_task(served.chat(server_tools=["hang"]))
    await eventually(lambda: served.engine.open_sessions == 2)
    leaving.cancel()
    await eventually(lambda: served.engine.open_sessions == 1)
    hanging.released.set()
    status, body = await staying
    assert (status, body["choices"][0]["message"]["content"]) == (200, "Done.")
