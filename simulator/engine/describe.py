"""The inputs that determine a run, as plain data."""

from dataclasses import asdict, fields
from typing import Any

import vllm

from caesura.scheduler.settings import Settings
from caesura.simulator.engine.core import IDLE_SECONDS
from caesura.simulator.engine.plan import Plan, cost_of
from caesura.simulator.machine import Machine
from caesura.simulator.policy import Policy
from caesura.simulator.session import Workload


def describe(
    workload: Workload, machine: Machine, policy: Policy, plan: Plan, window: float | None
) -> dict[str, Any]:
    """Return the inputs that determine a run, besides its sessions and its seed.

    All settings are there, with the defaults too.
    """
    settings = asdict(Settings.from_mapping(policy.settings)) if policy.engine == "caesura" else {}
    cost = cost_of(machine, policy).to_wire()
    return {
        "policy": {
            **_plain(policy),
            "settings": settings,
            "fleet": None if policy.fleet is None else asdict(policy.fleet),
        },
        "machine": {**_plain(machine), "latency": machine.latency.name, "cost": cost},
        "workload": {
            "name": workload.name,
            "about": workload.about,
            "sessions": len(workload.sessions),
            "clients": workload.clients,
        },
        "window": window,
        "vllm": vllm.__version__,
        "model_tokens": plan.model_tokens,
        "blocks": plan.blocks,
        "host_blocks": plan.host_blocks,
        "idle_seconds": IDLE_SECONDS,
        "asynchronous": False,
    }


def _plain(record: Machine | Policy) -> dict[str, Any]:
    return {item.name: getattr(record, item.name) for item in fields(record)}


def rate_of(workload: Workload) -> float:
    """Return the mean number of arrivals per second; 0.0 in a closed loop."""
    sessions = workload.sessions
    if workload.clients or not sessions or sessions[-1].arrival <= 0:
        return 0.0
    return len(sessions) / sessions[-1].arrival
