"""`caesura trace predictions` and the forecasts in `caesura trace show`."""

import json
from pathlib import Path
from typing import Any

import pytest

from caesura.runtime.recording.entries import Entry
from caesura.scheduler.records import ForecastRecord, PauseRecord, PredictionRecord, SessionRecord

from .traces import stored, trace


def forecast(session: str, calls: int, at: float) -> Entry:
    table = PredictionRecord(
        "history", 100.0, [], 2.0, ends_now=0.25, ends_within_3=0.75, pause_seconds=4.0
    )
    model = PredictionRecord("model", 60.0, [40.0, 60.0, 90.0], 1.0 - calls)
    rows = (table, model)
    return ForecastRecord(session, at, session, calls, "search", predictions=rows).entry()


def session(name: str, at: float) -> list[Entry]:
    """A session with one call, of 50 tokens before it and 80 after it, that waits for 2 s."""
    return [
        forecast(name, 0, at),
        forecast(name, 1, at + 5),
        PauseRecord(
            name, at + 3, name, decoded_tokens=50, outcome="resumed", pause_seconds=2.0
        ).entry(),
        SessionRecord(name, at + 9, name, decoded_tokens=80, calls=1, outcome="stop").entry(),
    ]


ENTRIES = [*session("one", 100.0), *session("two", 200.0), forecast("open", 0, 300.0)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return stored(tmp_path, ENTRIES, ended=310.0)


def rows(told: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(each["quantity"], each["predictor"]): each for each in told["predictions"]}


def test_predictions_are_compared_by_predictor_and_quantity(file: Path) -> None:
    found = rows(json.loads(trace("predictions", "--json", "--store", file).stdout))
    tokens = found["decode_tokens", "history"]
    assert (tokens["count"], tokens["predicted"], tokens["actual"]) == (4, 100.0, 65.0)
    assert tokens["error"] == 35.0
    assert found["decode_tokens", "model"]["covered"] == 1.0
    assert found["calls_left", "model"]["error"] == 0.0
    assert found["calls_left", "model"]["pair_accuracy"] == 1.0
    assert found["pause_seconds", "history"]["error"] == 2.0
    assert ("long_pause", "history") not in found


def test_a_table_is_printed_for_each_file(file: Path, tmp_path: Path) -> None:
    shown = trace("predictions", "--store", file).stdout
    assert "tokens of the segment" in shown and "model" in shown
    line = next(each for each in shown.splitlines() if each.startswith("calls left"))
    assert line.split()[:6] == ["calls", "left", "history", "4", "2", "0.5"]
    records = tmp_path / "records.jsonl"
    records.write_text("".join(json.dumps(each) + "\n" for each in ENTRIES))
    again = trace("predictions", "--records", records, "--store", tmp_path / "no").stdout
    assert again.startswith("records.jsonl\n")
    assert again.splitlines()[1:] == shown.splitlines()[1:]


def test_a_recording_without_forecasts_says_so(tmp_path: Path) -> None:
    records = tmp_path / "old.jsonl"
    records.write_text('{"kind": "session", "request": "r", "at": 1.0}\n')
    assert "no prediction can be compared yet" in trace("predictions", "--records", records).stdout
    assert "cannot be read" in trace("predictions", "--records", tmp_path / "no", code=1).stderr


def test_a_session_is_shown_with_what_was_predicted_at_each_call(file: Path) -> None:
    shown = trace("show", "one", "--store", file).stdout
    lines = [line.lstrip("│├─└ ") for line in shown.splitlines()]
    assert "+0.000 s forecast after 0 calls" in lines
    assert (
        "history: tokens of the segment 100.0, calls left 2.0, seconds of the pause 4, it ends now"
        " 25%, 3 calls or fewer are left 75%"
    ) in " ".join(lines)
    assert "model: tokens of the segment 60.0, 40 to 90 of them, calls left 1.0" in lines
    assert "what came: tokens of the segment 50.0, calls left 1.0, seconds of the pause 2, it" in (
        shown.replace("\n", " ")
    )
    assert "what came: tokens of the segment 80.0, calls left 0.0, it ends now yes" in shown
    told = json.loads(trace("show", "one", "--json", "--store", file).stdout)
    assert [each["calls"] for each in told["forecasts"]] == [0, 1]
