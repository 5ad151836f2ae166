"""`caesura measure`: which engines are measured, and what is shown and refused."""

from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from caesura.intercept.kv.costs import CostModel
from caesura.planning.application.application import Application, Model, Task
from caesura.planning.costs.devices import this_machine
from caesura.planning.costs.measured import MeasuredCosts, MeasuredEngine, MeasuredSleep
from caesura.planning.run.host import HostError
from caesura.runtime.cli.app import app
from caesura.runtime.cli.plan.measure import missing, table

KIND = this_machine(1)
MODELS = (Model("a", "org/a", tensor_parallel=(1, 2)), Model("b", "org/b"))
APPLICATION = Application("two", MODELS, ())


def measured(model: str) -> MeasuredEngine:
    return MeasuredEngine(
        model=model,
        device=KIND.name,
        steps=CostModel(0.01, 0.001, 0.001, 0.0, 64),
        kv_tokens=5000,
        kv_bytes=100,
        weight_bytes=1e6,
        load_seconds=7.25,
    )


def test_engines_that_were_measured_or_do_not_fit_are_left_out() -> None:
    kept = MeasuredCosts(engines=(measured("org/a"),))
    found = [(each.model.name, each.degree) for each in missing(APPLICATION, 2, kept, KIND)]
    assert found == [("a", 2), ("b", 1)]
    assert [each.model.name for each in missing(APPLICATION, 1, kept, KIND)] == ["b"]
    other = this_machine(1).__class__("another", KIND.device, KIND.workspace)
    assert len(missing(APPLICATION, 1, kept, other)) == 2


def test_requests_have_the_highest_temperature_of_the_models_tasks() -> None:
    tasks = (Task("t", "a", "", temperature=0.5), Task("u", "a", "", temperature=1.0))
    application = Application("two", MODELS, (*tasks, Task("v", "b", "")))
    found = {
        each.model.name: each.temperature for each in missing(application, 1, MeasuredCosts(), KIND)
    }
    assert found == {"a": 1.0, "b": 0.0}


def test_the_table_has_the_engines_of_this_kind_of_device() -> None:
    console = Console(width=120)
    with console.capture() as shown:
        console.print(table(APPLICATION, MeasuredCosts(engines=(measured("org/a"),)), KIND))
    assert "7.2 s" in shown.get()
    assert "26.0 ms" in shown.get()
    assert "\nb " not in shown.get()


def test_a_broken_file_of_measurements_is_refused_before_an_engine_starts(tmp_path: Path) -> None:
    path, output = tmp_path / "app.toml", tmp_path / "engines.json"
    (tmp_path / "p.txt").write_text("one\n")
    path.write_text(
        '[application]\nname="x"\n[models.a]\npath="org/a"\n[tasks.t]\nmodel="a"\nprompts="p.txt"\n'
    )
    output.write_text('{"format": 2}')
    result = CliRunner().invoke(app, ["measure", str(path), "--output", str(output)])
    assert result.exit_code == 1
    assert "no measured engines" in " ".join(result.output.split())


SLEEPS = tuple(MeasuredSleep(level=n, sleep_seconds=0.1, wake_seconds=n + 0.5) for n in range(3))


def test_engines_whose_sleep_is_not_known_are_measured_again() -> None:
    awake = MeasuredCosts(engines=(measured("org/a"), measured("org/b")))
    assert missing(APPLICATION, 1, awake, KIND) == []
    assert [each.model.name for each in missing(APPLICATION, 1, awake, KIND, True)] == ["a", "b"]
    sleepy = awake.updated([measured("org/a").model_copy(update={"sleeps": SLEEPS})])
    assert [each.model.name for each in missing(APPLICATION, 1, sleepy, KIND, True)] == ["b"]


def test_the_table_tells_the_sleep_of_each_level() -> None:
    console = Console(width=160)
    known = measured("org/a").model_copy(update={"sleeps": SLEEPS})
    with console.capture() as shown:
        console.print(table(APPLICATION, MeasuredCosts(engines=(known, measured("org/b"))), KIND))
    assert "0.1 / 0.1 / 0.1 s" in shown.get()
    assert "0.5 / 1.5 / 2.5 s" in shown.get()


def test_devices_without_sleep_mode_are_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused() -> None:
        raise HostError("vLLM has no sleep mode on this machine's devices (cpu)")

    monkeypatch.setattr("caesura.runtime.cli.plan.measure.check_sleep_mode", refused)
    result = CliRunner().invoke(app, ["measure", "app.toml", "--sleep"])
    assert result.exit_code != 0
    assert "--sleep: vLLM has no sleep mode" in " ".join(result.output.split())
