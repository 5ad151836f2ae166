import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caesura.processes import worker as process
from caesura.tools.worker import Worker, WorkerDied, WorkerFailed
from tests.kit.processes import gone, lives, nothing_left
from tests.tools.working import HERE, MODULE

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
async def worker():
    async with nothing_left():
        made = await Worker.spawn(MODULE, environment=HERE)
        yield made
        await made.kill()


@pytest.mark.parametrize(
    "value", [None, 1, "text", "umlauts äöü \U0001f600 \ud800", "a\nb\r\n\u2028", {"a": [1.5, []]}]
)
async def test_values_come_back_as_they_went(worker, value):
    assert await worker.call("echo", value=value) == value


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def test_any_json_comes_back_as_it_went():
    with asyncio.Runner() as runner:
        worker = runner.run(Worker.spawn(MODULE, environment=HERE))

        @settings(deadline=None)
        @given(JSON)
        def check(value):
            assert runner.run(worker.call("echo", value=value)) == value

        check()
        runner.run(worker.kill())


async def test_one_process_serves_many_calls_one_at_a_time(worker):
    pids = await asyncio.gather(*(worker.call("pid") for _ in range(5)))
    assert len(set(pids)) == 1
    assert worker.calls == 5


async def test_it_comes_behind_its_parent(worker):
    assert await worker.call("niceness") == min(19, os.nice(0) + 5)


async def test_what_the_function_raises(worker):
    with pytest.raises(WorkerFailed, match="out of range") as raised:
        await worker.call("fail", message="out of range")
    assert raised.value.kind == "ValueError"
    assert ", in fail\n" in raised.value.__notes__[0]  # where it failed, for the log
    with pytest.raises(WorkerFailed, match="3") as raised:
        await worker.call("quit", status=3)
    assert raised.value.kind == "SystemExit"
    with pytest.raises(WorkerFailed, match="has no function '_private'"):
        await worker.call("_private")
    with pytest.raises(WorkerFailed, match="has no function 'nothing'"):
        await worker.call("nothing")
    with pytest.raises(WorkerFailed, match="unexpected keyword argument"):
        await worker.call("pid", x=1)
    assert await worker.call("echo", value=1) == 1


async def test_invalid_json_does_not_harm_later_calls(worker):
    with pytest.raises(WorkerFailed, match="not JSON serializable"):
        await worker.call("no_json")
    with pytest.raises(TypeError, match="not JSON serializable"):
        await worker.call("echo", value=object())
    assert await worker.call("echo", value=1) == 1


async def test_a_call_that_tells_how_far_it_is(worker):
    heard = []
    assert await worker.follow("count", heard.append, to=3) == "counted"
    assert heard == [{"at": 0}, {"at": 1}, {"at": 2}]
    with pytest.raises(WorkerFailed, match="'tell'"):
        await worker.call("count", to=1)
    with pytest.raises(WorkerFailed, match="'tell'"):
        await worker.follow("echo", heard.append, value=1)
    assert await worker.call("echo", value=1) == 1


async def test_news_that_nobody_can_take_kill_it(worker):
    def refuse(news):
        raise ValueError("no such thing")

    working = await worker.call("pid")
    with pytest.raises(ValueError, match="no such thing"):
        await worker.follow("count", refuse, to=3)
    assert not worker.is_alive and not lives(working)


async def test_what_it_prints_is_no_answer_and_stdin_is_empty(worker):
    assert await worker.call("chatter", text='{"id": 1, "result": "false"}') == "answered"
    assert await worker.call("read_stdin") == ""
    assert await worker.call("echo", value=2) == 2


async def test_it_sees_no_secrets_and_not_the_working_directory(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "secret")
    monkeypatch.setenv("LC_TIME", "C")
    worker = await Worker.spawn(MODULE, environment={**HERE, "ADDED": "yes"})
    try:
        seen = await worker.call("environment")
        assert "secret" not in seen.values()
        assert (seen["ADDED"], seen["LC_TIME"], seen["PATH"]) == ("yes", "C", os.environ["PATH"])
        path = await worker.call("path")
        assert "" not in path
        assert str(Path.cwd()) not in path
    finally:
        await worker.kill()


async def test_long_requests_and_answers(worker):
    text = "x" * (5 * 2**20)
    assert await worker.call("echo", value=text) == text


async def test_a_result_that_is_too_long_is_refused_by_the_worker(worker):
    with pytest.raises(WorkerFailed, match="67108864 are allowed"):
        await worker.call("long", characters=64 * 2**20)
    assert await worker.call("echo", value=1) == 1


async def test_a_line_without_an_end_kills_it(monkeypatch):
    monkeypatch.setattr(process, "MAX_LINE_BYTES", 1000)
    worker = await Worker.spawn(MODULE, environment=HERE)
    with pytest.raises(WorkerDied, match="limit"):
        await worker.call("long", characters=100_000)
    assert not worker.is_alive


@pytest.mark.parametrize(
    "text",
    [
        "no json\n",
        "[1]\n",
        '{"id": 99, "result": 1}\n',
        '{"id": 99, "news": 1}\n',
        "\n",
        "\x00\x00\n",
        '{"id": 1}\n',
        "[" * 50_000 + "\n",
    ],
)
async def test_garbage_among_the_answers_kills_it(worker, text):
    with pytest.raises(WorkerDied, match="invalid answer"):
        await worker.call("garbage", text=text)
    assert not worker.is_alive


@pytest.mark.parametrize(
    ("call", "status", "words"),
    [
        (("vanish", {"status": 7}), "7", "my last words"),
        (("crash", {}), f"{-signal.SIGSEGV}", ""),
    ],
)
async def test_a_process_that_ends_in_mid_call(worker, call, status, words):
    with pytest.raises(WorkerDied, match=rf"ended \({status}\).*{words}"):
        await worker.call(call[0], **call[1])
    assert not worker.is_alive
    with pytest.raises(WorkerDied):
        await worker.call("pid")


async def test_a_module_that_cannot_be_imported():
    worker = await Worker.spawn("there_is_no_such_module")
    with pytest.raises(WorkerDied, match="No module named 'there_is_no_such_module'"):
        await worker.call("anything")


async def test_a_process_that_cannot_be_started(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    async with nothing_left():
        with pytest.raises(WorkerDied, match="cannot be started"):
            await Worker.spawn(MODULE)


async def test_a_bound_on_memory():
    worker = await Worker.spawn(MODULE, environment=HERE, memory_bytes=2**30)
    try:
        assert await worker.call("allocate", count=10**6) == 10**6
        with pytest.raises(WorkerFailed) as raised:
            await worker.call("allocate", count=2**30)
        assert raised.value.kind == "MemoryError"
    finally:
        await worker.kill()


@pytest.mark.parametrize("function", ["sleep", "spin"])
async def test_a_cancelled_call_kills_the_process(worker, function):
    working = await worker.call("pid")
    call = asyncio.create_task(worker.call(function, seconds=600))
    await asyncio.sleep(0.05)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not lives(working)
    assert not lives(worker.pid)


async def test_a_call_that_waits_for_its_turn_may_be_cancelled_without_harm(worker):
    first = asyncio.create_task(worker.call("sleep", seconds=0.3))
    await asyncio.sleep(0)
    second = asyncio.create_task(worker.call("pid"))
    await asyncio.sleep(0)
    second.cancel()
    await first
    assert await worker.call("echo", value=1) == 1


async def test_one_that_is_deaf_to_signals_of_pythons_is_killed_all_the_same(worker):
    working = await worker.call("pid")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(worker.call("hold_the_lock"), 0.2)
    assert not lives(working)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("leave_a_child", {}),
        ("leave_a_child", {"own_session": True}),
        ("leave_an_orphan", {}),
    ],
)
async def test_what_it_has_started_goes_with_it(worker, function, arguments):
    left = await worker.call(function, **arguments)
    assert lives(left)
    await asyncio.gather(worker.kill(), worker.kill())
    assert not lives(left)


@pytest.mark.parametrize("own_session", [False, True])
async def test_a_cancelled_call_kills_what_it_has_started(worker, own_session):
    async with nothing_left():
        hanging = worker.call("leave_a_child", own_session=own_session, then_hang=True)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(hanging, 0.3)


@pytest.mark.parametrize("own_session", [False, True])
async def test_one_that_crashes_leaves_nothing_behind(worker, own_session):
    left = await worker.call("leave_a_child", own_session=own_session)
    with pytest.raises(WorkerDied):
        await worker.call("crash")
    assert await gone([left])


async def test_the_death_of_the_keeper_is_the_workers():
    worker = await Worker.spawn(MODULE, environment=HERE)
    working = await worker.call("pid")
    assert working != worker.pid
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(WorkerDied):
        await worker.call("sleep", seconds=600)
    assert await gone([working])


@pytest.mark.parametrize("steps", range(12))
async def test_a_start_that_is_cancelled_leaves_nothing(steps):
    async with nothing_left():
        starting = asyncio.create_task(Worker.spawn(MODULE, environment=HERE))
        for _ in range(steps):
            await asyncio.sleep(0)
        starting.cancel()
        with suppress(asyncio.CancelledError):
            await (await starting).kill()  # it was quicker
