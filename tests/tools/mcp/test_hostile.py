"""A server that answers garbage, floods, hangs and ends: clear errors, and we live."""

import asyncio
import json
import random
import sys

import pytest

from caesura.tools.artifacts import ArtifactStore
from caesura.tools.mcp import MCPServer
from caesura.tools.services import SetupError
from tests.kit.processes import gone, nothing_left
from tests.kit.waiting import until
from tests.tools.mcp.calls import HERE, Caller
from tests.tools.mcp.hostile import NAMES

MAX_BYTES = 500_000
SEEDS = 300

UNREADABLE = "error: the server sent a message that is not JSON-RPC"
ANSWERS = {
    "wrong_type": UNREADABLE,
    "wrong_error": UNREADABLE,
    "wrong_version": UNREADABLE,
    "not_json": UNREADABLE,
    "surrogate": UNREADABLE,
    "deep": UNREADABLE,
    "wrong_content": "error: the server's result is not valid MCP: "
    "content.0.TextContent.text: Input should be a valid string",
    "giant": f"error: the server sent a message of more than {MAX_BYTES} bytes",
    "not_utf8": "a\ufffd\ufffdb",
    "progress": "done",
    "twice": "first",
    "other_id": "for you",
    "sampling": '{"code": -32600, "message": "Sampling not supported"}',
    "elicitation": '{"action": "decline"}',
    "roots": '{"code": -32600, "message": "List roots not supported"}',
    "unknown_request": "-32601",
    "slow": "at last",
}


@pytest.fixture(scope="module")
async def server(tmp_path_factory):
    """One server for what it survives itself."""
    async with MCPServer(
        "hostile",
        command=sys.executable,
        args=["-S", "-E", str(HERE / "hostile.py")],
        artifacts=ArtifactStore(tmp_path_factory.mktemp("artifacts")),
        max_message_bytes=MAX_BYTES,
        timeout_seconds=60.0,
    ) as server:
        yield server


@pytest.mark.parametrize("name", ANSWERS)
async def test_each_answer_is_a_result_and_the_next_call_works(server, name):
    call = Caller(server)
    assert (await call(name)).content == ANSWERS[name]
    assert (await call("fine")).content == "fine"


async def test_no_answer_is_a_result_and_the_next_call_works(hostile):
    async with hostile(timeout_seconds=1.0) as server:
        call = Caller(server)
        assert (await call("never")).content == "error: no answer within 1 seconds"
        await until(lambda: call("fine"), lambda result: result.content == "fine")


async def test_many_blocks_are_cut(server):
    content = (await Caller(server)("many_blocks", blocks=5000)).content
    assert content.endswith("[4744 more blocks were left out]")


async def test_a_flood_of_messages_is_read_at_a_bounded_pace(server):
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.005)
            ticks += 1

    ticking = asyncio.ensure_future(tick())
    result = await Caller(server)("many_messages")
    ticking.cancel()
    assert result.content in ("after them", "error: no answer within 60 seconds")
    assert ticks > 0
    await until(lambda: Caller(server)("fine"), lambda result: result.content == "fine")


async def test_garbage_is_never_more_than_an_error(server):
    call = Caller(server)
    kinds = set()
    for seed in range(SEEDS):
        result = await call("garbage", seed=seed)
        assert result.error in (None, "failed"), result
        assert len(result.content) < 1000
        kinds.add(result.content)
    assert len(kinds) > 5
    assert (await call("fine")).content == "fine"


async def test_an_answer_with_wrong_bytes_is_a_result_an_error_or_never_comes(hostile):
    async with hostile(timeout_seconds=0.2, max_message_bytes=MAX_BYTES) as server:
        call = Caller(server)
        errors = [(await call("mutated", seed=seed)).error for seed in range(60)]
        assert set(errors) == {None, "failed", "timeout"}
        await until(lambda: call("fine"), lambda result: result.content == "fine")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("endless", "it sent a message without end"),
        ("exits", "exit status 7: out of ideas"),
        ("closes", "it closed its output"),
    ],
)
async def test_one_that_ends_in_mid_call_fails_that_call(hostile, name, why):
    async with hostile(max_message_bytes=MAX_BYTES) as server:
        result = await Caller(server)(name)
        assert (
            result.content
            == f"error: the connection to the MCP server 'hostile' was lost during the call: {why}"
        )
        assert result.error == "failed"


async def test_all_calls_under_way_fail_when_it_ends(hostile):
    async with hostile() as server:
        call = Caller(server)
        waiting = [asyncio.ensure_future(call("never")) for _ in range(5)]
        await asyncio.sleep(0.1)
        await call("exits")
        results = await asyncio.gather(*waiting)
        assert all("was lost during the call" in result.content for result in results)


async def test_one_that_hangs_is_started_again(hostile):
    # On a busy machine a start may take too long as well, and is then made again.
    patient = {"required": False, "restarts": 1000}
    async with hostile(timeout_seconds=0.3, start_seconds=1.0, **patient) as server:
        call = Caller(server)
        await until(lambda: call("pid"), lambda result: result.error is None)
        pid = (await call("pid")).content
        assert (await call("stuck")).error == "timeout"
        await until(lambda: call("pid"), lambda result: result.error is None)
        assert (await call("pid")).content != pid


async def test_a_call_that_takes_too_long_ends_nothing_else(hostile):
    async with hostile(timeout_seconds=0.3, start_seconds=30.0) as server:
        call, pids = Caller(server), set()

        async def answered() -> bool:
            result = await call("pid")  # on a busy machine this too may take too long
            if result.error is None:
                pids.add(result.content)
            return result.error is None

        await until(answered)
        assert (await call("never")).error == "timeout"
        await asyncio.sleep(1.0)
        await until(answered)
        assert len(pids) == 1


async def test_half_an_answer_is_an_error(hostile):
    async with hostile() as server:
        assert (await Caller(server)("half")).error == "failed"


async def test_what_it_started_ends_with_it(hostile):
    async with nothing_left():
        async with hostile() as server:
            pid = int((await Caller(server)("grandchild")).content)
        assert await gone([pid])


async def test_bad_tools_are_left_out_with_a_warning(hostile, caplog):
    async with hostile("tools") as server:
        tools = {tool.name: tool for tool in server.tools[len(NAMES) :]}
        assert list(tools) == ["_", "x" * 64, "d_licieux_", "delicieux_", "slow_pattern"]
        assert len(tools["x" * 64].description) == 4000
        for name in ("bad schema", "bad type", "big schema"):
            assert f"skipped tool '{name}'" in caplog.text
        assert (await Caller(server)("d_licieux_")).content == "fine"


async def test_a_servers_regular_expression_is_never_run(hostile):
    async with hostile("tools") as server:
        arguments = {"a": "a" * 5000 + "!", "b" * 5000 + "!": "c"}
        # With its expressions this would take longer than the universe has.
        assert (await Caller(server)("slow_pattern", **arguments)).content == "fine"


@pytest.mark.parametrize(
    ("behaviour", "seconds", "why"),
    [
        ("exit", 60, "exit status 1: no licence"),
        ("silent", 1, "no answer within 1 seconds"),
        ("deaf", 1, "no answer within 1 seconds"),
    ],
)
async def test_one_that_does_not_start(hostile, behaviour, seconds, why):
    async with nothing_left():
        with pytest.raises(SetupError, match=why):
            await hostile(behaviour, start_seconds=seconds).start()


async def test_noise_before_the_first_word_is_ignored(hostile):
    async with hostile("garbage") as server:
        assert (await Caller(server)("fine")).content == "fine"


async def test_one_that_will_not_end_is_killed(hostile):
    async with nothing_left():
        server = hostile("stubborn")
        await server.start()
        pid = int((await Caller(server)("pid")).content)
        await server.aclose()
        assert await gone([pid])


@pytest.mark.slow
async def test_random_calls_in_random_order_never_break_it(hostile, monkeypatch):
    monkeypatch.setattr("caesura.tools.mcp.server.LONGEST_PAUSE_SECONDS", 0.1)
    names = [name for name in NAMES if name not in ("many_messages", "closes")]
    pick = random.Random(0)
    settings = {"timeout_seconds": 0.3, "max_message_bytes": MAX_BYTES, "restarts": 1000}
    settings |= {"start_seconds": 3.0, "required": False}
    async with nothing_left(), hostile(**settings) as server:
        call = Caller(server)
        await until(lambda: call("fine"), lambda result: result.content == "fine")
        for _ in range(60):
            several = [pick.choice(names) for _ in range(pick.randrange(1, 5))]
            arguments = {"seed": pick.randrange(1000), "tool": f"t{pick.randrange(5)}"}
            results = await asyncio.gather(*(call(name, **arguments) for name in several))
            for result in results:
                assert result.error in (None, "failed", "timeout", "unknown_tool")
                json.dumps(result.content).encode()
            await until(lambda: call("fine"), lambda result: result.content == "fine")
