"""The checks for a machine with a GPU: their code runs here in small, up to the device."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.gpu_check.__main__ import earlier, parse, write
from benchmarks.gpu_check.checks import CHECKS, Check
from benchmarks.gpu_check.checks import FAMILIES as FAMILIES_CHECKED
from benchmarks.gpu_check.finding import Finding, Rows, merged
from benchmarks.gpu_check.report import markdown
from benchmarks.gpu_check.runner import Runner
from benchmarks.gpu_check.turn import Turn
from caesura.runtime.errors import UsageError


def test_a_finding_survives_its_file(tmp_path: Path) -> None:
    found = Finding("failed", "Why.", [Rows("A table", ("a", "b"), [("1", "2")])], {"x": 1.5})
    found.save(tmp_path / "found.json")
    read = Finding.load(tmp_path / "found.json")
    assert read.summary == "Why."
    assert read.figures == {"x": 1.5}
    assert list(read.tables[0].rows[0]) == ["1", "2"]


def test_the_report_has_every_check_and_its_tables() -> None:
    found = {
        "machine": Finding(
            "measured", "A device.", [Rows("Copies", ("way", "x"), [("out", "1|2")])]
        ),
        "sleeping": Finding("skipped", "No GPU."),
    }
    text = markdown(found, {name: check.title for name, check in CHECKS.items()})
    assert "| Machine and link | measured | 0 | A device. |" in text
    assert "| Sleep and wake | skipped | 0 | No GPU. |" in text
    assert "**Machine and link: Copies**" in text
    assert "| out | 1/2 |" in text


def test_a_check_that_dies_fails_and_the_others_go_on(tmp_path: Path) -> None:
    checks = {"no_such_check": Check("None", 1), "machine": Check("Machine", 1)}
    found: dict[str, Finding] = {}
    Runner(tmp_path, "small", 600).run(checks, found.__setitem__)
    assert found["no_such_check"].status == "failed"
    assert "ModuleNotFoundError" in found["no_such_check"].summary
    assert found["machine"].status == "measured"
    assert float(found["machine"].figures["out_gb_per_second"]) > 0


def test_checks_are_skipped_once_the_time_is_used_up(tmp_path: Path) -> None:
    found: dict[str, Finding] = {}
    Runner(tmp_path, "small", 1).run({"machine": Check("Machine", 1)}, found.__setitem__)
    assert found["machine"].status == "skipped"


async def test_a_check_measures_when_it_is_its_turn(tmp_path: Path) -> None:
    turn = Turn(tmp_path / "load")
    begun = asyncio.create_task(turn.begin())
    await asyncio.sleep(0)
    assert turn.ready.exists()
    assert not begun.done()
    turn.give(12.5)
    assert await begun == 12.5
    turn.clear()
    assert not turn.go.exists()


def test_parts_are_one_finding_with_the_worst_status() -> None:
    parts = [
        Finding("passed", "Equal.", [Rows("Stretches", ("a",), [("1",)])], {"swapped": 2}, 3.0),
        Finding("skipped", "Needs a GPU."),
        Finding("failed", "Not equal.", [Rows("Stretches", ("a",), [("2",)])], {"swapped": 1}, 2.0),
    ]
    found = merged(parts)
    assert (found.status, found.summary, found.seconds) == ("failed", "Not equal.", 3.0)
    assert [list(table.rows) for table in found.tables] == [[("1",), ("2",)]]
    assert found.figures == {"swapped": 3}
    assert merged(parts[:2]).status == "passed"


def test_engines_start_side_by_side_and_measure_one_by_one(tmp_path: Path) -> None:
    checks = {
        "no_such_check": Check("None", 1, ("a", "b"), timed=False),
        "machine": Check("Machine", 1),
    }
    found: dict[str, Finding] = {}
    Runner(tmp_path, "small", 600, side_by_side=True).run(checks, found.__setitem__)
    assert found["no_such_check"].status == "failed"
    assert found["no_such_check"].summary.startswith("a: It ended with exit code 1")
    assert " b: It ended with exit code 1" in found["no_such_check"].summary
    assert found["machine"].status == "measured"


def test_a_later_run_keeps_what_an_earlier_one_found(tmp_path: Path) -> None:
    write(tmp_path, "small", {"machine": Finding("measured", "A device.")})
    assert earlier(tmp_path, "small")["machine"].summary == "A device."
    assert earlier(tmp_path, "device") == {}
    assert earlier(tmp_path / "none", "small") == {}


def test_every_check_has_a_module() -> None:
    folder = Path(sys.modules[Check.__module__].__file__ or "").parent
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert modules == set(CHECKS)


def test_a_time_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--minutes", "0"])
    assert "--minutes must be above 0, got 0" in capsys.readouterr().err


WANTED = {"exactness": ("passed", "swapped"), "copies": ("measured", "loaded_tokens")}
"""How checks end in small, and a figure that is not nothing; the others measure."""


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["machine", "exactness", "copies", "first_token"])
def test_a_check_runs_in_small(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu_check", "--scale", "small", "--only", name]
    done = subprocess.run(
        [*command, "--out", str(tmp_path), "--minutes", "14"], capture_output=True, text=True
    )
    found = json.loads((tmp_path / "report.json").read_text())["checks"][name]
    assert done.returncode == 0, found
    status, figure = WANTED.get(name, ("measured", ""))
    assert found["status"] == status, found
    assert not figure or found["figures"][figure] > 0


@pytest.mark.slow
def test_a_cliff_is_found() -> None:
    # Imports vLLM, as the engines of the checks do.
    from benchmarks.gpu_check.checks.long_sessions import cliffs

    assert cliffs([0.9, 0.1, 0.1, 0.11, 0.12]) == []  # the first turn has no context
    assert cliffs([0.1, 0.1, 0.1, 2.0, 0.1, 0.1]) == [3]


@pytest.mark.slow
def test_a_step_is_timed_by_tokens_however_they_come() -> None:
    from benchmarks.handling.speed import seconds_per_token

    alone = [(0.1 * token, token) for token in range(1, 11)]
    assert seconds_per_token(alone, 4) == pytest.approx(0.1)
    assert seconds_per_token([(0.5, 3), (1.1, 9), (1.2, 10)], 4) == pytest.approx(0.1)
    assert seconds_per_token([(0.5, 6), (0.9, 10)], 4) == pytest.approx(0.1)
    assert seconds_per_token([(1.0, 10)], 4) is None


@pytest.mark.slow
async def test_a_stream_that_came_at_once_is_left_out_and_its_batch_run_again() -> None:
    from benchmarks.handling.speed import TRIES, Stamps, step_seconds

    at_once: Stamps = [(1.0, 10)]
    alone: Stamps = [(0.1 * token, token) for token in range(1, 11)]
    batches = iter([[at_once], [at_once, alone], *[[at_once]] * TRIES])

    async def streams() -> list[Stamps]:
        return next(batches)

    assert await step_seconds(streams, 4) == pytest.approx(0.1)
    with pytest.raises(UsageError, match="all tokens of a request came in one output"):
        await step_seconds(streams, 4)
    assert list(batches) == []


@pytest.mark.slow
def test_a_second_engine_starts_beside_the_first() -> None:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.worker.utils import request_memory

    from benchmarks.gpu_check.engines import engine_args
    from benchmarks.gpu_check.sizes import DEVICE

    args = engine_args(DEVICE, DEVICE.model, DEVICE.copies_context, blocks=1000)
    assert args["kv_cache_memory_bytes"] == 1001 * 32 * 128 << 10
    share = args.get("gpu_memory_utilization", AsyncEngineArgs.gpu_memory_utilization)
    # Of 80 GiB, the first engine has taken 16 for the weights of 8B, and 8 for KV and the rest.
    memory = SimpleNamespace(device_="cuda:0", total_memory=80 << 30, free_memory=56 << 30)
    request_memory(memory, SimpleNamespace(gpu_memory_utilization=share))  # raises if too little


@pytest.mark.slow
def test_every_family_is_checked_once() -> None:
    from benchmarks.gpu_check.checks.exactness import LAYOUTS
    from tests.engine.families import FAMILIES

    others = (family for _, family in LAYOUTS.values())
    assert sorted([*FAMILIES_CHECKED, *others]) == sorted(FAMILIES)
