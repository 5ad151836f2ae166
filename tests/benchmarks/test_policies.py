"""The studies behind docs/study/policies.md."""

import math
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import policies
from benchmarks.charts import curves
from caesura.simulator.study.summary import MEASURES, summarise
from tests.simulator.studies import STUDY, outcome_of


def test_every_part_has_its_place_in_the_page() -> None:
    page = policies.PAGE.read_text()
    for part in policies.parts():
        assert page.count(f"<!-- begin {part.name} -->") == 1
        assert page.count(f"<!-- end {part.name} -->") == 1
        assert part.study.baseline in part.study.policy_names


def test_tables_replace_those_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("text\n<!-- begin mix -->\nold\n<!-- end mix -->\nmore\n")
    monkeypatch.setattr(policies, "PAGE", page)
    for table in ("first", "second"):
        policies._write({"mix": [table]})
    assert page.read_text() == "text\n<!-- begin mix -->\n\nsecond\n\n<!-- end mix -->\nmore\n"


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
