"""The table of pauses on models whose layers differ: each policy beside stock with offloading."""

from types import SimpleNamespace
from typing import Any

from benchmarks.dominance.cases import STOCK
from benchmarks.layered import CASES, POLICIES, rows, table
from caesura.simulator.latency.machines import make_machine


def made(policy: str, rate: float, latency: float) -> Any:
    figures = SimpleNamespace(
        latency_mean=latency, latency_p99=2 * latency, ttft_mean=0.5, recompute_share=0.25
    )
    cell = SimpleNamespace(rate=rate, policy=SimpleNamespace(name=policy))
    return SimpleNamespace(cell=cell, figures=figures)


def test_each_policy_stands_beside_stock_with_offloading_and_the_least_is_marked() -> None:
    runs = [made(name, 0.5, 10.0 + index) for index, name in enumerate(POLICIES)]
    lines = rows(CASES[0], [1.0], [0.5], runs)
    assert len(lines) == len(POLICIES)
    assert "| `fcfs` | **10** | 20 | 0.5 | 25.0% | 0.71 |" in lines[0]
    assert f"| `{STOCK}` | 14 | 28 | 0.5 | 25.0% | 1.00 |" in lines[-1]
    head, rule, *others = table(lines).splitlines()
    assert head.count("|") == rule.count("|") == others[0].count("|")


def test_the_machines_have_windows_or_states() -> None:
    for case in CASES:
        layers = make_machine(case.machine).layers
        assert any(some.window or some.state_bytes for some in layers)
