"""Hosts by the names that `caesura run --backend` knows, imported when they are made."""

import asyncio
from pathlib import Path

from caesura.planning.run.host import EngineHost

BACKENDS = ("processes", "sleep", "ray")


async def host_named(name: str, devices: int, logs: Path, *, sleep_level: int = 1) -> EngineHost:
    """Return a host of `devices`, which writes the engines' logs into a directory.

    `sleep_level` says what engines of the host `sleep` give up when they are evicted.

    Raises `HostError` if the machines have fewer devices or no sleep mode, and `LookupError` for an
    unknown name.
    """
    if name == "processes":
        from caesura.planning.run.processes import ProcessHost

        return ProcessHost(devices, logs)
    if name == "sleep":
        from caesura.planning.run.sleep import sleeping_processes

        return await sleeping_processes(devices, logs, level=sleep_level)
    if name == "ray":
        from caesura.planning.run.ray import RayHost

        return await asyncio.to_thread(RayHost, devices, logs)
    raise LookupError(f"unknown backend {name!r}; choose from: {', '.join(BACKENDS)}")
