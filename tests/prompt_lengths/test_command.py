"""`caesura predict`."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from caesura.runtime.cli.app import app
from caesura.scheduler.prompt_lengths import predictor as training
from caesura.scheduler.prompt_lengths.training import write_rows
from tests.prompt_lengths.prompts import told


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_rows(tmp_path / "data.jsonl", told(150))
    return tmp_path / "data.jsonl"


def test_train_and_evaluate(tmp_path: Path, data: Path) -> None:
    out = tmp_path / "predictor"
    done = CliRunner().invoke(app, ["predict", "train", str(data), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "Kendall's tau-b" in done.output and "98 train, 22 choose, 30 report" in done.output
    asked = CliRunner().invoke(app, ["predict", "evaluate", str(out), str(data), "--json"])
    scores = json.loads(asked.stdout)
    assert scores["outputs"] == 30 and scores["pairs"] > 0.7
    assert scores["rows"] == "report part of the training data"
    shown = CliRunner().invoke(app, ["predict", "evaluate", str(out), str(data)])
    assert "share within 5 tokens" in shown.output


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--objective", "best"], "must be one of l1, mse"),
        (["--linear", "--small-encoder"], "choose one of"),
        (["--pool", "cls"], "needs --model"),
        (["--rate", "-1"], "got 0 and -1.0"),
        (["--model", "/nowhere/at/all"], "cannot be loaded"),
    ],
)
def test_mistakes_are_told_in_a_line(
    tmp_path: Path, data: Path, options: list[str], says: str
) -> None:
    asked = ["predict", "train", str(data), "--out", str(tmp_path / "p"), *options]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 1 and says in " ".join(done.output.split())
    assert "Traceback" not in done.output and not (tmp_path / "p").exists()


def test_other_files_are_not_overwritten(tmp_path: Path, data: Path) -> None:
    done = CliRunner().invoke(app, ["predict", "train", str(data), "--out", str(tmp_path)])
    assert done.exit_code == 1 and "holds other files" in done.output


def test_an_interrupt_writes_nothing(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "train", interrupted)
    asked = ["predict", "train", str(data), "--out", str(tmp_path / "p")]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 130 and not (tmp_path / "p").exists()
