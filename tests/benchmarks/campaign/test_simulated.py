"""A short campaign finds nothing; one against a broken engine finds what is broken."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.campaign.__main__ import main
from benchmarks.campaign.simulated import faults
from benchmarks.campaign.simulated import run as simulated
from benchmarks.campaign.simulated.worlds import MortalWorld
from caesura.scheduler.vllm.engine.follow_ups import FollowUps
from caesura.scheduler.vllm.engine.kv.manager import PausedKVManager
from tests.scheduler.layouts import LAYOUTS
from tests.scheduler.link import FakeLink
from tests.scheduler.world import Session

FEW = ("window+full", "state+full", "state+window+full")
FULL = ("full",)
RUNS = [*range(6), *(pytest.param(index, marks=pytest.mark.slow) for index in range(6, 40))]
LAID_OUT = [
    pytest.param(layout, index, marks=[] if layout in FEW and index < 1 else [pytest.mark.slow])
    for layout in LAYOUTS[1:]
    for index in range(16)
]


@pytest.mark.parametrize("index", RUNS)
def test_sessions_survive_faults(index: int) -> None:
    survive(index, FULL)


@pytest.mark.parametrize(("layout", "index"), LAID_OUT)
def test_sessions_survive_faults_on_every_layout(layout: str, index: int) -> None:
    survive(index, (layout,))


def survive(index: int, layouts: tuple[str, ...]) -> None:
    outcome = simulated.run(7, index, sessions=80, layouts=layouts)
    assert outcome.sessions == 80
    assert sum(outcome.ends.values()) == 80
    assert not outcome.defects, outcome.defects[0].seen


def kinds(runs: range) -> set[str]:
    outcomes = [simulated.run(7, index, sessions=80, layouts=FULL) for index in runs]
    return {defect.kind for outcome in outcomes for defect in outcome.defects}


def test_kv_that_is_not_its_own_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    made = FakeLink.__init__

    def corrupting(self: FakeLink, *args: object, **given: object) -> None:
        made(self, *args, **given)  # type: ignore[arg-type]
        self.corrupts = True

    monkeypatch.setattr(FakeLink, "__init__", corrupting)
    assert "broken" in kinds(range(8))


def test_what_is_kept_of_an_ended_request_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FollowUps, "at_rest", lambda self: None)
    assert "leaked" in kinds(range(8))


def test_blocks_that_hinder_a_sleep_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a load holds excuses a refusal; what we hold for a paused request does not."""
    monkeypatch.setattr(faults, "FAULTS", (*faults.FAULTS, (0.05, faults.Faults.sleep)))
    assert not kinds(range(3))
    monkeypatch.setattr(PausedKVManager, "reset", lambda self, now: None)
    assert kinds(range(3)) == {"broken"}


def test_a_wedge_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "STEPS", 300)
    monkeypatch.setattr(simulated.Run, "_until", never_answering(simulated.Run._until))
    assert "wedged" in kinds(range(2))


def never_answering(until: object) -> object:
    def hung(self: simulated.Run, there: object) -> None:
        self.world.answer = lambda session: None  # type: ignore[method-assign]
        until(self, there)  # type: ignore[operator]

    return hung


def test_a_token_that_is_lost_on_the_way_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    resend = MortalWorld.resend

    def forgetting(self: MortalWorld, session: Session) -> None:
        resend(self, session)
        session.delivered = session.delivered[:-1]

    monkeypatch.setattr(MortalWorld, "resend", forgetting)
    assert "differs" in kinds(range(4))


def test_the_command_writes_reports_and_tells_by_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = ["simulated", "--seed", "7", "--sessions", "40", "--only", "0", "--report"]
    monkeypatch.setattr(simulated, "SESSIONS", 40)
    assert main([*wanted, str(tmp_path)]) == 0
    report = json.loads((tmp_path / "simulated.json").read_text())
    assert report["seed"] == 7
    assert set(report["defects"].values()) == {0}
    assert report["sessions"] == sum(report["ends"].values())
    assert "| lost | 0 |" in (tmp_path / "simulated.md").read_text()
    monkeypatch.setattr(FollowUps, "at_rest", lambda self: 1 / 0)
    assert main([*wanted, str(tmp_path)]) == 1
    text = (tmp_path / "simulated.md").read_text()
    assert "--seed 7 --only 0" in text and "ZeroDivisionError" in text


def test_ctrl_c_keeps_what_was_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, made = simulated.run, []

    def interrupted(*args: Any, **given: Any) -> object:
        if made:
            raise KeyboardInterrupt
        made.append(whole(*args, sessions=20, **given))
        return made[0]

    monkeypatch.setattr(simulated, "run", interrupted)
    assert main(["simulated", "--seed", "7", "--jobs", "1", "--report", str(tmp_path)]) == 130
    assert json.loads((tmp_path / "simulated.json").read_text())["sessions"] == 20
