"""Tenants and programs in a simulation: what a client with many agents leaves to the others."""

from dataclasses import replace

import pytest

from caesura.simulator.engine import simulate
from caesura.simulator.results import RunResult

from .simulated import OURS, machine, session, with_settings, workload


def served(fair: str) -> RunResult:
    """A hundred agents of one tenant come at once, and then five sessions of another."""
    many = [session(f"many-{n}", (60, 20, 0.5), (10, 20), tenant="many") for n in range(100)]
    few = [
        session(f"few-{n}", (60, 20, 0.5), (10, 20), arrival=1.0 + n, kind="math", tenant="few")
        for n in range(5)
    ]
    policy = with_settings(OURS, fair=fair, ranking="fcfs")
    return simulate(workload(*many, *few), machine(), replace(policy, most_running=8))


def slowest(run: RunResult, kind: str) -> float:
    return max(one.latency for one in run.sessions if one.kind == kind)


def test_a_tenant_with_many_agents_leaves_their_share_to_others() -> None:
    shared, unshared = served("tenant"), served("off")
    assert slowest(shared, "math") < slowest(unshared, "math") / 2
    assert slowest(shared, "qa") < slowest(unshared, "qa") * 1.2


@pytest.mark.parametrize(
    ("tenant", "names", "sooner"),
    [("mine", True, True), ("else", True, False), ("mine", False, False)],
)
def test_a_sub_agent_is_served_at_its_parents_place(tenant: str, names: bool, sooner: bool) -> None:
    """Its parent came first; a session of another tenant that names that parent gains nothing."""
    parent = session("parent", (60, 20, 3.0), (10, 20), tenant="mine")
    others = [session(f"other-{n}", (60, 60), arrival=0.1, tenant="mine") for n in range(30)]
    child = session("child", (60, 20), tenant=tenant, parent="parent")
    by_arrival = with_settings(OURS, ranking="fcfs")
    policy = replace(by_arrival, most_running=2, names_parents=names)
    run = simulate(workload(parent, *others, child), machine(), policy)
    latency = {one.key: one.latency for one in run.sessions}
    assert (latency["child"] < latency["other-29"] / 3) is sooner
