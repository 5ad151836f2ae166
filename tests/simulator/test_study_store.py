"""Runs in files: they are read as they were written, or not at all."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from caesura.simulator.study.store import read_run, write_run

from .studies import STUDY, make_up, one_run, one_session

CELL = STUDY.cells()[0]


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    run = make_up(CELL, lambda at: None)
    run.sessions[0].segments += [(1.5, 1.75, 2.0), (3.0, 0.0, 0.0)]
    run.sessions.append(one_session(59.0))
    run.records = [{"kind": "pause", "tool": None}]
    path = tmp_path / "runs" / "run.json.gz"
    write_run(path, "d", run)
    found = read_run(path, "d")
    assert found is not None
    assert found.sessions[0].segments[-1] == (3.0, 0.0, 0.0)
    # To a microsecond; what is read is what is written again.
    assert found.sessions[5].ended == pytest.approx(run.sessions[5].ended, abs=5e-7)
    again = tmp_path / "again.json.gz"
    write_run(again, "d", found)
    assert again.read_bytes() == path.read_bytes()
    assert replace(found, sessions=run.sessions) == run
    assert path.read_bytes()[4:8] == bytes(4)  # gzip's time stamp
    assert [path.name for path in path.parent.iterdir()] == ["run.json.gz"]


def test_stored_runs_are_compact(tmp_path: Path) -> None:
    rng_run = make_up(replace(CELL, rate=100.0), lambda at: None)
    path = tmp_path / "run.json.gz"
    write_run(path, "d", rng_run)
    assert len(rng_run.sessions) == 6000
    assert path.stat().st_size < 40 * len(rng_run.sessions)


def gone(path: Path) -> None:
    path.unlink()


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))


def empty(path: Path) -> None:
    path.write_bytes(b"")


def no_json(path: Path) -> None:
    path.write_bytes(gzip.compress(b"not JSON"))


def another_form(path: Path) -> None:
    form = json.loads(gzip.decompress(path.read_bytes()))
    path.write_bytes(gzip.compress(json.dumps({**form, "form": 0}).encode()))


def another_digest(path: Path) -> None:
    form = json.loads(gzip.decompress(path.read_bytes()))
    path.write_bytes(gzip.compress(json.dumps({**form, "digest": "e"}).encode()))


def a_column_short(path: Path) -> None:
    form = json.loads(gzip.decompress(path.read_bytes()))
    form["sessions"]["ended"].pop()
    path.write_bytes(gzip.compress(json.dumps(form).encode()))


def a_list(path: Path) -> None:
    path.write_bytes(gzip.compress(b"[1, 2]"))


BREAKS = [
    gone, cut_short, flip, empty, no_json, another_form, another_digest,
    a_column_short, a_list,
]  # fmt: skip


@pytest.mark.parametrize("broken", BREAKS, ids=lambda each: each.__name__)
def test_a_broken_file_is_no_run(broken: object, tmp_path: Path) -> None:
    path = tmp_path / "run.json.gz"
    write_run(path, "d", one_run([one_session(1.0, first=2.0, ended=3.0)]))
    assert read_run(path, "d") is not None
    broken(path)  # type: ignore[operator]
    assert read_run(path, "d") is None
