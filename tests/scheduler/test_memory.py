"""What is learned, over restarts: the file of the version before, broken files, other models."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from caesura.scheduler.predict.forecast import About
from caesura.scheduler.predict.history import History
from caesura.scheduler.vllm.engine.sessions.history_file import MAX_MODELS, HistoryFile

from .world import World, make_scheduler

CALL = "sum [calc(1+2) ->"
ABOUT = About("a", "calc", 1, 0)


def remember(path: Path, model: str = "m") -> tuple[HistoryFile, History]:
    memory = HistoryFile(str(path))
    history = History(memory.predictor)
    memory.keep(history, model)
    return memory, history


def learned(path: Path, tokens: int = 700, model: str = "m") -> None:
    memory, history = remember(path, model)
    for _ in range(20):
        history.observe_segment(ABOUT, tokens, True)
        history.observe_end(replace(ABOUT, calls=2), {"calc"})
        history.observe_pause("a", "calc", 9.0)
    memory.save()


def test_a_scheduler_goes_on_where_the_last_one_was(tmp_path: Path) -> None:
    path = tmp_path / "state" / "pauses.json"
    world = World(make_scheduler(pauses=str(path)))
    for index in range(5):
        start = 1000 * index
        world.session(f"s{index}", range(start, start + 40), "x" * 90 + CALL, " 3]", " done")
    world.run()
    world.scheduler.shutdown()
    before, after = world.scheduler, make_scheduler(pauses=str(path))
    known = after.parts.sessions.predictor.forecast(ABOUT)
    assert known == before.parts.sessions.predictor.forecast(ABOUT)
    assert known != History().forecast(ABOUT)


def test_a_file_of_pauses_alone_is_read(tmp_path: Path) -> None:
    path = tmp_path / "pauses.json"
    record = {"prior_seconds": 1.0, "prior_weight": 2.0, "recent": [30.0] * 50}
    path.write_text(json.dumps({"tools": {"calc": record}}))
    memory, history = remember(path)
    assert memory.predictor.durations_for("calc").recent == (30.0,) * 50
    history.observe_segment(ABOUT, 300, True)
    memory.save()
    data = json.loads(path.read_text())
    assert data["tools"]["calc"] == record
    assert set(data["sessions"]) == {"m"}


def test_pauses_are_the_tools_and_lengths_the_models(tmp_path: Path) -> None:
    path = tmp_path / "pauses.json"
    learned(path, 700, "large")
    learned(path, 20, "small")
    memory, large = remember(path, "large")
    assert memory.predictor.durations_for("calc").count == 40
    assert large.forecast(ABOUT).segment_tokens > 500
    assert remember(path, "small")[1].forecast(ABOUT).segment_tokens < 100
    assert remember(path, "new")[1].forecast(ABOUT) != large.forecast(ABOUT)


def test_only_the_models_served_last_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "pauses.json"
    for index in (*range(MAX_MODELS + 1), 1):
        learned(path, 50, f"m{index}")
    kept = json.loads(path.read_text())["sessions"]
    assert list(kept) == [f"m{index}" for index in (*range(2, MAX_MODELS + 1), 1)]


def test_nothing_new_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "pauses.json"
    remember(path)[0].save()
    assert not path.exists()
    learned(path)
    path.unlink()
    memory, history = remember(path)
    history.observe_segment(ABOUT, 5, True)
    memory.save()
    path.unlink()
    memory.save()
    assert not path.exists()


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"tools": []}', '{"tools": {}, "sessions": 3}', "[" * 100_000, "\udcff"],
)
def test_a_broken_file_is_told_and_replaced(
    text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "pauses.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    learned(path)
    assert "is not used, and will be replaced" in caplog.text
    assert remember(path)[1].forecast(ABOUT).segment_tokens > 500


@pytest.mark.parametrize(
    "sessions", [None, [], {"segments": {}}, {"segments": {"kinds": {"calc": {"recent": [1e300]}}}}]
)
def test_broken_sessions_cost_themselves_only(
    sessions: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "pauses.json"
    learned(path)
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "sessions": {"m": sessions}}))
    memory, history = remember(path)
    assert memory.predictor.durations_for("calc").count == 20
    assert history.forecast(ABOUT).segment_tokens == History().forecast(ABOUT).segment_tokens
    assert ("sessions of m are not used" in caplog.text) == (sessions is not None)


def test_a_file_that_cannot_be_written_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    memory, history = remember(tmp_path / "file" / "pauses.json")
    for _ in range(2):
        history.observe_segment(ABOUT, 1, True)
        memory.save()
    assert caplog.text.count("cannot save the learned") == 1


def numbers_in(data: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if isinstance(data, dict):
        return [one for key, value in data.items() for one in numbers_in(value, (*path, key))]
    return [path] if isinstance(data, int | float) else []


@pytest.mark.parametrize("number", [1e308, 1e300, 1e18, 5e-324])
def test_no_number_of_a_file_makes_a_forecast_fail(number: float, tmp_path: Path) -> None:
    path = tmp_path / "pauses.json"
    learned(path)
    data = json.loads(path.read_text())
    for place in numbers_in(data):
        changed = json.loads(json.dumps(data))
        holder = changed
        for key in place[:-1]:
            holder = holder[key]
        holder[place[-1]] = number
        path.write_text(json.dumps(changed))
        history = remember(path)[1]
        for kind in ("calc", "new"):
            about = replace(ABOUT, kind=kind)
            history.forecast(about).ends_within(0)
            history.pause("x", kind, 1)
            history.observe_segment(about, 5, True)
            history.observe_pause("x", kind, 2.0)
            history.observe_result(kind, 4)
            history.observe_end(about, {kind})
        history.to_wire()
