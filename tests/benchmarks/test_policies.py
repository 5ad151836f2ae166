"""The studies behind docs/study/policies.md, and how their tables are made."""

import math
import struct
from dataclasses import replace

import pytest

from benchmarks import policies
from benchmarks.charts import curves
from benchmarks.points import table_of
from caesura.simulator.study.plan import Study
from caesura.simulator.study.summary import MEASURES, summarise
from caesura.simulator.study.tables import estimated
from tests.simulator.studies import STUDY, outcome_of


@pytest.mark.parametrize("study", [policies.rates(), policies.links()])
def test_the_default_is_compared_over_three_seeds(study: Study) -> None:
    assert policies.DEFAULT in study.policy_names
    assert len(study.seeds) == 3


def test_a_table_has_a_row_for_each_rate_and_policy() -> None:
    points = summarise(outcome_of(STUDY))
    made = table_of(points, ("latency_mean", "recompute_share"))
    assert made.columns == ("sessions/s", "policy", "mean latency [s]", "tokens recomputed [%]")
    assert [row[:2] for row in made.rows] == [(f"{p.rate:g}", f"`{p.name}`") for p in points]
    first = points[0].means["latency_mean"]
    assert made.rows[0][2] == estimated(first)


def test_sessions_that_were_cut_off_are_marked() -> None:
    outcome = outcome_of(STUDY, stock=dict.fromkeys(MEASURES, 1.0) | {"unfinished": 10})
    rows = table_of(summarise(outcome), ("latency_mean",)).rows
    assert {row[1] for row in rows if "stock" in row[1]} == {"`stock`*"}


def test_the_chart_shows_the_figures() -> None:
    points = summarise(outcome_of(STUDY))
    png = curves(STUDY, points)
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert min(struct.unpack(">II", png[16:24])) > 100
    # The same study is the same image, whatever draws it.
    assert b"Software" not in png
    assert curves(STUDY, points) == png
    first = points[0].means["latency_mean"]
    points[0].means["latency_mean"] = replace(first, mean=first.mean * 2)
    assert curves(STUDY, points) != png


def test_figures_that_are_missing_can_be_drawn() -> None:
    outcome = outcome_of(STUDY, stock=dict.fromkeys(MEASURES, math.nan) | {"unfinished": 10})
    assert curves(STUDY, summarise(outcome)).startswith(b"\x89PNG")
