"""A server that is closed, restarted and watched by several callers, and overlong lists."""

import asyncio
import threading

import mcp_types
import pytest

from caesura.tools.mcp import listing
from caesura.tools.mcp.screen import Heard, _Screened
from caesura.tools.mcp.settings import ServerSettings
from caesura.tools.schema.arguments import ArgumentsError
from tests.kit.waiting import until
from tests.tools.mcp.calls import Caller


async def test_a_start_while_it_is_being_closed_waits_and_starts_it(hostile):
    server = hostile()
    await server.start()
    first = (await Caller(server)("pid")).content
    closing = asyncio.ensure_future(server.aclose())
    await asyncio.sleep(0)
    await server.start()
    await closing
    assert server.trouble is None
    second = (await Caller(server)("pid")).content
    assert second.isdecimal()
    assert second != first
    await server.aclose()
    assert server.trouble == "it was closed"


def test_it_starts_in_a_second_event_loop_when_the_first_has_ended(hostile):
    server = hostile()

    async def call(close: bool) -> str:
        await server.start()
        said = (await Caller(server)("fine")).content
        if close:
            await server.aclose()
        return said

    assert asyncio.run(call(False)) == "fine"
    assert asyncio.run(call(True)) == "fine"
    assert asyncio.run(call(True)) == "fine"


async def test_who_does_not_watch_any_more_is_not_called(hostile):
    async with hostile() as server:
        seen: list[str] = []
        stop = server.watch(lambda: seen.append("one"))
        server.watch(lambda: seen.append("other"))
        stop()
        await Caller(server)("learn", tool="second nature")
        await until(lambda: seen)
        assert seen == ["other"]


async def test_a_list_is_checked_beside_the_event_loop(hostile, monkeypatch):
    threads: list[int] = []
    all_made = listing.made

    def made(*arguments):
        threads.append(threading.get_ident())
        return all_made(*arguments)

    monkeypatch.setattr(listing, "made", made)
    async with hostile() as server:
        assert server.tools
    assert threads
    assert threading.get_ident() not in threads


def listed(count: int, characters: int) -> list[mcp_types.Tool]:
    schema = {"type": "object", "description": "x" * characters}
    return [mcp_types.Tool(name=f"tool{number}", input_schema=schema) for number in range(count)]


async def not_called(tool, arguments):
    raise AssertionError


def test_a_list_is_bounded_as_a_whole_and_what_did_not_change_is_not_made_again(caplog):
    settings = ServerSettings(command="x")
    tools = tuple(listing.made("s", settings, listed(25, 60_000), (), not_called))
    assert len(tools) == listing.MAX_LIST_CHARACTERS // 60_050
    assert "skipped tool 'tool24': all schemas have more than" in caplog.text
    again = tuple(listing.made("s", settings, listed(2, 60_000), tools, not_called))
    assert [one is other for one, other in zip(again, tools, strict=False)] == [True, True]


def test_a_call_is_not_checked_for_ever_whatever_dialect_a_part_names(caplog):
    draft = "https://json-schema.org/draft/2020-12/schema"
    parts = {
        f"l{n}": {"$schema": draft, "allOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(40)
    }
    schema = {"type": "object", "$ref": "#/$defs/l0", "$defs": parts | {"l40": {}}}
    tools = [mcp_types.Tool(name="doubling", input_schema=schema)]
    [tool] = listing.made("s", ServerSettings(command="x"), tools, (), not_called)
    with pytest.raises(ArgumentsError, match="too long to check"):
        tool.arguments("{}")


def test_the_library_gets_no_schema_to_check_results_by():
    tool = {"name": "t", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object"}}
    assert _Screened(None, "s", Heard())._is_tool(tool)  # type: ignore[arg-type]
    assert tool == {"name": "t", "inputSchema": {"type": "object"}}
