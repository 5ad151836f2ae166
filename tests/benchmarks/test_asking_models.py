"""The study of agents that ask an expert: its draws, its runs and its tables."""

from dataclasses import replace
from pathlib import Path

from benchmarks.asking_models.series import KNOWN, Cell, run_cell
from benchmarks.asking_models.workload import EXPERT, SETTINGS, draw, split_settings

SHORT = next(setting for setting in SETTINGS if setting.name == "short answers")


def test_every_question_belongs_to_a_call_of_the_expert() -> None:
    agents, questions = draw(SHORT, 60, 3)
    by_key = {one.key: one for one in agents.sessions}
    calls = [
        by_key[question.parent].segments[question.parent_call] for question in questions.sessions
    ]
    assert calls
    assert all(call.tool == EXPERT for call in calls)
    asked = sum(part.tool == EXPERT for one in agents.sessions for part in one.segments)
    assert asked == len(calls)


def test_the_parts_of_a_device_get_the_same_sessions_and_all_of_its_memory() -> None:
    settings = split_settings()
    assert len({draw(setting, 30, 3) for setting in settings}) == 1
    assert len({sum(one.kv_tokens for one in each.machines()) for each in settings}) == 1


def test_runs_are_kept_and_more_knowledge_is_nearer_to_the_truth(tmp_path: Path) -> None:
    cells = {known: Cell(SHORT, "fcfs", 5, known, 8.0) for known in KNOWN}
    runs = {known: run_cell(cell, tmp_path) for known, cell in cells.items()}
    assert len({run["sessions"] for run in runs.values()}) == 1
    assert runs["learned"]["error"] is None
    assert runs["true"]["error"] < runs["plan"]["error"]
    assert runs["lengths"]["error"] < runs["rough"]["error"]
    kept = cells["true"].path(tmp_path)
    before = kept.stat().st_mtime_ns
    assert run_cell(cells["true"], tmp_path) == runs["true"]
    assert kept.stat().st_mtime_ns == before
    assert cells["true"].path(tmp_path) != replace(cells["true"], seed=6).path(tmp_path)
