"""`caesura measure --from-run`: times of loading from runs instead of measurements."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from caesura.intercept.kv.costs import CostModel
from caesura.planning.costs.devices import this_machine
from caesura.planning.costs.measured import MeasuredCosts, MeasuredEngine, read_costs
from caesura.planning.run.journal import events_path
from caesura.runtime.cli.app import app

APPLICATION = """
[application]
name = "one"
[models.small]
path = "org/small"
[tasks.answer]
model = "small"
prompts = "prompts.txt"
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "prompts.txt").write_text("one\n")
    path = tmp_path / "one.toml"
    path.write_text(APPLICATION)
    engine = MeasuredEngine(
        model="org/small",
        device=this_machine(1).name,
        steps=CostModel(0.01, 0.001, 0.001, 0.0, 64),
        kv_tokens=100,
        kv_bytes=10,
        weight_bytes=1.0,
        load_seconds=50.0,
    )
    MeasuredCosts(engines=(engine,)).save(tmp_path / "costs.json")
    return path


def run(path: Path, *events: dict[str, object]) -> Path:
    """Write a run's files, and return that of its results."""
    results = path.parent / "results.jsonl"
    results.write_text("")
    events_path(results).write_text("".join(json.dumps(event) + "\n" for event in events))
    return results


def test_the_times_of_a_run_replace_those_that_were_measured(path):
    told = {"replica": "small-0", "model": "small", "devices": [0]}
    results = run(path, {"event": "loading", **told}, {"event": "loaded", "seconds": 40.0, **told})
    costs = path.parent / "costs.json"
    command = ["measure", str(path), "-o", str(costs), "--from-run", str(results)]
    said = CliRunner().invoke(app, command)
    assert said.exit_code == 0, said.output
    assert "40.0 s" in said.output
    assert [each.load_seconds for each in read_costs(costs).engines] == [40.0]


def test_a_run_without_these_engines_is_an_error_that_says_what_to_do(path):
    results = run(path, {"event": "started"})
    command = ["measure", str(path), "-o", str(path.parent / "costs.json")]
    said = CliRunner().invoke(app, [*command, "--from-run", str(results)])
    assert said.exit_code != 0
    assert "measure first" in " ".join(said.output.split())
