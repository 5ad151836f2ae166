import asyncio

import pytest

from caesura.tools.worker import WorkerDied, WorkerPool
from tests.kit.processes import gone, lives, nothing_left
from tests.kit.waiting import until
from tests.tools.working import HERE, MODULE

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
async def make_pool():
    pools = []

    def make(workers: int = 1, **options) -> WorkerPool:
        pools.append(WorkerPool(MODULE, workers, environment=HERE, **options))
        return pools[-1]

    async with nothing_left():
        yield make
        for pool in pools:
            await pool.aclose()


async def test_workers_start_when_they_are_needed(make_pool):
    pool = make_pool(3)
    assert pool.alive == 0
    pids = {await pool.call("pid") for _ in range(4)}
    assert (len(pids), pool.alive) == (1, 1)
    first, second = await asyncio.gather(pool.call("pid"), pool.call("pid"))
    assert first != second
    assert pool.alive == 2


async def test_there_are_never_more_than_allowed(make_pool):
    pool = make_pool(2)
    pids = await asyncio.gather(*(pool.call("pid") for _ in range(10)))
    assert len(set(pids)) == 2


async def test_all_may_be_started_at_once(make_pool):
    pool = make_pool(2)
    await pool.start()
    assert pool.alive == 2
    await pool.start()
    assert pool.alive == 2
    assert len(set(await asyncio.gather(*(pool.call("pid") for _ in range(2))))) == 2
    assert pool.alive == 2


async def test_a_start_that_fails_says_so(monkeypatch):
    monkeypatch.setattr("sys.executable", "/nonexistent/python")
    pool = WorkerPool(MODULE, 2)
    with pytest.raises(WorkerDied):
        await pool.call("pid")
    with pytest.raises(WorkerDied, match="cannot be started"):
        await pool.start()
    monkeypatch.undo()
    pool = WorkerPool(MODULE, 1, environment=HERE)
    assert await pool.call("echo", value=1) == 1
    await pool.aclose()


async def test_one_that_died_or_was_killed_is_replaced(make_pool):
    pool = make_pool()
    first = await pool.call("pid")
    with pytest.raises(WorkerDied):
        await pool.call("vanish", status=1)
    second = await pool.call("pid")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(pool.call("sleep", seconds=600), 0.1)
    third = await pool.call("pid")
    assert len({first, second, third}) == 3
    assert not lives(second)
    assert pool.alive == 1


async def test_an_idle_worker_ends_after_a_while(make_pool):
    pool = make_pool(2, idle_seconds=0.3)
    pids = await asyncio.gather(pool.call("pid"), pool.call("pid"))
    assert await until(lambda: pool.alive == 0)
    assert await gone(pids)
    assert await pool.call("pid") not in pids


async def test_the_one_that_is_used_stays(make_pool):
    for seconds in (0.5, 5.0, 20.0):
        pool = make_pool(2, idle_seconds=seconds)
        await asyncio.gather(pool.call("pid"), pool.call("pid"))
        used = [await pool.call("pid")]
        while pool.alive == 2:
            used.append(await pool.call("pid"))
            await asyncio.sleep(0.02)
        used.append(await pool.call("pid"))
        if len(set(used)) == 1:
            break  # a busy machine may stop all for longer than a worker may be idle
    assert len(set(used)) == 1


async def test_a_long_call_is_not_idle(make_pool):
    pool = make_pool(idle_seconds=0.05)
    assert await pool.call("spin", seconds=0.3) > 0


async def test_a_worker_is_replaced_after_so_many_calls(make_pool):
    pool = make_pool(max_calls=3)
    pids = [await pool.call("pid") for _ in range(7)]
    assert [pids.index(pid) for pid in pids] == [0, 0, 0, 3, 3, 3, 6]
    assert await gone(pids[:6])


async def test_a_call_cancelled_while_its_worker_starts(make_pool):
    pool = make_pool()
    for steps in range(8):
        call = asyncio.create_task(pool.call("pid"))
        for _ in range(steps):
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert await pool.call("echo", value=1) == 1


async def test_closing_ends_calls_under_way_and_refuses_more(make_pool):
    pool = make_pool(2)
    working = await pool.call("pid")
    calls = [asyncio.create_task(pool.call("sleep", seconds=600)) for _ in range(4)]
    await until(lambda: pool.alive == 2)
    await asyncio.gather(pool.aclose(), pool.aclose())
    ended = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(each) for each in ended} == {WorkerDied, RuntimeError}
    assert not lives(working)
    with pytest.raises(RuntimeError, match="pool is closed"):
        await pool.call("pid")
    with pytest.raises(RuntimeError, match="pool is closed"):
        await pool.start()


async def test_closing_while_workers_start(make_pool):
    pool = make_pool(2)
    calls = [asyncio.create_task(pool.call("pid")) for _ in range(2)]
    await asyncio.sleep(0)
    await pool.aclose()
    for each in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(each, RuntimeError)


def test_two_event_loops_after_each_other():
    pool = WorkerPool(MODULE, environment=HERE)
    first = asyncio.run(pool.call("pid"))
    second = asyncio.run(pool.call("pid"))
    assert first != second

    async def close() -> None:
        assert await gone([first])
        await pool.call("pid")
        await pool.aclose()

    asyncio.run(close())


async def test_two_event_loops_at_once(make_pool):
    pool = make_pool()
    await pool.call("pid")
    with pytest.raises(RuntimeError, match="another event loop"):
        await asyncio.to_thread(asyncio.run, pool.call("pid"))
