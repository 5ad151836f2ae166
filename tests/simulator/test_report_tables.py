"""Tables of a report: how values are written, and what is marked."""

import math
import re
from dataclasses import replace

import pytest
from rich.console import Console

from caesura.scheduler.policy.slo import Slo
from caesura.simulator.policy import POLICIES
from caesura.simulator.study.plan import Cell
from caesura.simulator.study.pool import Failure
from caesura.simulator.study.report import facts, notes
from caesura.simulator.study.summary import MEASURES, Estimate, summarise
from caesura.simulator.study.tables import (
    BY_NAME,
    GOODPUT,
    MEMORY,
    SERVICE,
    Entry,
    Grid,
    Row,
    estimated,
    memory_grids,
    number,
    rate_grids,
    ratio_grids,
    service_grids,
    to_markdown,
    to_rich,
)

from .studies import NASTY, STUDY, outcome_of


def column(grid: Grid, measure: str) -> dict[str, Entry]:
    place = grid.columns.index(BY_NAME[measure].heading)
    return {row.head: row.entries[place] for row in grid.rows}


# -- numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.01234, "0.0123"),
        (0.9996, "1.000"),
        (1.0, "1.00"),
        (12.345, "12.3"),
        (123.45, "123"),
        (12345.6, "12,346"),
        (-1.5, "-1.50"),
        (math.nan, "–"),
        (math.inf, "∞"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text


def test_half_widths_have_the_decimals_of_their_mean() -> None:
    assert estimated(Estimate(0.0158, 0.00104, 5)) == "0.0158 ±0.0010"
    assert estimated(Estimate(1234.5, 12.34, 5)) == "1,234 ±12"
    assert estimated(Estimate(2.0, math.nan, 1)) == "2.00"
    assert estimated(Estimate(math.nan, math.nan, 0)) == "–"
    assert estimated(Estimate(0.25, 0.01, 3), scale=100) == "25.0 ±1.0"


def test_every_measure_that_is_shown_is_one() -> None:
    assert {measure.name for measure in (*SERVICE, *MEMORY)} <= set(MEASURES)


# -- tables --------------------------------------------------------------------------------------


def test_the_best_of_each_column_is_marked() -> None:
    grids = service_grids(STUDY, summarise(outcome_of(STUDY)))
    assert [grid.title for grid in grids] == ["1 sessions/s", "2 sessions/s"]
    latency = column(grids[0], "latency_mean")
    assert (latency["stock"].best, latency["caesura"].best) == (True, False)
    throughput = column(grids[0], "sessions_per_second")
    assert (throughput["stock"].best, throughput["caesura"].best) == (False, True)
    assert latency["stock"].text == "1.01 ±0.02"


def test_what_is_neither_good_nor_bad_has_no_best() -> None:
    grid = memory_grids(STUDY, summarise(outcome_of(STUDY)))[0]
    assert not any(entry.best for entry in column(grid, "steps").values())
    assert column(grid, "waste_preserve")["stock"].best


def test_runs_that_were_cut_off_are_marked_and_never_best() -> None:
    outcome = outcome_of(STUDY, stock={"unfinished": 3})
    grid = service_grids(STUDY, summarise(outcome))[0]
    latency = column(grid, "latency_mean")
    assert latency["stock"].cut
    assert not latency["stock"].best
    assert not latency["caesura"].cut
    # Only one is left to be best, and that says nothing.
    assert not latency["caesura"].best
    assert any("18 of 120 counted sessions were cut off" in note for note in notes(outcome))
    assert "1.01 ±0.02*" in to_markdown(grid).replace("\\", "")


def test_a_bound_is_never_best() -> None:
    study = replace(STUDY, policies=(POLICIES["free-offload"], *STUDY.policies))
    latency = column(service_grids(study, summarise(outcome_of(study)))[0], "latency_mean")
    assert list(latency) == ["free-offload (bound)", "stock", "caesura"]
    assert [entry.best for entry in latency.values()] == [False, True, False]


def test_equals_are_both_best_unless_all_are_equal() -> None:
    study = replace(STUDY, policies=(*STUDY.policies, POLICIES["infercept"]))
    five = {"latency_mean": 5.0, "ttft_mean": 1.0}
    outcome = outcome_of(study, stock=five, caesura=five, infercept={**five, "latency_mean": 6.0})
    grid = service_grids(study, summarise(outcome))[0]
    latency = column(grid, "latency_mean")
    assert [entry.best for entry in latency.values()] == [True, True, False]
    assert not any(entry.best for entry in column(grid, "ttft_mean").values())


def test_a_value_that_is_missing_is_never_best() -> None:
    study = replace(STUDY, policies=(*STUDY.policies, POLICIES["infercept"]))
    outcome = outcome_of(study, stock={"latency_mean": math.nan})
    latency = column(service_grids(study, summarise(outcome))[0], "latency_mean")
    assert [entry.best for entry in latency.values()] == [False, True, False]
    assert latency["stock"].text == "–"


def test_ratios_leave_out_the_baseline() -> None:
    grids = ratio_grids(STUDY, summarise(outcome_of(STUDY)))
    assert [grid.title for grid in grids] == [
        "1 sessions/s: ratio to stock, by seed",
        "2 sessions/s: ratio to stock, by seed",
    ]
    assert [row.head for row in grids[0].rows] == ["caesura"]
    assert grids[0].rows[0].entries[0].value == pytest.approx(6.03 / 3.03)
    none = replace(STUDY, baseline="")
    assert ratio_grids(none, summarise(outcome_of(none))) == []


def test_by_rate_there_is_a_column_per_rate_and_a_gap_for_what_failed() -> None:
    outcome = outcome_of(STUDY)
    kept = tuple(
        made for made in outcome.made if (made.cell.rate, made.cell.policy.name) != (2.0, "stock")
    )
    grids = rate_grids(STUDY, summarise(replace(outcome, made=kept)))
    assert len(grids) == len(SERVICE)
    assert grids[0].columns == ("1 sessions/s", "2 sessions/s")
    assert [entry.text for entry in grids[0].rows[0].entries] == ["1.01 ±0.02", "–"]
    single = replace(STUDY, rates=(1.0,))
    assert rate_grids(single, summarise(outcome_of(single))) == []


def test_machines_have_their_own_tables() -> None:
    study = replace(STUDY, machines=("one", "other"))
    titles = [grid.title for grid in service_grids(study, summarise(outcome_of(study)))]
    assert titles[0] == "1 sessions/s, one"
    assert len(titles) == 4


GRID = Grid(
    NASTY,
    ("a|b", "c"),
    (Row(NASTY, (Entry("1", 1.0, best=True), Entry("2", 2.0, cut=True))),),
)


def test_the_terminal_shows_names_as_they_are() -> None:
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(to_rich(GRID), highlight=False)
    text = console.export_text()
    assert text.count(NASTY) == 2
    assert "▸1" in text
    assert "2*" in text


def test_markdown_is_a_table_whatever_the_names() -> None:
    lines = to_markdown(GRID).splitlines()
    rows = [re.findall(r"(?<!\\)\|", line) for line in lines[2:]]
    assert [len(row) for row in rows] == [4, 4, 4]
    assert "**▸1**" in lines[-1]
    assert "2\\*" in lines[-1]
    assert "<" not in re.sub(r"\\<", "", lines[-1])


def test_what_failed_is_said() -> None:
    cell: Cell = STUDY.cells()[0]
    outcome = replace(outcome_of(STUDY), failures=(Failure(cell, "RuntimeError: stuck"),))
    assert "Failed: stock, 1/s, seed 0: RuntimeError: stuck" in notes(outcome)


def test_what_was_counted_is_said() -> None:
    told = dict(facts(STUDY))
    assert told["counted"].startswith("sessions that arrive from 10 s to 60 s")
    assert told["runs"] == "to the end of all sessions"
    assert dict(facts(replace(STUDY, window=90.0)))["runs"] == "cut off after 90 s"
    assert "objective" not in told
    aimed = replace(STUDY, slo=Slo(2.0, 0.1))
    assert "ttft=2,tpot=0.1" in dict(facts(aimed))["objective"]
    points = summarise(outcome_of(aimed))
    columns = service_grids(aimed, points)[0].columns
    assert columns[len(SERVICE) :] == tuple(measure.heading for measure in GOODPUT)
    closed = dict(facts(replace(STUDY, closed=True)))
    assert closed["load"] == "1, 2 clients"
    assert "sixth" in closed["counted"]
