"""The benchmark of remaining calls predicts every turn before it learns anything later."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.evidence.tables import told
from benchmarks.remaining_calls.__main__ import COLUMNS, main
from benchmarks.remaining_calls.sessions import read
from benchmarks.remaining_calls.stream import play
from caesura.scheduler.predict.forecast import About, Forecast
from caesura.scheduler.predict.history import History

LINE = {"llm_s": 1.0, "pause_s": 4.0, "pause_kind": "tool"}
TOOLS = [{"name": "Bash", "error": True}]


def written(folder: Path, lines: list[dict[str, Any]]) -> Path:
    with gzip.open(folder / "sessions.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    return folder


def three_turns() -> dict[str, Any]:
    return {
        "turns": [
            {**LINE, "ctx": 100, "out": 10, "tools": TOOLS},
            {**LINE, "ctx": 130, "out": 20, "tools": None},
            {**LINE, "ctx": 170, "out": 30, "tools": None, "pause_kind": None},
        ]
    }


def test_sessions_are_read_with_the_facts_before_each_turn(tmp_path: Path) -> None:
    first, second, last = read(written(tmp_path, [three_turns()]))[0].turns
    assert [turn.left for turn in (first, second, last)] == [2, 1, 0]
    assert (first.facts.calls, first.facts.context_tokens, first.pause) == (0, 100, 4.0)
    assert (second.facts.tool, second.facts.result_tokens, second.facts.errors) == ("Bash", 20, 1)
    assert (last.facts.context_tokens, last.facts.segment_mean, last.pause) == (170, 15.0, None)
    assert last.facts.seconds == 10.0


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="neither"):
        read(tmp_path)


class Noting(History):
    """A history that notes the order of what it is asked and told."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[tuple[str, str, int]] = []

    def forecast(self, about: About) -> Forecast:
        self.order.append(("asked", about.key, about.calls))
        return super().forecast(about)

    def observe_segment(self, about: About, decoded_tokens: int, called: bool) -> None:
        self.order.append(("told", about.key, about.calls))
        super().observe_segment(about, decoded_tokens, called)


def test_every_turn_is_asked_before_it_is_told(tmp_path: Path) -> None:
    sessions, noting = read(written(tmp_path, [three_turns(), three_turns()])), Noting()
    rows, costs = play(sessions, noting)
    assert set(rows["history"]) == {(index, turn) for index in range(2) for turn in range(3)}
    assert len(costs.forecasts) == 6
    for index in range(2):
        for turn in range(3):
            asked = noting.order.index(("asked", str(index), turn))
            assert asked < noting.order.index(("told", str(index), turn))


def test_the_table_tells_how_each_predictor_did_on_the_last_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = written(tmp_path, [three_turns()] * 10), tmp_path / "tables.json"
    asked = ["remaining_calls", "--no-trees", "--data", str(folder), "--tables", str(out)]
    monkeypatch.setattr("sys.argv", asked)
    main()
    (table,) = told(out)
    assert table.title == "reported on sessions 6 to 9, 12 turns"
    assert table.columns == COLUMNS[: len(table.columns)]
    # All sessions are the same, so that a table of earlier ones knows their calls.
    history = next(row for row in table.rows if row[0] == "history")
    assert (history[1], float(history[2]) < 0.5) == ("1.000", True)
