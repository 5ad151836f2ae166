"""`caesura simulate --trace`: files for each policy, a page that shows them, and a link to it."""

from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from caesura.runtime.cli.app import app
from caesura.runtime.cli.plan import studies as command
from caesura.runtime.cli.plan import studies as studying
from caesura.runtime.errors import UsageError
from caesura.simulator.study.work import Work
from tests.simulator import studies

QUICK = ("--rate", "1,2", "--seconds", "60", "--seeds", "2", "--jobs", "1", "--quiet")


def invoke(
    monkeypatch: pytest.MonkeyPatch, out: Path, tracing: Work, *more: str
) -> tuple[int, str]:
    made = partial(studying.make_study, work=studies.make_up, tracing=tracing)
    monkeypatch.setattr(command, "make_study", made)
    result = CliRunner().invoke(app, ["simulate", *QUICK, "--out", str(out), *more])
    return result.exit_code, result.output


def test_the_page_is_beside_the_report_and_linked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code, said = invoke(monkeypatch, tmp_path, studies.make_up_traced, "--trace")
    assert code == 0
    assert f"trace: {tmp_path / 'trace.html'}" in said
    assert sorted(path.name for path in (tmp_path / "trace").glob("*.jsonl")) == [
        "caesura.jsonl",
        "stock.jsonl",
    ]
    assert 'id="caesura-data"' in (tmp_path / "trace.html").read_text()
    assert (
        "[What each policy did, request by request](trace.html)"
        in (tmp_path / "report.md").read_text()
    )


def test_nobody_asked_for_a_trace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code, said = invoke(monkeypatch, tmp_path, studies.make_up_traced)
    assert code == 0
    assert "trace" not in said.replace(str(tmp_path), "")
    assert not (tmp_path / "trace").exists()
    assert "trace.html" not in (tmp_path / "report.md").read_text()


def test_a_run_that_cannot_be_traced_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code, said = invoke(monkeypatch, tmp_path, studies.refuse_to_trace_stock, "--trace")
    assert code == 1
    assert "not traced: stock, 1/s, seed 0: RuntimeError: no progress since 12.5 s" in said
    assert (tmp_path / "trace.html").exists()


def test_without_the_built_page_there_are_the_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def not_built(*arguments: object) -> None:
        raise UsageError("the page was not built")

    monkeypatch.setattr(studying, "write_html", not_built)
    code, said = invoke(monkeypatch, tmp_path, studies.make_up_traced, "--trace")
    assert code == 0
    assert "no trace.html: the page was not built" in said
    assert f"trace: {tmp_path / 'trace'}" in said
    assert "trace.html" not in (tmp_path / "report.md").read_text()
