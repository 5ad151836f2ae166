"""Engines that sleep: vLLM's own routes, in vLLM's order, and which engines are kept."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from caesura.planning.application.application import Model
from caesura.planning.run.host import Endpoint, HostError, Replica
from caesura.planning.run.measure import measure_sleeps
from caesura.planning.run.processes import CpuDevices, ProcessHost
from caesura.planning.run.sleep import DEV_MODE, SleepHost, SleepRoutes, check_sleep_mode
from tests.planning.run.sleeping import LARGE, SMALL, OneEngineHost, SleepyClient, SleepyServer


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.mark.parametrize(
    ("level", "calls"),
    [
        (0, ["sleep 0 abort", "release", "wake ['kv_cache']"]),
        (1, ["sleep 1 abort", "wake None"]),
        (2, ["sleep 2 abort", "wake ['weights']", "reload_weights", "wake ['kv_cache']"]),
    ],
)
async def test_a_sleep_and_a_wake_up_call_what_vllm_needs_at_each_level(
    http: aiohttp.ClientSession, level: int, calls: list[str]
) -> None:
    server = SleepyServer()
    routes = SleepRoutes(http, await server.start())
    client = server.client
    await routes.sleep(level)
    assert await routes.is_sleeping()
    assert client.resident == ({"weights"} if level == 0 else set())
    await routes.wake_up(level)
    await server.stop()
    assert client.calls == calls
    assert client.weights and client.scheduling and client.resident == {"weights", "kv_cache"}


async def test_the_prefix_cache_is_reset_on_the_host_too(http: aiohttp.ClientSession) -> None:
    server = SleepyServer()
    await SleepRoutes(http, await server.start()).reset_prefix_cache()
    await server.stop()
    assert server.client.calls == ["reset True"]


async def test_a_server_without_the_routes_is_told_how_to_have_them(
    http: aiohttp.ClientSession,
) -> None:
    server = SleepyServer(dev_mode=False)
    routes = SleepRoutes(http, await server.start())
    with pytest.raises(HostError, match="--enable-sleep-mode and the environment variable VLLM_S"):
        await routes.sleep(1)
    await server.stop()


async def test_an_engine_that_is_gone_raises_a_host_error(http: aiohttp.ClientSession) -> None:
    with pytest.raises(HostError, match="does not answer"):
        await SleepRoutes(http, Endpoint("http://127.0.0.1:9/v1", "x")).sleep(1)


async def test_sleeping_and_waking_up_are_timed_at_each_level() -> None:
    """A call takes a second of this clock, and twice as long at level 2."""
    server = SleepyServer()
    client = server.client

    def clock() -> float:
        return float(sum(2 if "2" in call else 1 for call in client.calls))

    found = await measure_sleeps(await server.start(), clock)
    await server.stop()
    assert [each.level for each in found] == [0, 1, 2]
    assert [each.sleep_seconds for each in found] == [2.0, 1.0, 2.0]
    assert [each.wake_seconds for each in found] == [1.0, 1.0, 3.0]
    assert client.scheduling and client.resident == {"weights", "kv_cache"}


async def test_an_engine_without_the_routes_cannot_be_timed() -> None:
    server = SleepyServer(dev_mode=False)
    with pytest.raises(HostError, match="start vLLM's server with --enable-sleep-mode"):
        await measure_sleeps(await server.start(), lambda: 0.0)
    await server.stop()


class Machine:
    """A `SleepHost` and the hosts that it has made; the first holds no engine."""

    def __init__(self, **options: int) -> None:
        self.made: list[OneEngineHost] = []
        self.host = SleepHost(lambda: OneEngineHost(self.made), **options)

    @property
    def running(self) -> list[str]:
        """The models whose processes run, awake or asleep."""
        return [
            next(iter(each.placed.values())).model.name for each in self.made[1:] if not each.closed
        ]

    def client(self, number: int) -> SleepyClient:
        server = self.made[1 + number].server
        assert server is not None
        return server.client


async def loaded(machine: Machine, replica: Replica) -> Endpoint:
    await machine.host.place(replica)
    return await machine.host.load(replica)


async def test_an_evicted_engine_sleeps_and_the_next_replica_in_its_place_wakes_it() -> None:
    machine = Machine()
    first = Replica(SMALL, 0, (0,))
    endpoint = await loaded(machine, first)
    await machine.host.evict(first)
    assert not await machine.host.alive(first)
    large = Replica(LARGE, 0, (0,))
    await loaded(machine, large)
    assert machine.running == ["small", "large"]
    await machine.host.evict(large)
    again = Replica(SMALL, 1, (0,))
    assert await loaded(machine, again) == endpoint
    assert await machine.host.alive(again)
    assert machine.client(0).calls == ["sleep 1 abort", "wake None"]
    assert machine.running == ["small", "large"]
    await machine.host.close()
    assert machine.running == []


async def test_devices_of_engines_that_are_awake_are_taken() -> None:
    machine = Machine()
    await loaded(machine, Replica(SMALL, 0, (0,)))
    with pytest.raises(HostError, match="holds a device"):
        await machine.host.place(Replica(LARGE, 0, (0, 1)))
    await machine.host.close()


@pytest.mark.parametrize("other", [Replica(SMALL, 1, (1,)), Replica(SMALL, 1, (0,), 1 << 20)])
async def test_an_engine_is_started_where_none_sleeps_in_the_same_place(other: Replica) -> None:
    machine = Machine()
    first = Replica(SMALL, 0, (0,))
    await loaded(machine, first)
    await machine.host.evict(first)
    await loaded(machine, other)
    assert machine.running == ["small", "small"]
    await machine.host.close()


async def test_an_engine_that_cannot_sleep_or_wake_up_ends_and_another_is_started() -> None:
    machine = Machine()
    first, second = Replica(SMALL, 0, (0,)), Replica(SMALL, 1, (0,))
    await loaded(machine, first)
    machine.client(0).fails = True
    await machine.host.evict(first)
    assert machine.running == []
    await loaded(machine, second)
    await machine.host.evict(second)
    machine.client(1).fails = True
    await loaded(machine, Replica(SMALL, 2, (0,)))
    assert [each.closed for each in machine.made[1:]] == [True, True, False]
    await machine.host.close()


async def test_the_engine_that_sleeps_longest_ends_when_too_many_sleep_on_a_device() -> None:
    machine = Machine(max_asleep=2)
    for name in ("a", "b", "c"):
        replica = Replica(Model(name, name), 0, (0,))
        await loaded(machine, replica)
        await machine.host.evict(replica)
    assert machine.running == ["b", "c"]
    await machine.host.close()


async def test_a_level_that_vllm_does_not_have_is_refused() -> None:
    with pytest.raises(HostError, match="there is no sleep level 3: use 0, 1 or 2"):
        Machine(level=3)


@pytest.mark.slow
async def test_a_machine_without_sleep_mode_is_refused_with_the_reason() -> None:
    """The tests run on vLLM's CPU build."""
    with pytest.raises(HostError, match=r"no sleep mode on this machine's devices \(cpu\)"):
        await check_sleep_mode()


@pytest.mark.slow
async def test_a_real_server_has_the_routes_and_answers_after_a_sleep(
    http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """On a CPU vLLM frees no memory, but stops and resumes the scheduler as on a GPU."""
    host = ProcessHost(CpuDevices(1), tmp_path, environment=DEV_MODE)
    one = Replica(Model("tiny", ""), 0, (0,), 64 << 20)
    try:
        await host.place(one)
        endpoint = await host.load(one)
        routes = SleepRoutes(http, endpoint)
        assert not await routes.is_sleeping()
        await routes.reset_prefix_cache()
        for level in (1, 2):
            await routes.sleep(level)
            assert await routes.is_sleeping()
            await routes.wake_up(level)
            assert not await routes.is_sleeping()
        body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
        async with http.post(f"{endpoint.url}/chat/completions", json=body) as answer:
            assert (await answer.json())["usage"]["completion_tokens"] == 4
    finally:
        await host.close()
