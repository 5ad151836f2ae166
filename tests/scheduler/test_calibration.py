"""From measurements to a cost model, and the file that keeps it."""

import json
from dataclasses import replace
from math import nan, sin
from pathlib import Path

import pytest

from caesura.intercept.kv.costs import SMALLEST_CHUNK, CostModel
from caesura.scheduler.calibration import Calibration, CalibrationError, Step, fit, fit_rate
from caesura.scheduler.errors import UsageError
from caesura.scheduler.paths import calibration_directory, calibration_path, pauses_path

KNEE = CostModel(0.01, 5e-6, 8e-5, 3e-8, 200)
TOKENS = (1, 8, 32, 64, 128, 192, 256, 384, 512, 1024, 2048)


def measure(cost: CostModel, noise: float = 0.0) -> list[Step]:
    """Steps of all sizes; the noise is the same at every call."""
    sizes = [(tokens, context) for tokens in TOKENS for context in (0, 1000, 20_000, 100_000)]
    return [
        (tokens, context, cost.step_seconds(tokens, context) * (1 + noise * sin(97.0 * index)))
        for index, (tokens, context) in enumerate(sizes)
    ]


def test_the_fit_finds_the_model() -> None:
    cost, error = fit(measure(KNEE))
    assert error < 0.01
    assert cost.saturation == pytest.approx(200, rel=0.1)
    assert cost.base == pytest.approx(0.01, rel=0.02)
    assert cost.per_token_beyond == pytest.approx(8e-5, rel=0.03)
    assert cost.per_context == pytest.approx(3e-8, rel=0.05)
    assert (cost.out_rate, cost.in_rate) == (0.0, 0.0)


def test_noise_is_the_error_that_is_left() -> None:
    cost, error = fit(measure(KNEE, noise=0.05))
    assert 0.02 < error < 0.05
    assert cost.saturation == pytest.approx(200, rel=0.3)
    for tokens, context, seconds in measure(KNEE):
        assert cost.step_seconds(tokens, context) == pytest.approx(seconds, rel=0.1)


def test_a_device_without_a_knee() -> None:
    laptop = CostModel(0.02, 1e-3, 1e-3, 1e-7, 999)
    cost, error = fit(measure(laptop, noise=0.02))
    assert error < 0.03
    assert cost.per_token == cost.per_token_beyond == pytest.approx(1e-3, rel=0.05)
    assert cost.saturation == pytest.approx(80, rel=0.1)  # 4 x base / per_token
    assert fit(measure(replace(laptop, base=1e-4)))[0].saturation == SMALLEST_CHUNK


def test_no_term_is_below_zero() -> None:
    falling = [(tokens, 0, 0.1 / tokens) for tokens in range(1, 20)]
    cost, error = fit(falling)
    assert cost.per_token >= 0 and cost.base > 0
    assert error > 0.1


@pytest.mark.parametrize(
    "samples",
    [
        measure(KNEE)[:7],
        [*measure(KNEE), (0, 0, 1.0)],
        [*measure(KNEE), (1, -1, 1.0)],
        [*measure(KNEE), (1, 1, 0.0)],
        [*measure(KNEE), (1, 1, nan)],
    ],
)
def test_what_cannot_be_fitted_is_refused(samples: list[Step]) -> None:
    with pytest.raises(ValueError):
        fit(samples)


def test_the_rate_of_the_link_is_apart_from_its_latency() -> None:
    rate, error = fit_rate([(n, 0.0002 + n / 50_000) for n in (16, 64, 256, 1024)])
    assert rate == pytest.approx(50_000)
    assert error < 1e-6


@pytest.mark.parametrize(
    "copies", [[], [(16, 1.0)], [(16, 1.0), (0, 1.0)], [(16, 1.0), (512, 0.1)]]
)
def test_copies_that_tell_no_rate(copies: list[tuple[int, float]]) -> None:
    with pytest.raises(ValueError):
        fit_rate(copies)


def calibration() -> Calibration:
    return Calibration(
        model="some/model",
        dtype="bfloat16",
        device="Some GPU",
        vllm_version="0.32.0",
        block_size=16,
        bytes_per_token=131_072,
        date="2026-01-31",
        cost=replace(KNEE, out_rate=50_000.0, in_rate=60_000.0),
        step_error=0.02,
        out_error=0.01,
        in_error=0.0,
        steps=tuple(measure(KNEE)),
        copies=(("out", 256, 0.005), ("in", 256, 0.004)),
        out_alone=55_000.0,
        in_alone=65_000.0,
    )


def test_the_file_keeps_everything(tmp_path: Path) -> None:
    path = tmp_path / "new" / "calibration.json"
    calibration().save(path)
    assert Calibration.load(path) == calibration()
    assert list(path.parent.iterdir()) == [path]


def test_a_file_need_not_tell_of_the_idle_link(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    calibration().save(path)
    wire = json.loads(path.read_text())
    del wire["out_alone"], wire["in_alone"]
    assert Calibration.from_wire(wire) == replace(calibration(), out_alone=0.0, in_alone=0.0)


def test_the_engine_that_was_measured_is_accepted() -> None:
    calibration().check("some/model", "bfloat16", "Some GPU", "0.32.0")


def test_another_engine_is_refused_with_the_mend() -> None:
    with pytest.raises(UsageError) as caught:
        calibration().check("some/model", "float16", "Some GPU", "0.33.0")
    assert isinstance(caught.value, ValueError)
    assert str(caught.value) == (
        "the calibration is for dtype 'bfloat16', not 'float16'; vllm '0.32.0', not '0.33.0': "
        "run `caesura calibrate --model some/model` again"
    )


def test_a_directory_is_not_named_by_its_last_part() -> None:
    with pytest.raises(CalibrationError) as caught:
        calibration().check("caesura-tiny", "bfloat16", "Some GPU", "0.32.0")
    assert str(caught.value) == (
        "the calibration is for model 'some/model', not 'caesura-tiny': "
        "run `caesura calibrate` again, with the same --model"
    )


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match=r"no calibration at .*run `caesura calibrate"):
        Calibration.load(tmp_path / "none.json")


@pytest.mark.parametrize(
    "change", [{"cost": {}}, {"steps": [1]}, {"block_size": None}, {"model": 3}, {"copies": "x"}]
)
def test_a_broken_file(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "calibration.json"
    calibration().save(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(CalibrationError, match="is not a calibration"):
        Calibration.load(path)


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", "\x00"])
def test_a_file_of_something_else(tmp_path: Path, text: str) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(text)
    with pytest.raises(CalibrationError, match="is not a calibration"):
        Calibration.load(path)


ENGINE = ("Qwen/Qwen3-8B", "bfloat16", "2 x NVIDIA H100 80GB HBM3", "0.32.0")


def test_files_lie_in_the_users_own_directories(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = calibration_path(*ENGINE)
    assert path.parent == calibration_directory() == tmp_path / "cache" / "caesura" / "calibration"
    assert path.name == "Qwen-Qwen3-8B-bfloat16-2-x-NVIDIA-H100-80GB-HBM3.json"
    assert pauses_path() == tmp_path / "state" / "caesura" / "pauses.json"


@pytest.mark.parametrize("given", ["", "not/absolute", None])
def test_without_xdg_they_lie_in_the_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: str | None
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, given) if given is not None else monkeypatch.delenv(name, False)
    assert calibration_directory() == tmp_path / ".cache" / "caesura" / "calibration"
    assert pauses_path() == tmp_path / ".local" / "state" / "caesura" / "pauses.json"


def test_a_file_that_is_nested_too_deeply_is_no_calibration(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    path.write_text("[" * 100_000)
    with pytest.raises(CalibrationError, match="nested too deeply"):
        Calibration.load(path)
