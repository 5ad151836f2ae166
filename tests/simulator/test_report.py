"""Reports: the folder's text, which escapes all names, and all figures as JSON."""

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from caesura.simulator.policy import POLICIES, Policy, parse_policy
from caesura.simulator.study.conduct import Outcome
from caesura.simulator.study.report import sections_of, to_json, to_markdown_page, write_report
from caesura.simulator.study.summary import MEASURES, summarise
from caesura.simulator.study.tables import Grid

from .studies import NASTY, STUDY, outcome_of, stored


def nasty_policy() -> Policy:
    return replace(parse_policy("caesura"), name=NASTY)


def test_a_report_is_a_text_and_figures(tmp_path: Path) -> None:
    study = replace(STUDY, policies=(POLICIES["stock"], nasty_policy()))
    outcome = stored(study, tmp_path / "runs")
    out = tmp_path / "out"
    report = write_report(outcome, out)
    assert report == out / "report.md"
    assert {path.name for path in out.iterdir()} == {"report.md", "report.json"}
    before = {path: path.read_bytes() for path in out.iterdir()}
    write_report(outcome, out)
    assert {path: path.read_bytes() for path in out.iterdir()} == before


def test_the_text_has_all_tables_under_their_headings(tmp_path: Path) -> None:
    outcome = outcome_of(STUDY)
    text = write_report(outcome, tmp_path, "trace.html").read_text()
    tokens = MarkdownIt().enable("table").parse(text)
    headings = [
        after.content
        for token, after in pairwise(tokens)
        if (token.type, token.tag) == ("heading_open", "h2")
    ]
    assert headings == ["What users get", "Compared with stock", "Memory and steps", "By rate"]
    grids = [grid for _, found in sections(outcome) for grid in found]
    assert sum(token.type == "table_open" for token in tokens) == len(grids) > 8
    assert "[What each policy did, request by request](trace.html)" in text


def test_the_text_escapes_all_names() -> None:
    study = replace(STUDY, policies=(POLICIES["stock"], nasty_policy()), workload=NASTY)
    outcome = outcome_of(study)
    shown = (
        MarkdownIt("commonmark", {"html": True})
        .enable("table")
        .render(to_markdown_page(outcome, summarise(outcome)))
    )
    assert "<script" not in shown
    assert shown.count("<table>") == sum(len(grids) for _, grids in sections(outcome))


def sections(outcome: Outcome) -> list[tuple[str, list[Grid]]]:
    return sections_of(outcome, summarise(outcome))


def test_all_figures_are_in_the_json(tmp_path: Path) -> None:
    outcome = outcome_of(STUDY, stock={"latency_mean": math.nan})
    write_report(outcome, tmp_path)

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    form = json.loads((tmp_path / "report.json").read_text(), parse_constant=refuse)
    assert len(form["runs"]) == 12
    assert set(form["runs"][0]["figures"]) == set(MEASURES)
    point = next(each for each in form["points"] if each["policy"] == "caesura")
    assert point["means"]["ttft_mean"]["mean"] == pytest.approx(2.01)
    assert point["ratios"]["ttft_mean"]["mean"] == pytest.approx(2.01 / 1.01)
    assert point["ratios"]["latency_mean"]["mean"] is None
    assert form["study"]["policies"][1]["settings"] == dict(POLICIES["caesura"].settings)
    assert form == json.loads(json.dumps(to_json(outcome, summarise(outcome))))
