"""The engines of one node of a cluster: what an actor there runs."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from caesura.planning.run.backends.command import engine_command, local_devices
from caesura.planning.run.backends.processes import ProcessHost
from caesura.planning.run.host import Endpoint, EngineHost, HostError, Replica

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
