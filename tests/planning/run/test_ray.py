"""Engines on the nodes of a Ray cluster: several nodes' processes on this machine."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from caesura.planning.application.application import Model
from caesura.planning.plan import Makespan, Placement, Plan, Stage
from caesura.planning.run.conductor import Job, carry_out
from caesura.planning.run.host import Endpoint, EngineHost, HostError, Limits, Replica
from caesura.planning.run.journal import Journal, Result, events_path
from caesura.planning.run.processes import CpuDevices, ProcessHost
from caesura.planning.run.ray import NodeFacts, RayHost, node_processes
from tests.kit.waiting import until
from tests.planning.run.applications import application, question, requests

ray = pytest.importorskip("ray", reason="needs Ray: pip install -e '.[ray]'")

ENGINE = Path(__file__).with_name("engine_process.py")


class Nodes:
    """A local Ray cluster: a head without devices, and nodes that can be taken away."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **SMALL})
        self.nodes = {}

    def add(self, name: str, cpus: int) -> None:
        self.nodes[name] = self.cluster.add_node(num_cpus=cpus, **SMALL)
        self.cluster.wait_for_nodes()

    def remove(self, name: str) -> None:
        self.cluster.remove_node(self.nodes.pop(name), allow_graceful=False)

    def settle(self) -> None:
        """Wait until Ray knows which nodes are there."""
        self.cluster.wait_for_nodes()


SMALL = {"object_store_memory": 80 << 20, "include_dashboard": False}


def stand_in(folder: Path, one: Replica) -> Sequence[str]:
    return [sys.executable, str(ENGINE), one.name, "serve", str(folder)]


def node_host(folder: Path, node: NodeFacts) -> EngineHost:
    """Return a node's host of stand-ins, which run on any processor of this machine."""
    (folder / f"node-{node.devices}").write_text(f"{node.address} {node.cluster}")
    command = partial(stand_in, folder)
    slow = {"ANSWER_SECONDS": "0.2"}
    devices = AnyDevices(node.devices)
    return ProcessHost(devices, folder / "logs", command=command, environment=slow)


class AnyDevices(CpuDevices):
    """Devices of the tests' nodes, which are more than this machine has processors."""

    def __post_init__(self) -> None:
        pass

    def environment(self, devices: Sequence[int]) -> dict[str, str]:
        return {}

    def cpus(self, devices: Sequence[int]) -> tuple[int, ...]:
        return (0, 1)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    nodes = Nodes()
    nodes.add("large", 2)
    nodes.add("small", 1)
    yield nodes
    nodes.cluster.shutdown()


class Hosts:
    """Makes hosts on the cluster, and closes them."""

    def __init__(self, nodes: Nodes, folder: Path) -> None:
        self._nodes = nodes
        self._folder = folder
        self._made: list[RayHost] = []

    def of(self, devices: int) -> RayHost:
        make = partial(node_host, self._folder)
        self._made.append(
            RayHost(devices, self._folder, address=self._nodes.cluster.address, make=make)
        )
        return self._made[-1]

    async def close(self) -> None:
        for host in self._made:
            await host.close()


@pytest.fixture
async def hosts(nodes: Nodes, tmp_path: Path) -> AsyncIterator[Hosts]:
    hosts = Hosts(nodes, tmp_path)
    yield hosts
    await hosts.close()


def replica(name: str, *devices: int, kv_bytes: int = 0) -> Replica:
    return Replica(Model(name, f"/models/{name}"), 0, devices, kv_bytes)


async def ask(endpoint: Endpoint, text: str) -> str:
    body = {"model": endpoint.model, "messages": [{"role": "user", "content": text}]}
    headers = {"Authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}
    url = f"{endpoint.url}/chat/completions"
    async with aiohttp.ClientSession() as http, http.post(url, json=body, headers=headers) as got:
        answer = await got.json()
        return str(answer["choices"][0]["message"]["content"])


@pytest.mark.slow
async def test_engines_run_on_the_nodes_of_their_devices(hosts: Hosts) -> None:
    host = hosts.of(3)
    assert host.devices == 3
    assert ray.available_resources().get("CPU", 0) == 0
    here, there = replica("a", 0, 1), replica("b", 2)
    for one in (here, there):
        await host.place(one)
        assert await ask(await host.load(one), "hi") == "<hi>"
        assert await host.alive(one)
    assert await host.drain(here, 5)
    with pytest.raises(HostError, match="can't be placed on device 1: a-0 holds it"):
        await host.place(second := replica("c", 1))
        await host.load(second)
    await host.evict(second)
    await host.evict(here)
    assert not await host.alive(here)
    assert await host.alive(there)
    await host.close()
    assert not ray.is_initialized()


@pytest.mark.slow
async def test_a_node_that_goes_away_takes_its_engines_and_devices_with_it(
    nodes: Nodes, hosts: Hosts, tmp_path: Path
) -> None:
    nodes.add("lost", 1)
    host = hosts.of(4)
    replicas = [replica(f"on-{device}", device) for device in range(4)]
    for one in replicas:
        await host.place(one)
        await host.load(one)
    assert await host.usable() == (0, 1, 2, 3)
    nodes.remove("lost")
    for _ in range(300):  # its processes end one after another
        if len(await host.usable()) == 3:
            break
        await asyncio.sleep(0.1)
    alive = [await host.alive(one) for one in replicas]
    usable = await host.usable()
    assert alive == [device in usable for device in range(4)]
    assert len(usable) == 3 and {0, 1} < set(usable)
    [gone] = set(range(4)) - set(usable)
    with pytest.raises(HostError, match="has gone away from the Ray cluster"):
        await host.evict(replicas[gone])
    with pytest.raises(HostError, match="has gone away from the Ray cluster"):
        await host.place(again := replica("again", gone))
        await host.load(again)
    nodes.settle()


@pytest.mark.slow
async def test_a_node_that_is_slow_to_answer_is_not_lost(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = hosts.of(3)
    await host.place(one := replica("one", 2))
    await host.load(one)
    seconds = iter([0.0, 0.0, 0.0])

    def patience(self: RayHost, name: str, answer: Any, limit: float | None = None) -> Any:
        return usual(self, name, answer, next(seconds, limit))

    usual = RayHost._answer
    monkeypatch.setattr(RayHost, "_answer", patience)
    assert await host.usable() == (0, 1, 2)
    assert next(seconds, None) is None


@pytest.mark.slow
async def test_an_engine_that_spans_nodes_leaves_their_devices_to_vllm(
    nodes: Nodes, hosts: Hosts, tmp_path: Path
) -> None:
    """Stands for vLLM's Ray executor: the devices that it must reserve are free, then taken."""
    host = hosts.of(3)
    with pytest.raises(HostError, match=r"spans 2 nodes, and must have all .* \[0, 1, 2\]"):
        await host.place(replica("part", 1, 2))
    wide = replica("wide", 0, 1, 2)
    await host.place(wide)
    with pytest.raises(HostError, match="for itself"):
        await host.place(replica("other", 0, 1, 2))
    endpoint = await host.load(wide)
    assert await ask(endpoint, "hi") == "<hi>"
    assert ray.available_resources()["CPU"] == 3
    assert (tmp_path / "node-3").read_text().endswith(f" {nodes.cluster.address}")
    await host.evict(wide)
    assert ray.available_resources().get("CPU", 0) == 0
    await host.place(one := replica("one", 2))
    assert await ask(await host.load(one), "hi") == "<hi>"


@pytest.mark.slow
def test_clusters_that_are_too_small_or_missing_are_refused(hosts: Hosts, tmp_path: Path) -> None:
    with pytest.raises(
        HostError, match=r"9 devices were asked for, but .* Ray cluster have 3 CPUs"
    ):
        hosts.of(9)
    with pytest.raises(HostError, match=r"no Ray cluster at '127.0.0.1:1': start one with `ray"):
        RayHost(1, tmp_path, address="127.0.0.1:1")


@pytest.mark.slow
async def test_a_run_goes_on_without_a_node_and_no_request_is_lost_or_done_twice(
    nodes: Nodes, hosts: Hosts, tmp_path: Path
) -> None:
    nodes.add("lost", 1)
    app, asked = application("a"), requests("a", rows=60)
    journal = Journal(tmp_path / "out.jsonl", app)

    def plan(devices: int) -> Plan:
        return Plan("test", devices, (Stage((Placement("a", devices),)),), Makespan(1, 1, 1))

    hold = tmp_path / "hold"  # Ray may take longer to notice than all requests do

    def at_ten(result: Result) -> None:
        if len(journal.done) >= 10 and "lost" in nodes.nodes:
            hold.touch()
            nodes.remove("lost")

    def devices() -> list[Any]:
        happened = events_path(tmp_path / "out.jsonl")
        events = [json.loads(line) for line in happened.read_text().splitlines()]
        return [event for event in events if event["event"] == "devices"]

    async def go_on() -> None:
        await until(lambda: hold.exists() and devices())
        hold.unlink()

    going_on = asyncio.create_task(go_on())
    try:
        async with asyncio.timeout(300):
            journal.watch_results(at_ten)
            job = Job(app, asked, question, lambda progress, devices: plan(devices))
            await carry_out(job, plan(4), hosts.of(4), journal, Limits(max_in_flight=2))
    finally:
        going_on.cancel()
        journal.close()
    keys = [json.loads(line)["key"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert sorted(keys) == sorted(each.key for each in asked)
    assert all(result.output == f"<{key}>" for key, result in journal.done.items())
    [gone] = devices()
    assert len(gone["usable"]) == 3
    nodes.settle()


@pytest.mark.slow
async def test_a_real_engine_on_a_node_asks_for_its_key(nodes: Nodes, tmp_path: Path) -> None:
    host = RayHost(1, tmp_path / "logs", address=nodes.cluster.address)
    one = Replica(Model("tiny", ""), 0, (0,), 64 << 20)
    try:
        await host.place(one)
        endpoint = await host.load(one)
        assert endpoint.kv_tokens > 0
        assert await ask(endpoint, "hi")
        with pytest.raises(KeyError, match="choices"):
            await ask(replace(endpoint, api_key="wrong"), "hi")
        assert await host.alive(one)
        assert await host.drain(one, 10)
        await host.evict(one)
    finally:
        await host.close()


def test_an_engine_that_spans_nodes_is_started_with_the_ray_executor(tmp_path: Path) -> None:
    host = node_processes(tmp_path, "key", NodeFacts("10.0.0.1", 4, "10.0.0.1:6379"))
    assert isinstance(host, ProcessHost)
    assert host.devices == 4
    command = " ".join(host.command(replica("wide", 0, 1, 2, 3)))
    assert "--host 10.0.0.1 " in command
    assert "--distributed-executor-backend ray --tensor-parallel-size 4" in command
