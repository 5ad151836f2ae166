"""The table of pauses on models whose layers differ: the default beside stock with offloading."""

from types import SimpleNamespace
from typing import Any

from benchmarks.layered import CASES, POLICIES, rows, table
from caesura.simulator.latency.machines import make_machine


def made(policy: str, rate: float, seed: int, latency: float) -> Any:
    figures = SimpleNamespace(
        latency_mean=latency, latency_p99=2 * latency, ttft_mean=0.5, recompute_share=0.25
    )
    cell = SimpleNamespace(rate=rate, seed=seed, policy=SimpleNamespace(name=policy))
    return SimpleNamespace(cell=cell, figures=figures)


def test_a_row_has_the_means_of_both_and_a_ratio_for_each_seed() -> None:
    case = CASES[0]
    seconds = {POLICIES[0]: (6.0, 12.0), POLICIES[1]: (8.0, 10.0)}
    runs = [
        made(name, rate, seed, latency)
        for rate in case.rates
        for name in POLICIES
        for seed, latency in zip(case.seeds, seconds[name], strict=True)
    ]
    lines = rows(case, runs)
    assert len(lines) == len(case.rates)
    cells = ("9 / 9", "0.75, 1.20", "18 / 18", "0.5 / 0.5", "25.0 / 25.0")
    assert lines[0] == (case.name, f"{case.rates[0]}", *cells)
    assert len(table(lines).columns) == len(lines[0])


def test_the_machines_have_windows_or_states() -> None:
    for case in CASES:
        layers = make_machine(case.machine).layers
        assert any(some.window or some.state_bytes for some in layers)
