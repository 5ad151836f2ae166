"""`caesura plan`: a plan as a table, JSON, a chart and deployment files."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from caesura.planning.plan import read_plan
from caesura.planning.run.journal import events_path
from caesura.runtime.cli.app import app
from caesura.runtime.cli.plan.options import PlanOptions
from caesura.runtime.cli.plan.plan import Outputs, show_plan
from caesura.runtime.errors import UsageError
from caesura.runtime.recording import catalog
from caesura.scheduler.records import PlanRecord, parse
from tests.runtime.cli.made_up import APPLICATION, MadeUpCosts

ENGINE = (("loading", 0.0), ("loaded", 1.0), ("evicted", 10.0))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "prompts.txt").write_text("one\ntwo\nthree\nfour\n")
    (tmp_path / "app.toml").write_text(APPLICATION)
    return tmp_path / "app.toml"


def show(path: Path, *outputs: object, devices: int | None = 2) -> None:
    show_plan(path, PlanOptions(devices=devices), Outputs(*outputs), MadeUpCosts)  # type: ignore[arg-type]


def test_the_table_has_stages_models_and_the_next_best_plan(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show(path)
    shown = capsys.readouterr().out
    assert "two: 2 models, 2 tasks, 8 requests, on 2 devices" in shown
    rows = [line.split() for line in shown.splitlines() if " small " in line or " large " in line]
    assert rows[0][0] == "1"
    assert ["small", "1", "1", "1", "0.50"] in (rows[0][1:6], rows[1][:5])
    assert "makespan: 5.0 s, by " in shown
    assert "next best: " in shown
    assert "not measured, so that times are rough: large" in shown


def test_json_can_be_carried_out(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show(path, True)
    shown = capsys.readouterr().out
    saved = path.with_name("plan.json")
    saved.write_text(shown)
    plan = read_plan(saved, "two", {"small": 0, "large": 0})
    assert plan.makespan.mean == 5.0
    assert json.loads(shown)["next_best"]["strategy"]


def test_a_chart_and_deployment_files_are_written(path: Path) -> None:
    chart = path.with_name("chart.html")
    show(path, False, chart, "compose", path.with_name("deploy"))
    assert "<svg" in chart.read_text()
    assert "<p>next best: " in chart.read_text()
    assert list(path.with_name("deploy").iterdir())


def test_a_plan_alone_is_recorded_for_the_page(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "traces.sqlite"
    show(path, False, None, None, None, None, store)
    assert f"recorded: {store}, recording 1" in capsys.readouterr().err.replace("\n", "")
    (recording,) = catalog.recordings(store)
    assert recording.title == "caesura plan, two"
    (entry,) = catalog.entries(store, 1)
    record = parse(entry)
    assert isinstance(record, PlanRecord)
    assert (record.requests, record.devices, record.makespan) == (8, 2, 5.0)
    assert {block.state for block in record.blocks} == {"loading", "serving"}


def test_a_file_that_holds_something_else_is_left_alone(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("mine")
    with pytest.raises(UsageError, match="is not a file of traces"):
        show(path, False, None, None, None, None, other)
    assert other.read_text() == "mine"


def test_mistakes_say_how_to_fix_them(path: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not say how many devices there are: give --devices"):
        show(path, devices=None)
    with pytest.raises(UsageError, match=r"writes \.svg or \.html, got 'chart\.png'"):
        show(path, False, tmp_path / "chart.png")
    with pytest.raises(UsageError, match="there is no directory"):
        show(path, False, tmp_path / "none" / "chart.svg")


def test_a_plan_is_compared_with_its_run(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = path.with_name("out.jsonl")
    results.write_text('{"key": "a", "model": "large", "begun": 1.0, "seconds": 9.0}\n')
    engine = {"replica": "large-0", "model": "large", "devices": [1]}
    events = [{"event": "started"}, *({"event": name, "at": at, **engine} for name, at in ENGINE)]
    events_path(results).write_text("\n".join(map(json.dumps, events)))
    chart = path.with_name("chart.svg")
    show(path, False, chart, None, None, results)
    shown = capsys.readouterr().out.splitlines()
    assert [line.split() for line in shown if line.split()[:1] == ["all"]] == [
        ["all", "5.0", "s", "10.0", "s", "0.50"]
    ]
    assert "large, running, 1.0 to 10.0 s, large-0" in chart.read_text()


def test_the_command_says_what_is_wrong(path: Path) -> None:
    path.write_text(path.read_text().replace("prompts.txt", "none.txt"))
    done = CliRunner().invoke(app, ["plan", str(path), "--devices", "2"])
    assert done.exit_code == 2
    assert "line 10: [tasks.answer]" in done.stderr
    assert "Traceback" not in done.stderr
    assert "--emit knows compose" in CliRunner().invoke(app, ["plan", "x", "--emit", "y"]).stderr
