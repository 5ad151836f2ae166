"""The systems, cells and words of the reproduction of LAMPS, and a run of it in small."""

import itertools
import math
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import pytest

from benchmarks.papers.lamps_claims import (
    CLAIMS,
    GPTJ,
    GPTJ_SINGLE_3,
    GPTJ_SINGLE_5,
    INFERCEPT,
    LAMPS,
    LATENCY,
    SINGLE,
    TTFT,
    VLLM,
    Claim,
)
from benchmarks.papers.lamps_findings import because, rows
from benchmarks.papers.lamps_plan import FIGURES
from benchmarks.papers.lamps_run import Found, Setup, cells
from benchmarks.papers.lamps_show import added, measures
from benchmarks.papers.lamps_systems import FROM_INFERCEPT, FROM_VLLM, SYSTEMS, mistaken
from benchmarks.papers.run import Measured
from caesura.scheduler.settings import Settings
from caesura.simulator.policy import Policy
from caesura.simulator.predict import make_predictor
from caesura.simulator.results import RunResult
from caesura.simulator.study.figures import Figures, figures
from caesura.simulator.study.pool import Task
from caesura.simulator.study.work import simulate_cell

PLAIN = Figures(
    sessions=100,
    unfinished=0,
    latency_mean=2.0,
    latency_median=2.0,
    latency_p99=9.0,
    ttft_mean=0.2,
    ttft_p99=0.6,
    normalized_latency=0.02,
    sessions_per_second=3.0,
    tokens_per_second=100.0,
    waste_recompute=0.0,
    waste_preserve=0.0,
    waste_stall=0.0,
    recompute_share=0.25,
    preemptions=0,
    steps=1000,
    stall_seconds=0.0,
    busy_share=0.5,
    memory_share=0.4,
    simulated_seconds=400.0,
    wall_seconds=1.0,
)


def made(setup: Setup, system: str, seed: int = 1, **changes: float) -> Measured:
    """Return a run of that system with these measures."""
    (cell,) = cells([(setup, system)], 60.0, (seed,))
    return Measured(cell, replace(PLAIN, **changes), Task(cell, Path("none"), ""))


def differences(one: Policy, other: Policy) -> set[str]:
    """Return what two policies of ours differ in, names apart; what is not set has its default."""
    left, right = (
        {**asdict(policy), **asdict(Settings(**policy.settings)), "name": "", "settings": ""}
        for policy in (one, other)
    )
    return {key for key in left if left[key] != right[key]}


@pytest.mark.parametrize("system", SYSTEMS)
def test_systems_can_be_built(system: str) -> None:
    policy = SYSTEMS[system]
    if policy.engine == "caesura":
        Settings.from_mapping(policy.settings)
        make_predictor(str(policy.settings.get("prediction", "history")), lambda key: None)
    assert policy.name == system


@pytest.mark.parametrize("number", FIGURES)
def test_what_is_wanted_is_there_and_the_quick_part_is_a_part(number: int) -> None:
    figure = FIGURES[number]
    quick, whole = set(figure.wanted(True)), set(figure.wanted(False))
    assert quick < whole
    assert {system for _, system in whole} <= set(SYSTEMS)


def test_claims_are_of_setups_that_are_run() -> None:
    for claim in CLAIMS:
        quick = set(FIGURES[claim.figure].wanted(True))
        assert {(claim.setup, claim.system), (claim.setup, claim.base)} <= quick


@pytest.mark.parametrize(
    ("chain", "steps"),
    [
        (FROM_INFERCEPT, [{"backfill"}, {"ranking", "prediction"}, {"handling", "prediction"}]),
        (FROM_VLLM[1:], [{"backfill"}, {"ranking"}]),
    ],
)
def test_steps_of_a_chain_change_one_thing(
    chain: tuple[tuple[str, str], ...], steps: list[set[str]]
) -> None:
    policies = [SYSTEMS[name] for name, _ in chain]
    found = [differences(before, after) for before, after in itertools.pairwise(policies)]
    assert found == steps


def test_cells_are_made_once_each_and_the_first_seed_first() -> None:
    wanted = [(GPTJ_SINGLE_3, LAMPS), (GPTJ_SINGLE_3, VLLM), (GPTJ_SINGLE_3, LAMPS)]
    made_cells = cells(wanted, 100.0, (4, 2))
    assert [(cell.policy.name, cell.seed) for cell in made_cells] == [
        (LAMPS, 4),
        (VLLM, 4),
        (LAMPS, 2),
        (VLLM, 2),
    ]
    assert all(cell.window == 1000.0 for cell in made_cells)


def test_quotients_pair_seeds() -> None:
    found = Found(
        [
            made(GPTJ_SINGLE_3, LAMPS, 1, latency_mean=1.0),
            made(GPTJ_SINGLE_3, LAMPS, 2, latency_mean=100.0),
            made(GPTJ_SINGLE_3, INFERCEPT, 1, latency_mean=4.0),
        ]
    )
    assert found.quotient(GPTJ_SINGLE_3, LAMPS, INFERCEPT, LATENCY).mean == 0.25
    assert found.mean(GPTJ_SINGLE_3, LAMPS, LATENCY) == 50.5
    assert math.isnan(found.quotient(GPTJ_SINGLE_5, LAMPS, INFERCEPT, LATENCY).mean)
    assert not found.has(GPTJ_SINGLE_5, LAMPS)


@pytest.mark.parametrize(
    ("base", "lamps", "words"),
    [
        ({"ttft_mean": 0.3}, {}, "does not queue here yet"),
        ({"ttft_mean": 50.0}, {"ttft_mean": 20.0}, "both queue"),
        ({"ttft_mean": 50.0}, {}, "only InferCept queues"),
    ],
)
def test_reasons_follow_from_the_state_of_both(
    base: dict[str, float], lamps: dict[str, float], words: str
) -> None:
    claim = Claim(6, GPTJ_SINGLE_5, TTFT, INFERCEPT, -0.9127)
    found = Found([made(GPTJ_SINGLE_5, INFERCEPT, **base), made(GPTJ_SINGLE_5, LAMPS, **lamps)])
    assert words in because(claim, paper=0.0873, ours=0.7, found=found)
    assert because(claim, paper=0.7, ours=0.75, found=found) == "agrees"


def test_rows_hold_what_was_run_only() -> None:
    found = Found(
        [
            made(GPTJ_SINGLE_3, LAMPS, ttft_mean=0.19),
            made(GPTJ_SINGLE_3, INFERCEPT, ttft_mean=0.2),
        ]
    )
    shown = rows(6, found)
    assert len(shown) == 2  # TTFT and latency against InferCept; vLLM was not run
    assert shown[0].paper == pytest.approx(1 - 0.0461)
    assert shown[0].ours == pytest.approx(0.95)
    assert shown[0].why == "agrees"


def test_tables_show_a_chain_step_by_step() -> None:
    setup, steps = FIGURES[6].chains[0]
    latencies = {name: 40.0 / 2**index for index, (name, _) in enumerate(steps)}
    found = Found([made(setup, name, latency_mean=value) for name, value in latencies.items()])
    sheet = added((setup, steps), found)
    assert [row[2] for row in sheet.rows] == ["", "-50%", "-50%", "-50%"]
    table = measures(FIGURES[6], found, quick=True, about="")
    assert {row[1] for row in table.rows} == set(latencies)
    assert all(len(row) == len(table.columns) for row in table.rows)


# -- with the scheduler that serves --------------------------------------------------------------

SMALL = Setup(f"{GPTJ}:kv=6000", SINGLE, 1.5)
"""A ninth of the machine's memory, so that sessions queue."""


@cache
def run(system: str) -> RunResult:
    (cell,) = cells([(SMALL, system)], 20.0, (1,))
    return simulate_cell(cell, lambda at: None)


def test_a_small_memory_is_better_served_by_lamps_than_in_the_order_of_arrival() -> None:
    infercept, lamps = (figures(run(system), 0.0, 20.0) for system in (INFERCEPT, LAMPS))
    assert infercept.sessions == lamps.sessions > 10
    assert infercept.unfinished == lamps.unfinished == 0
    assert lamps.latency_mean < infercept.latency_mean


def test_errors_of_prediction_change_the_order() -> None:
    exact, wrong = (
        [session.ended for session in run(system).sessions]
        for system in (LAMPS, mistaken(0.5).name)
    )
    assert len(exact) == len(wrong)
    assert exact != wrong
