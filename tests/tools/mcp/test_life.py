"""Starting, ending and losing a server; what it sees of us."""

import asyncio
import importlib.util
import json
import os
import sys
import textwrap

import pytest

from caesura.tools.mcp import MCPServer
from caesura.tools.services import SetupError
from tests.kit.processes import gone, lives, nothing_left
from tests.kit.waiting import until
from tests.tools.mcp.calls import HERE, Caller


async def test_the_server_sees_none_of_our_keys(monkeypatch, hostile):
    monkeypatch.setenv("SECRET_KEY", "s")
    monkeypatch.setenv("GIVEN", "from here")
    async with hostile(env={"SHOWN": "${GIVEN} and ${ABSENT:-there}"}) as server:
        seen = json.loads((await Caller(server)("environment")).content)
    assert "SECRET_KEY" not in seen
    assert seen["SHOWN"] == "from here and there"
    assert seen["PATH"] == os.environ["PATH"]


async def test_a_timed_out_call_leaves_the_session_usable(hostile):
    async with hostile(timeout_seconds=0.5) as server:
        call = Caller(server)
        result = await call("never")
        assert (result.error, result.attempts) == ("timeout", 1)
        await until(lambda: call("fine"), lambda result: result.content == "fine")


async def test_new_tools_are_seen_and_old_ones_stay_the_same_objects(hostile):
    async with hostile() as server:
        seen: list[int] = []
        server.watch(lambda: seen.append(len(server.tools)))
        before = server.tools
        await Caller(server)("learn", tool="second nature")
        await until(lambda: server.tools, lambda tools: len(tools) == len(before) + 1)
        assert server.tools[: len(before)] == before
        assert server.tools[-1].name == "second_nature"
        assert seen == [len(before) + 1]
        assert (await Caller(server)("second_nature")).content == "fine"


async def test_allowed_and_denied_tools(hostile):
    async with hostile(
        allow=["su*", "sl*", "fine", "wrong_*"], deny=["wrong_*"], approval=["fine"]
    ) as server:
        assert [tool.name for tool in server.tools] == ["surrogate", "slow", "fine"]
        assert [tool.approval for tool in server.tools] == [False, False, True]


async def test_one_that_dies_is_started_again(hostile):
    async with hostile() as server:
        call = Caller(server)
        first = (await call("pid")).content
        result = await call("exits")
        assert result.error == "failed"
        assert "was lost during the call: exit status 7: out of ideas" in result.content
        away = await call("fine")
        assert "'hostile' is not connected" in away.content
        await until(lambda: call("pid"), lambda result: result.error is None)
        assert (await call("pid")).content != first
        assert server.trouble is None


async def test_each_start_needs_its_close(hostile):
    server = hostile()
    await asyncio.gather(server.start(), server.start())
    pid = int((await Caller(server)("pid")).content)
    await server.aclose()
    assert (await Caller(server)("fine")).content == "fine"
    await server.aclose()
    assert await gone([pid])
    assert "is not connected" in (await Caller(server)("fine")).content
    await server.start()
    assert (await Caller(server)("fine")).content == "fine"
    await server.aclose()


async def test_closing_while_it_starts_leaves_nothing_behind(hostile):
    for seconds in (0.0, 0.05, 0.2):
        async with nothing_left():
            server = hostile()
            start = asyncio.ensure_future(server.start())
            await asyncio.sleep(seconds)
            start.cancel()
            await asyncio.wait([start])
            if not start.cancelled():
                await server.aclose()


def test_a_missing_package_is_told_with_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        SetupError, match=r"^the MCP server 'files' needs mcp, .*pip install .*\[mcp\]"
    ):
        MCPServer("files", command="x")


async def test_a_program_that_is_not_there(hostile):
    with pytest.raises(SetupError, match=r"the program 'no-such-program' does not exist"):
        await MCPServer("files", command="no-such-program").start()
    with pytest.raises(SetupError, match=r"the directory /no/where does not exist"):
        await hostile(cwd="/no/where").start()


async def test_without_required_the_others_go_on(caplog):
    server = MCPServer("files", command="no-such-program", required=False)
    assert await server.start() == []
    assert str(server.trouble) == "the program 'no-such-program' does not exist or is not in PATH"
    assert "'files'" in caplog.text
    await server.aclose()


async def test_it_dies_with_us():
    program = textwrap.dedent(
        f"""
        import asyncio, os, sys
        from caesura.tools.mcp import MCPServer

        async def main():
            args = [{str(HERE / "hostile.py")!r}]
            server = MCPServer("hostile", command=sys.executable, args=args)
            tools = await server.start()
            [pid] = [tool for tool in tools if tool.name == "pid"]
            print((await pid.call()).text, flush=True)
            await asyncio.sleep(600)

        asyncio.run(main())
        """
    )
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    pid = int(await parent.stdout.readline())
    assert lives(pid)
    parent.kill()
    await parent.wait()
    assert await gone([pid])
