"""Reports: a page that needs nothing else and escapes all text, charts, and the folder."""

import json
import math
import struct
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from caesura.scheduler.errors import UsageError
from caesura.simulator.policy import POLICIES, Policy, parse_policy
from caesura.simulator.report import canvas, plots, write
from caesura.simulator.report.grids import Entry, Grid, Row
from caesura.simulator.report.html import page
from caesura.simulator.report.plots import Chart
from caesura.simulator.report.write import to_json, write_report
from caesura.simulator.study.conduct import Outcome
from caesura.simulator.study.summary import MEASURES, summarise

from .studies import NASTY, STUDY, outcome_of, stored

GRID = Grid(
    NASTY,
    ("a|b", "c"),
    (Row(NASTY, (Entry("1", 1.0, best=True), Entry("2", 2.0, cut=True))),),
)


# -- the page ------------------------------------------------------------------------------------


class Seen(HTMLParser):
    """All tags with their attributes, and all text but that of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "link", "br"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self._open):
            self.texts.append(data)


CHART = Chart("rates", f"A chart of {NASTY}", b"\x89PNG")


def test_the_page_escapes_all_text() -> None:
    text = page(NASTY, [(NASTY, NASTY)], [NASTY], [(NASTY, [GRID])], [CHART])
    seen = Seen(text)
    assert sum(tag == "script" for tag, _ in seen.tags) == 1
    assert "alert" not in text[text.rindex("<script>") :]
    # The title of the page and its heading, the fact, the note, the section, caption and row.
    assert sum(each == NASTY for each in seen.texts) == 8
    image = next(attributes for tag, attributes in seen.tags if tag == "img")
    assert image["alt"] == CHART.title


def test_the_page_needs_nothing_else() -> None:
    text = page("Title", [], [], [("Heading", [GRID])], [CHART])
    seen = Seen(text)
    for tag, attributes in seen.tags:
        assert tag not in ("link", "iframe", "object", "embed", "base")
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            if name in ("src", "href", "srcset", "data", "action"):
                assert value is not None
                assert value.startswith("data:image/png;base64,"), (tag, name)
    for elsewhere in ("http:", "https:", "//", "@import", "url(", "fetch(", "import("):
        assert elsewhere not in text.replace("base64,", ""), elsewhere


def test_cells_are_sorted_by_their_values() -> None:
    seen = Seen(page("Title", [], [], [("Heading", [GRID])], []))
    cells = [attributes for tag, attributes in seen.tags if tag == "td"]
    assert [cell["data-value"] for cell in cells] == ["1.0", "2.0"]
    assert [cell.get("class") for cell in cells] == ["best", None]


def test_a_missing_value_is_no_number_for_the_script_too() -> None:
    grid = Grid("t", ("a",), (Row("x", (Entry("–", math.nan),)),))
    seen = Seen(page("Title", [], [], [("Heading", [grid])], []))
    (cell,) = (attributes for tag, attributes in seen.tags if tag == "td")
    assert cell["data-value"] == "nan"  # Number("nan") is NaN


# -- charts --------------------------------------------------------------------------------------


def size_of(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def test_charts_of_a_study(tmp_path: Path) -> None:
    outcome = stored(STUDY, tmp_path)
    charts = plots.draw(outcome, summarise(outcome))
    assert [chart.name for chart in charts] == ["rates", "memory", "waste"]
    assert charts[1].title == "KV memory by owner, 2 sessions/s, seed 0"
    assert all(min(size_of(chart.png)) > 100 for chart in charts)
    # The same study is the same image, whatever draws it.
    assert not any(b"Software" in chart.png for chart in charts)
    assert plots.draw(outcome, summarise(outcome)) == charts


def test_charts_show_the_figures(tmp_path: Path) -> None:
    outcome = stored(STUDY, tmp_path)
    other = replace(outcome, made=outcome.made[:-1])
    first, second = (plots.draw(each, summarise(each)) for each in (outcome, other))
    assert first[0].png != second[0].png


def test_a_single_rate_has_no_curves_and_lost_runs_no_memory(tmp_path: Path) -> None:
    study = replace(STUDY, rates=(1.0,), seeds=(0,), machines=("one", "other"))
    outcome = stored(study, tmp_path)
    names = [chart.name for chart in plots.draw(outcome, summarise(outcome))]
    assert names == ["memory-1", "waste-1", "memory-2", "waste-2"]
    for path in tmp_path.iterdir():
        path.unlink()
    names = [chart.name for chart in plots.draw(outcome, summarise(outcome))]
    assert names == ["waste-1", "waste-2"]


def test_figures_that_are_missing_can_be_drawn() -> None:
    outcome = outcome_of(STUDY, stock=dict.fromkeys(MEASURES, math.nan) | {"unfinished": 10})
    assert len(plots.draw(outcome, summarise(outcome))) == 2


def test_without_matplotlib_there_is_a_hint_and_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(canvas, "find_spec", lambda name: None)
    outcome = outcome_of(STUDY)
    with pytest.raises(UsageError, match=r"pip install .*\[plots\]"):
        plots.draw(outcome, summarise(outcome))
    report = write_report(outcome, tmp_path / "out")
    assert not report.charts
    assert not (tmp_path / "out" / "plots").exists()
    assert not any(tag == "img" for tag, _ in Seen(report.page.read_text()).tags)


# -- the folder ----------------------------------------------------------------------------------


def nasty_policy() -> Policy:
    return replace(parse_policy("caesura"), name=NASTY)


def test_a_report_is_one_page_a_text_figures_and_charts(tmp_path: Path) -> None:
    study = replace(STUDY, policies=(POLICIES["stock"], nasty_policy()))
    outcome = stored(study, tmp_path / "runs")
    report = write_report(outcome, tmp_path / "out")
    out = tmp_path / "out"
    files = {path.relative_to(out).as_posix() for path in out.rglob("*")}
    assert files == {
        "report.html", "report.md", "report.json", "plots",
        "plots/rates.png", "plots/memory.png", "plots/waste.png",
    }  # fmt: skip
    seen = Seen(report.page.read_text())
    assert sum(tag == "script" for tag, _ in seen.tags) == 1
    assert sum(tag == "img" for tag, _ in seen.tags) == 3
    headings = [text for text in seen.texts if text in {name for name, _ in sections(outcome)}]
    assert headings == ["What users get", "Compared with stock", "Memory and steps", "By rate"]
    before = {path: (out / path).read_bytes() for path in files - {"plots"}}
    write_report(outcome, out)
    assert {path: (out / path).read_bytes() for path in before} == before


def sections(outcome: Outcome) -> list[tuple[str, list[Grid]]]:
    return write.sections_of(outcome, summarise(outcome))


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
