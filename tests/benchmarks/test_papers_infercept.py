"""The reproduction of InferCept: its steps, its measures, its tables, and what scripts share."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.papers import infercept, infercept_handlings, infercept_waste
from benchmarks.papers.infercept_handlings import BudgetedSwap, HeuristicPreserve
from benchmarks.papers.infercept_systems import (
    DISCARD,
    IMPROVED,
    INFERCEPT,
    PAPER_RATE,
    PRESERVE,
    SMALL,
    STEPS,
    SWAP,
    cell,
    curve_cells,
    step_cells,
    waste_cells,
)
from benchmarks.papers.run import (
    Measured,
    Row,
    crossing,
    markdown,
    number,
    options,
    run_cells,
    settled,
    show,
)
from caesura.intercept.kv.handling import HANDLINGS
from caesura.scheduler.settings import Settings
from caesura.simulator.policy import Policy
from caesura.simulator.results import RunResult
from caesura.simulator.study.figures import figures
from caesura.simulator.study.pool import Task
from caesura.simulator.study.store import write_run
from tests.intercept.kv.views import paused, step
from tests.simulator.studies import make_up, one_run, one_session


def actions(handling: BudgetedSwap, *waiting, **view) -> dict[str, str]:
    return {each.key: each.action for each in handling.decide(waiting, step(**view))}


def test_the_budget_goes_to_the_earliest_calls_and_the_rest_is_discarded() -> None:
    late, early, third = (
        paused("late", 50, elapsed=1.0),
        paused("early", 50, elapsed=5.0),
        (paused("third", 50, elapsed=0.5)),
    )
    decided = actions(BudgetedSwap(), late, early, third, link_blocks=60)
    assert decided == {"early": "swap", "late": "swap", "third": "discard"}
    assert actions(BudgetedSwap(), early, host_free=0) == {"early": "discard"}
    assert actions(BudgetedSwap(), early, swap_pays=False) == {"early": "discard"}
    assert actions(BudgetedSwap(), early, link_blocks=0) == {"early": "discard"}


def test_what_is_copied_needs_no_budget() -> None:
    assert actions(BudgetedSwap(), paused("a", 50, 50), link_blocks=0) == {"a": "swap"}


def test_who_has_returned_or_holds_nothing_is_left_alone() -> None:
    waiting = paused("a", returned=True), paused("b", 0)
    assert actions(BudgetedSwap(), *waiting) == {}


def test_the_heuristic_keeps_short_tools_and_spends_the_budget_on_long_ones() -> None:
    short, long = paused("short", 60, tool="ve", elapsed=9.0), paused("long", 60, tool="chatbot")
    assert actions(HeuristicPreserve(), short, long, link_blocks=60) == {"long": "swap"}
    assert actions(BudgetedSwap(), short, long, link_blocks=60) == {
        "short": "swap",
        "long": "discard",
    }


@pytest.fixture
def known_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, handling in infercept_handlings.STEPS.items():
        monkeypatch.setitem(HANDLINGS, name, handling)


def test_steps_differ_on_the_real_scheduler(known_steps: None) -> None:
    chosen = [policy for policy, _ in STEPS if "+" in policy.name]
    runs = [
        infercept_handlings.simulate_step(
            replace(cell(policy, 2.0, 0, 4.0), workload="mix:tools=qa+tts,balanced=yes,pause=0.2"),
            lambda at: None,
        )
        for policy in chosen
    ]
    assert all(session.ended for run in runs for session in run.sessions)
    chunked, budgeted, heuristic = (run.totals for run in runs)
    assert chunked.saved_blocks == 0 < heuristic.saved_blocks < budgeted.saved_blocks
    assert chunked.recompute_tokens > budgeted.recompute_tokens >= heuristic.recompute_tokens


def test_every_system_can_be_built(known_steps: None) -> None:
    for policy, _ in STEPS:
        if policy.engine == "caesura":
            Settings.from_mapping(policy.settings)
    assert len({policy.name for policy, _ in STEPS}) == len(STEPS)


def test_the_papers_steps_multiply_to_its_largest_gain() -> None:
    product = 1.0
    for _, percent in STEPS:
        product *= 1 + (percent or 0.0) / 100
    assert 1 / product == pytest.approx(5.7, abs=0.05)


def test_cells_are_told_apart() -> None:
    cells = [*curve_cells(60, (1, 2)), *step_cells(60, (1, 2)), *waste_cells(60, (1, 2))]
    assert len(curve_cells(60, (1,), quick=True)) < len(curve_cells(60, (1,)))
    assert {each.window for each in waste_cells(60, (1,))} == {60}
    assert {each.seed for each in cells} == {1, 2}


# -- measures ------------------------------------------------------------------------------------


def measured(
    folder: Path, policy: Policy, rate: float, latency: float = 1.0, **totals: float
) -> Measured:
    """A run in its file, one session of which takes so long for 10 tokens."""
    session = one_session(20.0, first=20.5, ended=20.0 + latency)
    run: RunResult = one_run([session], **totals)
    task = Task(cell(policy, rate, 0, 100.0), folder / f"{policy.name}{rate}.json.gz", "digest")
    write_run(task.path, task.digest, run)
    return Measured(task.cell, figures(run, 0.0, 100.0), task)


def test_where_a_curve_rises_above_a_level() -> None:
    curve = {2.0: 1.0, 1.0: 0.01, 0.5: 0.01}
    assert crossing(curve, 0.1) == pytest.approx(1.5)
    assert crossing(curve, 0.01) == pytest.approx(1.0)
    assert crossing(curve, 0.001) is None
    assert crossing(curve, 5.0) is None


def test_claims_come_from_the_curves() -> None:
    curves = {
        DISCARD.name: {0.5: 0.02, 1.0: 0.2},
        INFERCEPT.name: {0.5: 0.01, 1.0: 0.02, 2.0: 0.2},
        PRESERVE.name: {1.0: 0.02, 1.5: 0.2},
        SWAP.name: {0.5: 0.02, 1.5: 0.2},
    }
    rows = infercept.claim_rows(SMALL, curves)
    at = {row.what: row.ours for row in rows}
    assert at["times vLLM's rate at 0.05 s/token"] == pytest.approx(
        crossing(curves[INFERCEPT.name], 0.05) / crossing(curves[DISCARD.name], 0.05)
    )
    assert at["times lower normalized latency at the same rate"] == "2.0 to 10.0"
    order = str(at["baselines by their rate at 0.05 s/token"])
    assert order.index("Preserve") < order.index("Swap") < order.index("ImprovedDiscard")


def test_steps_are_relative_to_the_one_before(tmp_path: Path) -> None:
    runs = [
        measured(tmp_path, DISCARD, PAPER_RATE, 4.0),
        measured(tmp_path, IMPROVED, PAPER_RATE, 3.0),
        measured(tmp_path, IMPROVED, 0.5, 9.0),
    ]
    rows = infercept.step_sheet(runs, PAPER_RATE, "").rows
    assert rows[0][:4] == ("vLLM (discard)", "-", "-", "0.400")
    assert rows[1][:4] == ("ImprovedDiscard", "-24.5 %", "-25.0 %", "0.300")
    assert rows[2][2:4] == ("-", "-")


def test_waste_is_read_off_the_runs(tmp_path: Path) -> None:
    stall = {"waste_stall": 200.0, "stall_seconds": 10.0, "busy_seconds": 40.0}
    runs = [
        measured(tmp_path, DISCARD, 2.0, waste_recompute=300.0, busy_seconds=50.0),
        measured(tmp_path, IMPROVED, 2.0, waste_recompute=400.0),
        measured(tmp_path, PRESERVE, 2.0),
        measured(tmp_path, SWAP, 2.0, **stall),
        measured(tmp_path, INFERCEPT, 2.0, waste_recompute=40.0, waste_preserve=5.0),
    ]
    found = {row.what: row.ours for row in infercept_waste.waste_rows(runs, 2.0)}
    assert found["vLLM: waste by recomputation"] == pytest.approx(30.0)
    assert found["Swap: waste by waiting"] == pytest.approx(20.0)
    assert found["Swap: time waiting for copies"] == pytest.approx(25.0)
    assert found["InferCept: all waste"] == pytest.approx(4.5)
    assert found["InferCept: recomputation waste less than ImprovedDiscard's by"] == 90.0
    assert found["InferCept: swap waste less than Swap's by"] == 100.0


def test_the_time_that_recomputed_tokens_take(tmp_path: Path) -> None:
    run = measured(tmp_path, DISCARD, 2.0, recompute_tokens=1e6, busy_seconds=200.0)
    # 2 * 6.05e9 FLOP a token at 156 TFLOP/s: 77.6 s for a million of them.
    assert infercept_waste.recompute_time_share(run) == pytest.approx(77.56 / 200, rel=1e-3)


def test_what_paused_requests_hold_most_of_the_time(tmp_path: Path) -> None:
    run = measured(tmp_path, PRESERVE, 2.0)
    whole = run.run()
    line = dict(whole.timeline)
    line["paused_blocks"] = [9.0, 0.0, 0.0, 2.0, 2.0, 2.0, 4.0, 4.0, 4.0, 4.0]
    line["free_blocks"] = [8.0 - held for held in line["paused_blocks"]]
    line["running_blocks"] = line["queued_blocks"] = [0.0] * 10
    write_run(run.task.path, run.task.digest, replace(whole, timeline=line))
    # The first row, at 10 s, is left out: 2 of 8 blocks are held for 7 of the other 9 rows.
    assert infercept_waste.held_share(run) == pytest.approx(2 / 8)


# -- what the papers' scripts share --------------------------------------------------------------


def test_cells_run_once_and_are_kept(tmp_path: Path) -> None:
    cells = [cell(DISCARD, rate, 0, 60.0) for rate in (1.0, 2.0, 1.0)]
    said = io.StringIO()
    console = Console(file=said)
    first = run_cells(cells, work=make_up, jobs=1, cache=tmp_path, console=console)
    assert [run.cell.rate for run in first] == [1.0, 2.0, 1.0]
    assert said.getvalue().count("vLLM (discard)") == 2
    assert first[0].figures.sessions == 50  # of 60, of which the first sixth is not counted
    again = run_cells(cells, work=make_up, jobs=1, cache=tmp_path, console=console)
    assert [run.figures for run in again] == [run.figures for run in first]
    assert said.getvalue().count("vLLM (discard)") == 2


def test_other_code_has_other_runs(tmp_path: Path) -> None:
    code = tmp_path / "code.py"
    cells, console = [cell(DISCARD, 1.0, 0, 60.0)], Console(file=io.StringIO())
    places = []
    for text in ("one", "two"):
        code.write_text(text)
        (run,) = run_cells(
            cells, work=make_up, code=[code], jobs=1, cache=tmp_path, console=console
        )
        places.append(run.task.path)
    assert places[0] != places[1]


def test_options_settle_what_is_run() -> None:
    parser = options("A script.\n\nMore.", seconds=900.0, seeds=(1, 2))
    assert settled(parser.parse_args([])) == (900.0, (1, 2))
    assert settled(parser.parse_args(["--quick"])) == (300.0, (1,))
    assert settled(parser.parse_args(["--quick", "--seconds", "50", "--seeds", "3", "4"])) == (
        50.0,
        (3, 4),
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        ("words", "words"),
        (float("nan"), "-"),
        (0.0, "0"),
        (0.01234, "0.0123"),
        (12345.6, "12,346"),
        (-24.53, "-24.5"),
    ],
)
def test_numbers_as_text(value: float | str | None, text: str) -> None:
    assert number(value) == text


def test_tables_are_shown_and_written() -> None:
    sheet = infercept.beside_the_paper("Title", "About.", [Row("a|b", 2.0, 1.0, "since")])
    assert sheet.rows == (("a|b", "2.00", "1.00", "0.50", "since"),)
    lines = markdown(sheet).splitlines()
    assert lines[-1] == "| a/b | 2.00 | 1.00 | 0.50 | since |"
    assert lines[-2].count("|") == lines[-1].count("|") == lines[-3].count("|")
    said = io.StringIO()
    show([sheet], Console(file=said))
    assert "since" in said.getvalue()
