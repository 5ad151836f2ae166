"""`caesura run`: results once each, through Ctrl-C, kill -9, a full disk and mistakes."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from caesura.planning.run.host import EngineHost, HostError
from caesura.planning.run.journal import ResumeError
from caesura.runtime.cli.app import app
from caesura.runtime.cli.plan.options import PlanOptions, RunTraces
from caesura.runtime.cli.plan.plan import Outputs, show_plan
from caesura.runtime.cli.plan.run import RunOptions, run_application
from caesura.runtime.errors import UsageError
from caesura.runtime.recording import catalog
from caesura.scheduler.paths import traces_path
from caesura.scheduler.records import (
    PlanRecord,
    ProgressRecord,
    ReplicaRecord,
    StageRecord,
    parse,
)
from tests.kit.processes import living
from tests.kit.waiting import PATIENCE_SECONDS, wait_until
from tests.planning.run.engines import FakeHost
from tests.runtime.cli.made_up import APPLICATION, MadeUpCosts
from tests.runtime.cli.run_apart import FILE as APART

ROOT = Path(__file__).parents[3]
PROMPTS = 40


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "prompts.txt").write_text("".join(f"prompt {n}\n" for n in range(PROMPTS)))
    (tmp_path / "app.toml").write_text(APPLICATION)
    return tmp_path / "app.toml"


def run(path: Path, host: EngineHost | None = None, **options: Any) -> None:
    async def make_host(devices: int, logs: Path) -> EngineHost:
        return host or FakeHost(devices)

    run_application(
        path,
        PlanOptions(devices=2, draws=1),
        RunOptions(path.parent / "out.jsonl", **options),
        costs=MadeUpCosts,
        make_host=make_host,
    )


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path.parent / "out.jsonl").read_text().splitlines()]


def assert_all_once(path: Path) -> None:
    keys = Counter(row["key"] for row in rows(path))
    assert set(keys.values()) == {1}
    assert len(keys) == 2 * PROMPTS


def apart(path: Path, **environment: str) -> "subprocess.Popen[str]":
    """Start the command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, str(APART), str(path.parent)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_rows(path: Path, count: int) -> None:
    wait_until(lambda: (path.parent / "out.jsonl").exists() and len(rows(path)) >= count)


def engine_pids(path: Path) -> list[int]:
    return [int(pid) for file in path.parent.glob("*.pids") for pid in file.read_text().split()]


def test_results_are_written_and_the_planned_time_is_told(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(path, gantt=path.parent / "run.svg")
    assert_all_once(path)
    told = capsys.readouterr().err
    assert f"{2 * PROMPTS} requests are done in" in told and "planned" in told
    assert "stage 1: " in told and "is loaded on device" in told
    assert (path.parent / "run.svg").read_text().count("the run") == 1


def test_a_run_is_recorded_for_the_page(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "traces.sqlite"
    run(path, traces=RunTraces(store))
    assert f"recorded for the page in {store}" in capsys.readouterr().err.replace("\n", "")
    (recording,) = catalog.recordings(store)
    assert (recording.title, recording.source) == ("caesura run, two", "plan")
    assert recording.ended is not None
    entries = [parse(entry) for entry in catalog.entries(store, int(recording.id))]
    plan, last = entries[0], entries[-1]
    assert isinstance(plan, PlanRecord) and plan.next_best is not None
    assert plan.next_best.reason
    assert isinstance(last, ProgressRecord)
    assert (last.state, sum(last.done)) == ("finished", 2 * PROMPTS)
    assert any(isinstance(each, StageRecord) for each in entries)
    assert {each.state for each in entries if isinstance(each, ReplicaRecord)} >= {
        *("loading", "serving", "gone")
    }


def test_a_run_of_a_planned_file_knows_its_next_best_plan(path: Path, tmp_path: Path) -> None:
    with (tmp_path / "plan.json").open("w") as file, contextlib.redirect_stdout(file):
        show_plan(path, PlanOptions(devices=2, draws=1), Outputs(json=True), MadeUpCosts)
    store = tmp_path / "traces.sqlite"
    run(path, plan=tmp_path / "plan.json", traces=RunTraces(store))
    first = next(iter(catalog.entries(store, 1)))
    assert first["next_best"]["reason"]


def test_a_run_without_traces_records_nothing(path: Path, tmp_path: Path) -> None:
    before = traces_path().stat().st_size if traces_path().exists() else None
    run(path, traces=RunTraces(off=True))
    assert (traces_path().stat().st_size if traces_path().exists() else None) == before
    with pytest.raises(UsageError, match="--no-trace excludes --trace"):
        run(path, traces=RunTraces(tmp_path / "x.sqlite", off=True))


def test_a_finished_run_starts_nothing(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(path)
    host = FakeHost(2)
    run(path, host)
    assert host.calls == []
    assert capsys.readouterr().err.count(f"{2 * PROMPTS} requests are done") == 2


def test_another_application_on_the_same_file_is_refused(path: Path) -> None:
    run(path)
    path.write_text(APPLICATION.replace('name = "two"', 'name = "two"\nseed = 5'))
    with pytest.raises(ResumeError, match="an application that has changed since"):
        run(path)


def test_failed_requests_are_told_and_give_a_status(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with path.open("a") as file:
        file.write(
            '[tasks.read]\nmodel = "small"\nneeds = ["answer"]\n'
            'template = "{{ (outputs.answer.small | fromjson).name }}"\n'
        )
    with pytest.raises(typer.Exit) as ended:
        run(path)
    assert ended.value.exit_code == 1
    errors = [row["error"] for row in rows(path) if row["task"] == "read"]
    assert len(errors) == PROMPTS
    assert all("its prompt can't be made" in error for error in errors)
    assert f"{PROMPTS} have failed, the first: read/0" in capsys.readouterr().err


def test_a_machine_with_too_few_devices_is_told(path: Path) -> None:
    async def none(devices: int, logs: Path) -> EngineHost:
        raise HostError(f"{devices} devices were asked for")

    with pytest.raises(UsageError, match="--backend processes: 2 devices were asked for"):
        run_application(
            path,
            PlanOptions(devices=2, draws=1),
            RunOptions(path.parent / "out.jsonl"),
            costs=MadeUpCosts,
            make_host=none,
        )


def test_mistakes_are_told_without_a_stack_trace(tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["run", str(tmp_path / "no.toml"), "-o", "out.jsonl"])
    assert told.exit_code != 0
    told = CliRunner().invoke(app, ["run", "app.toml", "-o", "x", "--backend", "cloud"])
    assert told.exit_code == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_run_is_continued_by_the_same_command(path: Path, number: signal.Signals) -> None:
    (path.parent / "hold").write_text("5")
    first = apart(path)
    wait_for_rows(path, 1)
    first.send_signal(number)
    _, told = first.communicate(timeout=PATIENCE_SECONDS)
    (path.parent / "hold").unlink()
    kept = rows(path)
    assert 0 < len(kept) < 2 * PROMPTS
    if number == signal.SIGINT:
        assert first.returncode == 130
        assert f"{len(kept)} of {2 * PROMPTS} requests are done and kept in" in told
    wait_until(lambda: not living(engine_pids(path)))  # no engine outlives the run
    asked = (path.parent / "asked.txt").read_text().splitlines()
    again = apart(path, ANSWER_SECONDS="0.01")
    assert again.wait(PATIENCE_SECONDS) == 0
    assert_all_once(path)
    assert rows(path)[: len(kept)] == kept
    later = (path.parent / "asked.txt").read_text().splitlines()[len(asked) :]
    assert len(later) == 2 * PROMPTS - len(kept), "what is done is not asked again"


def test_a_full_disk_stops_the_run_with_its_engines_and_a_hint(path: Path) -> None:
    limited = subprocess.run(
        ["bash", "-c", f"ulimit -f 4; exec {sys.executable} {APART} {path.parent}"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "ANSWER_SECONDS": "0.01"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert limited.returncode == 1
    assert "out.jsonl can't be written: File too large" in limited.stderr
    assert "the same command continues the run" in limited.stderr
    assert "Traceback" not in limited.stderr
    assert living(engine_pids(path)) == []
    kept = rows(path)
    assert 0 < len(kept) < 2 * PROMPTS
    assert apart(path, ANSWER_SECONDS="0.01").wait(PATIENCE_SECONDS) == 0
    assert_all_once(path)
