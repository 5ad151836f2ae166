"""`caesura calibrate` and what `serve` does about calibrations, without an engine."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from caesura.intercept.kv.costs import CostModel
from caesura.runtime import launch
from caesura.runtime.cli import calibrate, doctor
from caesura.runtime.cli import serve as serving
from caesura.runtime.cli.app import app
from caesura.runtime.engine import Engine, NoBackend
from caesura.runtime.errors import EngineFailed, UsageError
from caesura.runtime.server.keys.key import tenant_of
from caesura.runtime.testing import ScriptedEngine
from caesura.scheduler.calibration import Calibration, CalibrationError
from caesura.scheduler.engine_options import EngineOptions
from caesura.scheduler.paths import calibration_directory, pauses_path

FOUND = Calibration(
    model="caesura-tiny",
    dtype="float32",
    device="1 x cpu",
    vllm_version="0.32.0",
    block_size=32,
    bytes_per_token=8192,
    date="2026-01-31",
    cost=CostModel(0.004, 1e-4, 1e-4, 1e-6, 160, 800_000.0, 900_000.0),
    step_error=0.05,
    out_error=0.1,
    in_error=0.1,
    steps=((1, 10, 0.004), (2048, 2048, 0.21)),
    copies=(),
    out_alone=1e6,
    in_alone=1.1e6,
)


class Started:
    """Stands in for `engine_on`, and for what measures; keeps what it was called with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.options = EngineOptions()
        self.measured: list[bool] = []
        self.adopted: list[Calibration] = []
        self.known: Calibration | None = None
        self.refusal: Exception | None = None
        self.served = False
        monkeypatch.setattr(calibrate, "engine_on", self.engine_on)
        monkeypatch.setattr(serving, "engine_on", self.engine_on)
        monkeypatch.setattr(calibrate, "measure_shown", self.measure)
        monkeypatch.setattr(serving, "measure_shown", self.measure)
        monkeypatch.setattr(serving, "serve", self.serve)

    @asynccontextmanager
    async def engine_on(self, options: EngineOptions) -> AsyncIterator[Engine]:
        self.options = options
        yield Calibrated(self)

    async def measure(self, engine: Engine, quick: bool) -> Calibration:
        self.measured.append(quick)
        if self.refusal is not None:
            raise self.refusal
        return FOUND

    async def serve(self, *_: object, **__: object) -> None:
        self.served = True


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Started:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    return Started(monkeypatch)


def invoke(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, " ".join(result.output.split())


@dataclass(frozen=True, slots=True)
class Backend(NoBackend):
    started: Started

    @property
    def calibration(self) -> Calibration | None:
        return self.started.known

    async def adopt(self, calibration: Calibration) -> None:
        self.started.adopted.append(calibration)


class Calibrated(ScriptedEngine):
    """An engine whose calibration a test knows, and which may be given another."""

    def __init__(self, started: Started) -> None:
        super().__init__()
        self._backend = Backend("scripted", "Calibrated", started)

    @property
    def backend(self) -> Backend:
        return self._backend


def default_file() -> Path:
    return calibration_directory() / "caesura-tiny-float32-1-x-cpu.json"


def test_calibrate_writes_what_serving_reads(started: Started) -> None:
    code, output = invoke("calibrate", "--quick", "--host-gib", "2")
    assert code == 0
    assert started.measured == [True]
    assert started.options.settings == {"calibration": None, "pauses": None}
    assert started.options.connector == {"host_gib": 2.0}
    assert Calibration.load(default_file()) == FOUND
    assert "decoding step, 8 sequences of 1000 tokens" in output
    assert "900,000 tokens/s, 7.4 GB/s" in output
    assert "1000 tokens are recomputed in 125 ms and loaded from the host in 1.11 ms" in output
    assert str(default_file()) in output


def test_calibrate_into_a_file(started: Started, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    code, output = invoke("calibrate", "--output", path)
    assert code == 0 and started.measured == [False]
    assert Calibration.load(path) == FOUND and not default_file().exists()
    assert f"caesura serve --calibration {path}" in output


@pytest.mark.parametrize("where", ["nowhere/file.json", "."])
def test_a_file_that_cannot_be_written_is_told_at_once(
    started: Started, tmp_path: Path, where: str
) -> None:
    code, output = invoke("calibrate", "--output", tmp_path / where)
    assert code == 1 and "directory" in output
    assert not started.measured


def test_without_a_link() -> None:
    unlinked = replace(FOUND, cost=replace(FOUND.cost, out_rate=0.0, in_rate=0.0))
    assert calibrate.verdict(unlinked).endswith("no link to the host was measured.")
    for swapping, said in ((True, "could not be measured"), (False, "off")):
        console = Console(width=120, record=True, file=None, quiet=True)
        table = calibrate.table(unlinked, swapping)
        assert said in [cell for column in table.columns for cell in column.cells]
        console.print(table)


def test_a_slow_link_does_not_pay() -> None:
    slow = replace(FOUND, cost=replace(FOUND.cost, in_rate=1_000.0))
    assert calibrate.verdict(slow).endswith(
        "loaded from the host in 1,000 ms: swapping does not pay."
    )


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0 ms"), (5e-5, "0.0500 ms"), (0.15, "150 ms"), (2.5, "2,500 ms")]
)
def test_milliseconds(seconds: float, text: str) -> None:
    assert calibrate.milliseconds(seconds) == text


def test_serve_hands_its_options_on(started: Started, tmp_path: Path) -> None:
    started.known = FOUND
    FOUND.save(tmp_path / "c.json")
    records = tmp_path / "records.jsonl"
    given = ["--handling", "infercept", "--host-gib", "0.5", "--pause-deadline", "30"]
    given += ["--retention", "0", "--calibration", str(tmp_path / "c.json")]
    given += ["--ranking", "lamps", "--admission", "past-future:reserve=0.1", "--chunk", "300"]
    keys = tmp_path / "keys"
    keys.write_text("secret weight=3\n")
    given += ["--fair", "tenant", "--api-key-file", str(keys), "--slo", "ttft=2,tpot=0.1"]
    given += ["--served-model-name", "first", "--served-model-name", "second"]
    code, output = invoke("serve", *given, "--records", records)
    assert code == 0 and started.served
    assert started.options.names == ("first", "second")
    assert started.options.settings == {
        "handling": "infercept",
        "pause_deadline": 30.0,
        "retention": 0.0,
        "ranking": "lamps",
        "admission": "past-future:reserve=0.1",
        "fair": "tenant",
        "weights": {tenant_of("secret"): 3.0},
        "slo": "ttft=2,tpot=0.1",
        "chunk": 300,
        "calibration": str(tmp_path / "c.json"),
    }
    assert started.options.connector == {"host_gib": 0.5, "records": str(records)}
    assert not started.measured and "calibrated on 2026-01-31" in output


def test_serve_measures_what_nobody_has_measured(started: Started) -> None:
    code, output = invoke("serve")
    assert code == 0 and started.served
    assert started.options.settings == {
        "handling": "caesura",
        "pause_deadline": 600.0,
        "retention": 120.0,
        "ranking": "fcfs",
        "admission": "vllm",
        "fair": "off",
        "chunk": "auto",
    }
    assert started.options.connector == {"host_gib": 4.0}
    assert started.measured == [True] and started.adopted == [FOUND]
    assert Calibration.load(default_file()) == FOUND
    assert str(default_file()) in output


def test_serve_need_not_measure(started: Started) -> None:
    assert invoke("serve", "--no-calibrate")[0] == 0
    assert started.served and not started.measured and not default_file().exists()


def test_an_engine_that_cannot_be_measured_is_served(started: Started) -> None:
    started.refusal = UsageError("data-parallel engines are not measured")
    code, output = invoke("serve")
    assert code == 0 and started.served
    assert "not measured; the scheduler learns while it serves: data-parallel" in output
    started.refusal, started.served = EngineFailed("it died"), False
    code, output = invoke("serve")
    assert (code, started.served) == (1, False)
    assert "it died" in output


def test_a_cache_that_cannot_be_written_is_no_reason_not_to_serve(
    started: Started, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    code, output = invoke("serve")
    assert code == 0 and started.served and started.adopted == [FOUND]
    assert "the measurement is not saved" in output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--handling", "hope"], "unknown handling 'hope'; choose from: caesura"),
        (["--host-gib", "-1"], "host-gib"),
        (["--retention", "soon"], "retention"),
        (["--pause-deadline", "-1"], "pause-deadline"),
        (["--calibration", "nowhere.json"], "no calibration at nowhere.json"),
        (["--calibration", __file__], "is not a calibration"),
        (["--records", "."], "records"),
    ],
)
def test_mistakes_of_the_command_line(started: Started, arguments: list[str], said: str) -> None:
    code, output = invoke("serve", *arguments)
    assert code == 2 and said in output
    assert "Traceback" not in output and not started.served


def test_records_in_no_directory(started: Started, tmp_path: Path) -> None:
    code, output = invoke("serve", "--records", tmp_path / "none" / "records.jsonl")
    assert code == 1 and "there is no directory" in output


def test_a_mismatch_is_the_command_lines_mistake(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def engine_on(*_: object, **__: object) -> AsyncIterator[Engine]:
        raise CalibrationError("the calibration is for model [a], not [b]")
        yield

    monkeypatch.setattr(serving, "engine_on", engine_on)
    code, output = invoke("serve")
    assert (code, output) == (2, "error: the calibration is for model [a], not [b]")


async def test_only_engines_in_vllm_are_measured() -> None:
    with pytest.raises(UsageError, match="does not run in vLLM"):
        await ScriptedEngine().backend.measure(True, lambda done, what: None)
    with pytest.raises(UsageError, match="does not run in vLLM"):
        _ = ScriptedEngine().backend.calibration


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, {"calibration": "auto", "pauses": "here"}),
        ({"handling": "swap"}, {"calibration": "auto", "pauses": "here", "handling": "swap"}),
        ({"calibration": None, "pauses": None}, {"calibration": None, "pauses": None}),
    ],
)
async def test_what_an_engine_is_started_with(
    monkeypatch: pytest.MonkeyPatch, given: Any, expected: dict[str, Any]
) -> None:
    from caesura.scheduler.vllm.client import launch as adapter

    seen: list[EngineOptions] = []

    def start(options: EngineOptions, engine_args: object) -> SimpleNamespace:
        seen.append(options)
        return SimpleNamespace()

    monkeypatch.setattr(adapter, "start", start)
    await launch.start_engine(settings=given)
    wanted = {k: str(pauses_path()) if v == "here" else v for k, v in expected.items()}
    assert seen[0].settings == wanted


def test_doctor_knows_the_calibrations(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "none yet; `caesura serve` measures" in doctor._calibration()
    FOUND.save(default_file())
    assert doctor._calibration() == f"caesura-tiny on 1 x cpu (2026-01-31): {default_file()}"
    replace(FOUND, vllm_version="0.31.0").save(default_file())
    assert "(2026-01-31, for another vLLM)" in doctor._calibration()
    default_file().write_text("{}")
    with pytest.raises(doctor.Complaint, match="is not a calibration") as caught:
        doctor._calibration()
    assert caught.value.fix == f"rm {default_file()}"
