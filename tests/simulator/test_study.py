"""Making studies: an interrupted one goes on, and nobody can tell."""

import math
import multiprocessing
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from caesura.scheduler.errors import EngineFailed
from caesura.simulator.study.conduct import Outcome, conduct
from caesura.simulator.study.plan import Cell, Study
from caesura.simulator.study.store import digest_of, read_run
from caesura.simulator.study.summary import summarise
from caesura.simulator.study.work import Work
from tests.kit.waiting import wait_until

from . import studies
from .studies import STUDY, make_up, make_up_noting

CELL = STUDY.cells()[0]


@pytest.fixture
def noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "noted"
    monkeypatch.setenv("NOTED", str(path))
    return path


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def made_by(work: Work, study: Study, runs: Path, jobs: int = 1) -> Outcome:
    return conduct(study, runs, jobs, work=work)


def test_a_second_study_makes_only_what_is_missing(tmp_path: Path, noted: Path) -> None:
    runs = tmp_path / "runs"
    smaller = replace(STUDY, seeds=(0, 1))
    first = made_by(make_up_noting, smaller, runs)
    assert len(first.made) == 8
    assert not first.failures
    assert len(lines(noted)) == 8
    whole = made_by(make_up_noting, STUDY, runs)
    assert len(whole.made) == 12
    assert {line.rpartition(" ")[2] for line in lines(noted)[8:]} == {"2"}
    # What only changes how runs are measured makes none anew.
    assert len(made_by(make_up_noting, replace(STUDY, warm_up=5.0), runs).made) == 12
    assert len(lines(noted)) == 12


def test_a_study_without_vllm_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("caesura.simulator.study.pool.find_spec", lambda name: None)
    with pytest.raises(EngineFailed, match="vLLM is not installed"):
        made_by(make_up, STUDY, tmp_path)


def test_a_broken_file_is_made_anew(tmp_path: Path, noted: Path) -> None:
    runs = tmp_path / "runs"
    study = replace(STUDY, seeds=(0,))
    first = made_by(make_up_noting, study, runs)
    broken = first.made[2].task.path
    broken.write_bytes(broken.read_bytes()[:-20])
    again = made_by(make_up_noting, study, runs)
    assert [made.figures for made in again.made] == [made.figures for made in first.made]
    assert lines(noted)[4:] == [str(first.made[2].cell)]


def test_a_study_whose_process_died_goes_on(tmp_path: Path, noted: Path) -> None:
    runs = tmp_path / "runs"
    with pytest.raises(EngineFailed, match="finished runs are kept"):
        made_by(studies.die_at_the_third, STUDY, runs)
    assert len(list(runs.glob("*.json.gz"))) == 2
    noted.unlink()
    outcome = made_by(make_up_noting, STUDY, runs)
    assert len(outcome.made) == 12
    assert len(lines(noted)) == 10
    # Nobody could tell it from a study that was never interrupted.
    whole = made_by(make_up, STUDY, tmp_path / "whole")
    assert [made.figures for made in outcome.made] == [made.figures for made in whole.made]


def test_a_run_that_fails_is_told_and_the_others_are_made(tmp_path: Path) -> None:
    study = replace(STUDY, seeds=(0,))
    outcome = made_by(studies.refuse_rate_two, study, tmp_path / "runs")
    assert [made.cell.rate for made in outcome.made] == [1.0, 1.0]
    assert [failure.reason for failure in outcome.failures] == [
        "RuntimeError: no progress since 12.5 s"
    ] * 2
    assert {point.rate for point in summarise(outcome)} == {1.0}


def test_workers_are_set_up_and_leave_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    before = dict(os.environ)
    children = set(multiprocessing.active_children())  # engines of other tests are still up
    outcome = made_by(studies.tell_environment, STUDY, tmp_path / "runs", jobs=2)
    told = [made.run().settings for made in outcome.made]  # type: ignore[union-attr]
    assert {settings["threads"] for settings in told} == {"1"}
    assert {str(settings["hash"]) for settings in told} == {hash_in_a_process_with_seed_0()}
    assert dict(os.environ) == before
    assert set(multiprocessing.active_children()) <= children


def hash_in_a_process_with_seed_0() -> str:
    return subprocess.run(
        [sys.executable, "-c", "print(hash('caesura'))"],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


class Watcher:
    def __init__(self) -> None:
        self.begun: list[str] = []
        self.over: list[str] = []
        self.plans: list[tuple[int, int]] = []

    def planned(self, runs: int, kept: int) -> None:
        self.plans.append((runs, kept))

    def moved(self, cell: Cell, at: float) -> None:
        if at == 0.0:
            self.begun.append(str(cell))

    def ended(self, cell: Cell) -> None:
        self.over.append(str(cell))


def test_somebody_may_watch(tmp_path: Path) -> None:
    watcher = Watcher()
    for _ in range(2):
        conduct(
            replace(STUDY, seeds=(0,)),
            tmp_path / "runs",
            1,
            work=make_up,
            watch=watcher,
        )
    assert sorted(watcher.begun) == sorted(watcher.over)
    assert len(watcher.over) == 4
    assert watcher.plans == [(4, 0), (4, 4)]


INTERRUPTED = """
import sys
from dataclasses import replace
from pathlib import Path
from tests.simulator import studies
from caesura.simulator.study.conduct import conduct

if __name__ == "__main__":
    try:
        study = replace(studies.STUDY, rates=(1.0,), seeds=(0,))
        conduct(study, Path(sys.argv[1]), 2, work=studies.sleep_after_the_first)
    except KeyboardInterrupt:
        sys.exit(130)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_study_leaves_its_runs_and_no_process(
    tmp_path: Path, number: signal.Signals
) -> None:
    """Ctrl-C ends the processes, busy or idle; if the parent is killed, they notice."""
    program, asleep, runs = tmp_path / "study.py", tmp_path / "asleep", tmp_path / "runs"
    program.write_text(INTERRUPTED)
    path = f"{Path.cwd()}:{os.environ.get('PYTHONPATH', '')}"
    environment = {**os.environ, "ASLEEP": str(asleep), "PYTHONPATH": path}
    with subprocess.Popen(
        [sys.executable, str(program), str(runs)],
        env=environment,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as study:
        wait_until(lambda: asleep.exists() and asleep.read_text() and list(runs.glob("*.json.gz")))
        worker = int(asleep.read_text())
        if number == signal.SIGINT:
            os.killpg(study.pid, number)  # as a terminal does: the workers get it too
        else:
            study.kill()
        code = study.wait(120)
        wait_until(lambda: not is_running(worker))
        assert study.stderr is not None
        said = study.stderr.read().decode()
    assert code == (130 if number == signal.SIGINT else -signal.SIGKILL)
    assert "Traceback" not in said
    assert len(list(runs.iterdir())) == 1
    assert read_run(next(runs.iterdir()), digest_of(CELL)) is not None


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# -- together ------------------------------------------------------------------------------------


def test_points_are_means_over_seeds_and_ratios_by_seed(tmp_path: Path) -> None:
    outcome = made_by(make_up, STUDY, tmp_path / "runs")
    points = summarise(outcome)
    assert [(point.rate, point.name) for point in points] == [
        (1.0, "stock"), (1.0, "caesura"), (2.0, "stock"), (2.0, "caesura"),
    ]  # fmt: skip
    ours = points[1]
    assert ours.seeds == (0, 1, 2)
    by_hand = [
        made.figures.latency_mean
        for made in outcome.made
        if (made.cell.rate, made.cell.policy.name) == (1.0, "caesura")
    ]
    assert ours.means["latency_mean"].mean == pytest.approx(sum(by_hand) / 3)
    assert ours.means["latency_mean"].half > 0
    # Each seed's latencies are halved exactly, so that pairs leave no doubt.
    assert ours.ratios["latency_mean"].mean == pytest.approx(0.5, rel=1e-5)
    assert ours.ratios["latency_mean"].half == pytest.approx(0.0, abs=1e-5)
    assert points[0].ratios["latency_mean"].mean == 1.0


def test_without_a_baseline_there_are_no_ratios(tmp_path: Path) -> None:
    outcome = made_by(make_up, replace(STUDY, baseline=""), tmp_path / "runs")
    assert all(not point.ratios for point in summarise(outcome))


def test_only_seeds_that_both_have_run_are_compared(tmp_path: Path) -> None:
    outcome = made_by(make_up, replace(STUDY, rates=(1.0,)), tmp_path / "runs")
    lost = replace(outcome, made=outcome.made[2:])  # both of the first seed
    half = replace(outcome, made=outcome.made[1:])  # stock's run of the first seed
    for each in (lost, half):
        found = summarise(each)[1].ratios["latency_mean"]
        assert found.count == 2
        assert found.mean == pytest.approx(0.5, rel=1e-5)
        assert math.isnan(found.half), "two seeds have no interval"
