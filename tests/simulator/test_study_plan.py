"""The plan of a study, and that a run's digest changes with all that determines it."""

import os
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from caesura.simulator.policy import POLICIES, parse_policy
from caesura.simulator.study import store as digest_module
from caesura.simulator.study.plan import Cell, StudyError
from caesura.simulator.study.store import digest_of, file_name

from .studies import STUDY

CELL = STUDY.cells()[0]


def test_a_study_is_a_product() -> None:
    study = replace(STUDY, machines=("one", "other"))
    cells = study.cells()
    assert len(cells) == len({str((cell, cell.machine)) for cell in cells}) == 2 * 2 * 3 * 2
    # A part of a study has every policy at every rate.
    assert {cell.seed for cell in cells[:8]} == {0}


def test_the_warm_up_is_a_sixth_unless_it_is_said() -> None:
    assert STUDY.counted(99.0) == (10.0, 60.0)
    assert replace(STUDY, warm_up=0.0).counted(99.0) == (0.0, 60.0)


def test_a_closed_loop_has_clients_and_its_own_span() -> None:
    study = replace(STUDY, rates=(20.0, 60.0), closed=True)
    assert {cell.workload for cell in study.cells()} == {"mix:clients=20", "mix:clients=60"}
    begin, end = study.counted(120.0)
    assert begin == pytest.approx(20.0)
    assert 120.0 < end < 120.001
    said = replace(study, workload="mix:tool=qa,clients=20", rates=(20.0,))
    assert said.cells()[0].workload == said.workload
    with pytest.raises(StudyError, match="clients must be whole numbers, got"):
        replace(study, rates=(1.5,))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policies": ()}, "at least one policy"),
        ({"rates": (1.0, 1.0)}, "rate 1.0 is given twice"),
        ({"seeds": ()}, "at least one seed"),
        ({"policies": (POLICIES["stock"],) * 2}, "stock is given twice"),
        ({"rates": (0.0,)}, "above 0"),
        ({"rates": (float("nan"),)}, "above 0"),
        ({"seconds": 0.0}, "above 0"),
        ({"warm_up": 60.0}, "leaves nothing of 60 s"),
        ({"warm_up": -1.0}, ">= 0, got -1"),
        ({"window": 10.0}, "within the warm-up"),
        ({"baseline": "infercept"}, "not among the policies: stock, caesura"),
    ],
)
def test_what_cannot_be_run_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        replace(STUDY, **changes)  # type: ignore[arg-type]


# -- digests -------------------------------------------------------------------------------------

DATA = "data.jsonl"
OTHERS = {
    "workload": "mix:tool=qa",
    "data": DATA,
    "machine": "vicuna-13b-a100-40g",
    "policy": POLICIES["caesura"],
    "rate": 1.5,
    "seed": 7,
    "seconds": 61.0,
    "window": 100.0,
}


def test_every_field_of_a_run_is_in_its_digest(tmp_path: Path) -> None:
    data = tmp_path / DATA
    data.write_text("{}\n")
    assert set(OTHERS) == {field.name for field in fields(Cell)}
    digests = {digest_of(CELL)}
    for name, value in OTHERS.items():
        changed = data if name == "data" else value
        digests.add(digest_of(replace(CELL, **{name: changed})))  # type: ignore[arg-type]
    assert len(digests) == len(OTHERS) + 1


def another(value: object) -> object:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    return {**value, "handling": "swap"} if isinstance(value, dict) else f"{value}-2"


def test_every_field_of_a_policy_is_in_the_digest() -> None:
    base = parse_policy("caesura")
    digests = {digest_of(replace(CELL, policy=base))}
    for field in fields(base):
        changed: dict[str, Any] = {field.name: another(getattr(base, field.name))}
        digests.add(digest_of(replace(CELL, policy=replace(base, **changed))))
    assert len(digests) == len(fields(base)) + 1


def test_the_contents_of_the_data_count_and_not_their_place(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.write_text("one")
    there.write_text("one")
    first = digest_of(replace(CELL, data=here))
    assert digest_of(replace(CELL, data=there)) == first
    there.write_text("another")
    assert digest_of(replace(CELL, data=there)) != first
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a").write_text("one")
    whole = digest_of(replace(CELL, data=folder))
    (folder / "a").rename(folder / "b")
    assert digest_of(replace(CELL, data=folder)) != whole


@pytest.mark.parametrize(
    ("name", "spec"),
    [("machine", "calibration:path={},kv=1000"), ("workload", "mix:arrivals=azure,trace={}")],
)
def test_files_that_a_specification_names_count(tmp_path: Path, name: str, spec: str) -> None:
    path = tmp_path / "file"
    path.write_text("one")
    cell = replace(CELL, **{name: spec.format(path)})  # type: ignore[arg-type]
    first = digest_of(cell)
    path.write_text("another")
    assert digest_of(cell) != first


def test_the_versions_and_the_code_count(monkeypatch: pytest.MonkeyPatch) -> None:
    first = digest_of(CELL)
    for name in ("_code", "_vllm"):
        with monkeypatch.context() as patch:
            patch.setattr(digest_module, name, lambda: "another")
            assert digest_of(CELL) != first
    monkeypatch.setattr("caesura.__version__", "9.9")
    assert digest_of(CELL) != first


def test_the_code_of_the_scheduler_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a copy of the rooms: a change where a run depends on it changes the digest."""
    places = {
        "scheduler/policy/ranking.py": True,
        "intercept/kv/costs.py": True,
        "simulator/latency/fits.json": True,
        "simulator/study/report.py": False,
        "simulator/study/pool.py": False,
        "scheduler/README.md": False,
    }
    for place in places:
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text("a = 1\n")
    monkeypatch.setattr("caesura.__file__", str(tmp_path / "__init__.py"))

    def code() -> str:
        digest_module._code.cache_clear()
        return digest_module._code()

    try:
        for place, matters in places.items():
            before = code()
            (tmp_path / place).write_text(f"b = '{place}'\n")
            assert (code() != before) is matters, place
    finally:
        digest_module._code.cache_clear()


def test_digests_are_the_same_in_every_process() -> None:
    program = (
        "from tests.simulator.studies import STUDY\n"
        "from caesura.simulator.study.store import digest_of\n"
        "print(digest_of(STUDY.cells()[0]))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert found == {digest_of(CELL)}


def test_files_are_named_for_people_too() -> None:
    cell = replace(CELL, policy=parse_policy("caesura:ranking=lamps,chunk_tokens=512"))
    digest = digest_of(cell)
    assert file_name(cell, digest) == f"caesura-ranking-lamps-chunk-tokens-512-1-0-{digest}.json.gz"
