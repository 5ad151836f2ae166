"""`caesura calibrate` on the bundled model, and engines that are given what it wrote."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from vllm import __version__ as vllm_version

from caesura.runtime.launch import start_engine
from caesura.scheduler.calibration import Calibration, CalibrationError
from caesura.scheduler.paths import calibration_path
from caesura.scheduler.vllm.client import launch
from caesura.scheduler.vllm.client.engine import VllmEngine

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command has written, in a process of its own as ever."""
    path = tmp_path_factory.mktemp("calibration") / "tiny.json"
    command = [str(Path(sys.executable).with_name("caesura")), "calibrate", "--quick"]
    done = subprocess.run(
        [*command, "--output", str(path)], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "are recomputed in" in done.stdout and "swapping" in done.stdout
    return path


@pytest.fixture
def in_cache(measured: Path) -> Iterator[Calibration]:
    """The measurement where every start looks for it."""
    found = Calibration.load(measured)
    path = calibration_path(found.model, found.dtype, found.device, found.vllm_version)
    found.save(path)
    yield found
    path.unlink()


def test_what_is_measured(measured: Path) -> None:
    found = Calibration.load(measured)
    assert (found.model, found.dtype) == ("caesura-tiny", "float32")
    assert found.vllm_version == vllm_version
    assert found.block_size == 32
    assert found.bytes_per_token == 12288  # 4 layers of keys and values, 384 wide, in float32
    assert found.cost.step_seconds(1, 1000) < found.cost.step_seconds(1000, 1000)
    assert found.cost.out_rate > 0 and found.cost.in_rate > 0
    assert found.out_alone > 0 and found.in_alone > 0
    assert {way for way, _, _ in found.copies} == {"out", "in"}
    assert len({tokens for tokens, _, _ in found.steps}) >= 6
    assert {tokens for tokens, _, _ in found.steps} >= {1, 4, 16}


async def test_an_engine_goes_by_it_and_can_be_measured_again(in_cache: Calibration) -> None:
    engine = await start_engine()
    assert isinstance(engine, VllmEngine)
    try:
        assert engine.calibration == in_cache
        before = await engine.command("samples")
        assert before["cost"] == in_cache.cost.to_wire()
        told: list[float] = []
        again = await engine.backend.measure(True, lambda done, what: told.append(done))
        assert again.steps != in_cache.steps
        assert told == sorted(told) and told[-1] == 1.0
        # Measuring leaves the engine as it was.
        assert (await engine.command("samples"))["cost"] == before["cost"]
        state = await engine.state()
        assert state["handling"] == "caesura"
        assert state["blocks_free"] == state["blocks_total"]
        assert state["host_blocks_used"] == state["lost_blocks"] == 0
    finally:
        await engine.close()


async def test_another_engines_is_refused_before_anything_starts(
    measured: Path, tmp_path: Path
) -> None:
    wrong = replace(Calibration.load(measured), model="some/other", vllm_version="0.31.0")
    path = tmp_path / "wrong.json"
    wrong.save(path)
    with pytest.raises(CalibrationError, match="model 'some/other', not 'caesura-tiny'") as caught:
        await start_engine(settings={"calibration": str(path)})
    assert f"vllm '0.31.0', not '{vllm_version}'" in str(caught.value)
    assert "run `caesura calibrate` again" in str(caught.value)


async def test_what_the_engines_process_refuses_is_told(
    measured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file changes between our look at it and the scheduler's."""
    path = tmp_path / "changing.json"
    Calibration.load(measured).save(path)
    begin = launch.AsyncLLM.from_vllm_config

    def begin_late(*args: object, **options: object) -> object:
        path.write_text("{}")
        return begin(*args, **options)

    monkeypatch.setattr(launch.AsyncLLM, "from_vllm_config", begin_late)
    with pytest.raises(CalibrationError, match="is not a calibration"):
        await start_engine(settings={"calibration": str(path)})
