"""Engines on the nodes of a Ray cluster.

Each node that the run uses is reserved by a placement group, and holds an actor that starts engines
as processes of its node. So Ray knows which devices are taken, and the engines are the same as on
one machine. An engine that spans nodes is started on the first of them, and vLLM's own Ray executor
puts its workers on all of them.
"""

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from caesura.distribution import install
from caesura.planning.run.host import Endpoint, EngineHost, HostError, Replica
from caesura.planning.run.processes import (
    POLL_SECONDS,
    ProcessHost,
    engine_command,
    local_devices,
)

RAY_EXECUTOR = ("--distributed-executor-backend", "ray")
"""Lets vLLM find the devices of an engine that spans nodes, by a placement group of its own."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a node's engines are given: its address, and how many devices it holds for the run.

    `cluster` is the cluster's address for engines that span nodes, otherwise empty.
    """

    address: str
    devices: int
    cluster: str = ""


MakeHost = Callable[[NodeFacts], EngineHost]
"""Makes the host of a node's engines, on that node."""


class NodeEngines:
    """A host of one node, whose replicas have devices numbered within the node.

    `address` returns the address of the node that it runs on.
    """

    def __init__(
        self, make: MakeHost, address: Callable[[], str], devices: int, cluster: str = ""
    ) -> None:
        self._host = make(NodeFacts(address(), devices, cluster))

    async def ping(self) -> bool:
        """Return True, as long as the node is there."""
        return True

    async def load(self, replica: Replica) -> Endpoint:
        """Place a replica and start its engine; raises `HostError`."""
        await self._host.place(replica)
        try:
            return await self._host.load(replica)
        except HostError:
            await self._host.evict(replica)
            raise

    async def drain(self, replica: Replica, seconds: float) -> bool:
        """Wait until the engine runs no request; return False if `seconds` passed before."""
        return await self._host.drain(replica, seconds)

    async def evict(self, replica: Replica) -> None:
        """Stop the replica's engine."""
        await self._host.evict(replica)

    async def alive(self, replica: Replica) -> bool:
        """Return whether the replica's engine runs."""
        return await self._host.alive(replica)

    async def close(self) -> None:
        """Stop all engines of the node."""
        await self._host.close()


def node_processes(logs: Path, api_key: str, node: NodeFacts) -> EngineHost:
    """Return a host of processes of this node, which clients on other nodes reach with a key."""
    if not node.cluster:
        command = partial(engine_command, host=node.address)
        return ProcessHost(local_devices(node.devices), logs, command=command, api_key=api_key)
    return ProcessHost(
        _AllDevices(node.devices),
        logs,
        command=partial(engine_command, more=RAY_EXECUTOR, host=node.address),
        environment={"RAY_ADDRESS": node.cluster},
        api_key=api_key,
    )


@dataclass(frozen=True, slots=True)
class _AllDevices:
    """Devices of several nodes, which vLLM's executor binds its workers to."""

    count: int

    def environment(self, devices: Sequence[int]) -> dict[str, str]:
        return {}

    def cpus(self, devices: Sequence[int]) -> tuple[int, ...]:
        return tuple(sorted(os.sched_getaffinity(0)))


RESERVE_SECONDS = 60.0
"""How long Ray may take to reserve a node, and to start its actor."""
ANSWER_SECONDS = 10.0
"""How long an actor may take to answer before Ray is asked whether its node is there."""
LOST_SECONDS = 90.0
"""How long a node may be there for Ray without an answer before it counts as lost."""
STOP_SECONDS = 30.0
GPU, CPU = "GPU", "CPU"
NODE_ID = "ray.io/node-id"
"""The label of a node that Ray makes from its id."""
GONE = "has gone away from the Ray cluster"
# Ray would otherwise hide all GPUs from an actor that reserves none itself.
_SHOW_DEVICES = {"env_vars": {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}}


@dataclass(slots=True)
class _Node:
    """A reserved node: its Ray id, and the run's numbers of its devices."""

    id: str
    devices: range
    resource: str
    group: Any = None
    actor: Any = None
    used: set[str] = field(default_factory=set)
    """The names of replicas on its devices."""


@dataclass(frozen=True, slots=True)
class _Held:
    """A placed replica: as its actor knows it, its nodes, and the actor if it spans several."""

    local: Replica
    nodes: tuple[_Node, ...]
    spanning: Any = None

    @property
    def actor(self) -> Any:
        """Return the actor that holds its engine, or None while an engine spans its node."""
        return self.spanning or self.nodes[0].actor


class RayHost:
    """Holds engines on the nodes of a Ray cluster, with devices numbered node after node.

    A device is a GPU; where no node has any, it is a CPU as Ray counts them (`ray start
    --num-cpus`). `address` is the cluster's, by default that of RAY_ADDRESS or of this machine.
    `make` makes the host of a node's engines there; `logs` is their directory on each node.

    Raises `HostError` without Ray, without a cluster, or if it has fewer devices.
    """

    def __init__(
        self, devices: int, logs: Path, *, address: str = "", make: MakeHost | None = None
    ) -> None:
        self._ray, self._connects = _connected(address or os.environ.get("RAY_ADDRESS", "auto"))
        key = secrets.token_urlsafe(24)
        self._make = make or partial(node_processes, logs, key)
        self._held: dict[str, _Held] = {}
        self._nodes: list[_Node] = []
        try:
            self._nodes = _choose(self._ray.nodes(), devices)
            for node in self._nodes:
                self._reserve(node)
        except BaseException:
            self._leave()
            raise

    @property
    def devices(self) -> int:
        """Return the number of devices."""
        return sum(len(node.devices) for node in self._nodes)

    async def place(self, replica: Replica) -> None:
        """Find the replica's nodes; one that spans nodes must have all devices of each."""
        nodes = tuple(node for node in self._nodes if set(node.devices) & set(replica.devices))
        known = {device for node in nodes for device in node.devices}
        if not set(replica.devices) <= known:
            raise HostError(f"{replica.name} is on devices {replica.devices}, not all of the run's")
        if len(nodes) > 1:
            self._check_spanning(replica, nodes, known)
        first = nodes[0].devices.start
        numbers = tuple(device - first for device in replica.devices)
        local = replace(replica, devices=numbers if len(nodes) == 1 else tuple(range(len(known))))
        for node in nodes:
            node.used.add(replica.name)
        self._held[replica.name] = _Held(local, nodes)

    async def load(self, replica: Replica) -> Endpoint:
        """Start the engine on its node, or its driver on the first of its nodes."""
        held = self._held[replica.name]
        if len(held.nodes) > 1:
            held = self._held[replica.name] = replace(held, spanning=await self._span(held))
        endpoint: Endpoint = await self._answer(replica.name, held.actor.load.remote(held.local))
        return endpoint

    async def drain(self, replica: Replica, seconds: float) -> bool:
        """Wait until the engine runs no request; return False if `seconds` passed before."""
        held = self._held.get(replica.name)
        if held is None or held.actor is None:
            return True
        drained = held.actor.drain.remote(held.local, seconds)
        return bool(await self._answer(replica.name, drained, seconds + ANSWER_SECONDS))

    async def evict(self, replica: Replica) -> None:
        """Stop the engine, and give its devices back to other replicas of the run."""
        held = self._held.pop(replica.name, None)
        if held is None:
            return
        for node in held.nodes:
            node.used.discard(replica.name)
        try:
            if held.actor is not None:
                evicted = held.actor.evict.remote(held.local)
                await self._answer(replica.name, evicted, STOP_SECONDS)
        finally:
            if held.spanning is not None:
                self._ray.kill(held.spanning)
                await self._reserve_again(held.nodes)

    async def alive(self, replica: Replica) -> bool:
        """Return whether the engine runs, and its node is there."""
        held = self._held.get(replica.name)
        if held is None or held.actor is None:
            return False
        with suppress(HostError):
            answer = held.actor.alive.remote(held.local)
            return bool(await self._answer(replica.name, answer, ANSWER_SECONDS))
        return False

    async def usable(self) -> tuple[int, ...]:
        """Return the devices of nodes that answer."""
        there = await asyncio.gather(*(self._is_there(node) for node in self._nodes))
        return tuple(
            device
            for node, answers in zip(self._nodes, there, strict=True)
            if answers
            for device in node.devices
        )

    async def close(self) -> None:
        """Stop all engines, and leave the cluster. Idempotent."""
        actors = [node.actor for node in self._nodes if node.actor is not None]
        actors += [held.spanning for held in self._held.values() if held.spanning is not None]
        self._held.clear()
        stopped = (self._answer("", actor.close.remote(), STOP_SECONDS) for actor in actors)
        await asyncio.gather(*stopped, return_exceptions=True)
        await asyncio.to_thread(self._leave)

    # -- nodes -----------------------------------------------------------------------------------

    def _reserve(self, node: _Node) -> None:
        """Reserve a node's devices, and start the actor that holds its engines."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        count = len(node.devices)
        node.group = self._ray.util.placement_group(
            [{node.resource: count}], bundle_label_selector=[{NODE_ID: node.id}]
        )
        if not node.group.wait(RESERVE_SECONDS):
            raise HostError(
                f"Ray could not reserve {count} {node.resource} of a node within"
                f" {RESERVE_SECONDS:g} s: others hold them (`ray status` shows what is free)"
            )
        needs = {"num_gpus": count} if node.resource == GPU else {"num_cpus": count}
        strategy = PlacementGroupSchedulingStrategy(node.group, 0)
        # An actor that ends while its node is there comes back, without engines.
        options = {**needs, "scheduling_strategy": strategy, "max_restarts": -1}
        node.actor = self._new_actor(count, "", options)

    def _free(self, node: _Node) -> None:
        """Give a node's devices back to Ray."""
        if node.actor is not None:
            self._ray.kill(node.actor)
        if node.group is not None:
            self._ray.util.remove_placement_group(node.group)
        node.actor = node.group = None

    def _new_actor(self, devices: int, cluster: str, options: Mapping[str, Any]) -> Any:
        engines = self._ray.remote(NodeEngines).options(**options)
        return engines.remote(self._make, self._ray.util.get_node_ip_address, devices, cluster)

    async def _span(self, held: _Held) -> Any:
        """Return a new actor on the first node, whose engine's workers reserve all of the nodes."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        for node in held.nodes:
            await asyncio.to_thread(self._free, node)
        options = {
            "num_cpus": 0,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(held.nodes[0].id, soft=False),
            "runtime_env": _SHOW_DEVICES,
        }
        cluster = self._ray.get_runtime_context().gcs_address
        return self._new_actor(len(held.local.devices), cluster, options)

    async def _reserve_again(self, nodes: tuple[_Node, ...]) -> None:
        for node in nodes:
            await asyncio.to_thread(self._reserve, node)

    def _check_spanning(self, replica: Replica, nodes: tuple[_Node, ...], known: set[int]) -> None:
        others = set().union(*(node.used for node in nodes)) - {replica.name}
        if set(replica.devices) != known or others:
            raise HostError(
                f"{replica.name} spans {len(nodes)} nodes, and must have all of their devices"
                f" {sorted(known)} for itself, but has {sorted(replica.devices)}: choose a"
                " tensor-parallel size that fits into a node, or takes whole nodes"
            )

    async def _is_there(self, node: _Node) -> bool:
        """Return whether a node answers; one whose devices an engine spans does so by Ray.

        A busy node may be slow to answer, and Ray slow to notice that it has gone.
        """
        began = monotonic()
        while await self._is_known(node):
            if node.actor is None:
                return True
            with suppress(HostError):
                return bool(await self._answer("a node", node.actor.ping.remote(), ANSWER_SECONDS))
            if monotonic() - began > LOST_SECONDS:
                return False
            await asyncio.sleep(POLL_SECONDS)
        return False

    async def _is_known(self, node: _Node) -> bool:
        """Return whether a node is there for Ray."""
        nodes = await asyncio.to_thread(self._ray.nodes)
        return any(each["NodeID"] == node.id and each["Alive"] for each in nodes)

    async def _answer(self, name: str, answer: Awaitable[Any], seconds: float | None = None) -> Any:
        """Return what an actor answers; raise `HostError` for its errors, or if it is lost."""
        from ray.exceptions import RayError, RayTaskError

        try:
            async with asyncio.timeout(seconds):
                return await answer
        except RayTaskError as error:
            if isinstance(error.cause, HostError):
                raise HostError(str(error.cause)) from None
            raise
        except (RayError, TimeoutError) as error:
            raise HostError(f"the node of {name} {GONE}: {type(error).__name__}") from error

    def _leave(self) -> None:
        for node in self._nodes:
            with suppress(Exception):  # the cluster itself may have gone
                self._free(node)
        self._nodes = []
        if self._connects:
            self._ray.shutdown()


def _connected(address: str) -> tuple[Any, bool]:
    """Return the module `ray`, connected to a cluster, and whether that was done here."""
    try:
        import ray
    except ImportError as error:
        raise HostError(f"this backend needs Ray: {install('ray')}") from error
    if ray.is_initialized():
        return ray, False
    try:
        _check_reachable(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        raise HostError(
            f"there is no Ray cluster at {address!r}: start one with `ray start --head`, or name"
            f" another in RAY_ADDRESS ({error})"
        ) from error
    return ray, True


def _check_reachable(address: str) -> None:
    """Raise `OSError` if a cluster's HOST:PORT does not answer: Ray would wait for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal() and "/" not in host:
        socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS).close()


def _choose(nodes: list[dict[str, Any]], devices: int) -> list[_Node]:
    """Return nodes with so many devices together, those with the most devices first."""
    alive = [node for node in nodes if node["Alive"]]
    resource = GPU if any(node["Resources"].get(GPU) for node in alive) else CPU
    sizes = {node["NodeID"]: int(node["Resources"].get(resource, 0)) for node in alive}
    chosen: list[_Node] = []
    first = 0
    for name, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        if size and first < devices:
            end = min(first + size, devices)
            chosen.append(_Node(name, range(first, end), resource))
            first = end
    if first < devices:
        raise HostError(
            f"{devices} devices were asked for, but the nodes of the Ray cluster have"
            f" {first} {resource}s"
        )
    return chosen
