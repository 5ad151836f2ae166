"""Tools of the library's own server, over stdio."""

import asyncio
import sys

import pytest

from caesura.tools.artifacts import ArtifactStore
from caesura.tools.context import CallContext, Scope, ToolRun, enter, leave
from caesura.tools.dispatcher import Dispatcher
from caesura.tools.mcp import MCPServer
from caesura.tools.registry import Registry
from caesura.tools.result import ToolCall
from tests.kit.waiting import until
from tests.tools.mcp.calls import HERE, PNG, Caller


@pytest.fixture(scope="module")
async def server(tmp_path_factory):
    """One server for the tests that leave it as it was."""
    store = ArtifactStore(tmp_path_factory.mktemp("artifacts"))
    settings = {"command": sys.executable, "args": [str(HERE / "server.py")]}
    async with MCPServer("real", artifacts=store, **settings) as server:
        yield server


async def test_its_tools_are_ours(server):
    tools = {tool.name: tool for tool in server.tools}
    assert tools["add"].description == "Add two numbers."
    assert set(tools["add"].parameters["properties"]) == {"a", "b"}
    assert tools["add"].timeout_seconds == 60.0
    result = await Caller(server)("add", a=1, b=2)
    assert (result.content, result.error) == ("3", None)


async def test_arguments_are_checked_before_the_server_sees_them(server):
    result = await Caller(server)("add", a="one", b=2)
    assert result.error == "invalid_arguments"
    assert "'a'" in result.content


async def test_a_failed_call_is_an_error_for_the_model(server):
    result = await Caller(server)("refuse", reason="the shop is closed")
    assert (result.content, result.error) == (
        "error: Error executing tool refuse: the shop is closed",
        "failed",
    )


async def test_files_go_to_the_store_and_only_their_names_to_the_model(server):
    result = await Caller(server)("picture")
    picture, sound = result.artifacts
    assert result.content.splitlines() == [
        "here:",
        f"Saved as {picture.url}: PNG picture, {len(PNG)} bytes.",
        f"Saved as {sound.url}: WAV sound, {len(PNG)} bytes.",
        "[a file of type image/tiff that is not kept]",
        "[a file of type image/png that is not valid base64]",
    ]
    assert picture.path.read_bytes() == PNG


async def test_progress_is_reported(server):
    said: list[str] = []
    [count] = [tool for tool in server.tools if tool.name == "count"]
    context = CallContext(ToolCall("1", "count", "{}"), ToolRun(Scope("s")), report=said.append)
    token = enter(context)
    try:
        output = await count.call(to=3)
    finally:
        leave(token)
    assert output.text == "counted"
    assert said == ["1 of 3 at 1", "2 of 3 at 2", "3 of 3 at 3"]


async def test_a_cancelled_call_is_told_and_the_session_goes_on(server):
    call = Caller(server)
    before, begun = [int((await call(name)).content) for name in ("was_cancelled", "was_begun")]
    async with Dispatcher(Registry(server.tools)) as dispatcher:
        task = dispatcher.start(ToolCall("1", "wait", '{"seconds": 60}'))
        await until(lambda: call("was_begun"), lambda r: int(r.content) == begun + 1)
        await dispatcher.cancel()
        assert (await task).error == "cancelled"
    await until(lambda: call("was_cancelled"), lambda r: int(r.content) == before + 1)


async def test_calls_at_the_same_time_do_not_wait_for_one_another(server):
    call = Caller(server)
    slow = asyncio.ensure_future(call("wait", seconds=30))
    results = await asyncio.gather(*(call("add", a=n, b=n) for n in range(20)))
    assert [result.content for result in results] == [str(2 * n) for n in range(20)]
    assert not slow.done()
    slow.cancel()
    await asyncio.wait([slow])


async def test_new_tools_are_seen_and_old_ones_stay_the_same_objects(real):
    async with real() as server:  # of the 2026 protocol
        seen: list[int] = []
        server.watch(lambda: seen.append(len(server.tools)))
        before = server.tools
        await Caller(server)("learn", name="second nature")
        await until(lambda: server.tools, lambda tools: len(tools) == len(before) + 1)
        assert server.tools[: len(before)] == before
        assert server.tools[-1].name == "second_nature"
        assert seen == [len(before) + 1]
        assert (await Caller(server)("second_nature")).content == "learned"
