"""Recordings from the simulator: the serving scheduler's own entries, in virtual time."""

from functools import cache
from typing import Any

from caesura.simulator.engine import simulate
from tests.simulator.simulated import OURS, SWAP, machine, session, workload


@cache
def crowded(handling: str = "caesura") -> list[dict[str, Any]]:
    """Twelve sessions with two calls each, on a machine that cannot hold them all."""
    sessions = [
        session(
            f"s{index}",
            (200 + 16 * index, 20, 1.0 + index % 5),
            (40, 12, 0.5 + index % 3),
            (24, 8),
            arrival=0.4 * index,
            kind=("search", "calculator", "weather")[index % 3],
        )
        for index in range(12)
    ]
    policy = {"caesura": OURS, "swap": SWAP}[handling]
    run = simulate(
        workload(*sessions), machine(blocks=70, blocks_per_second=400), policy, records=True
    )
    return run.records
