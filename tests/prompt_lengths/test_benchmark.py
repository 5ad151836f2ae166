"""The benchmark of lengths from prompts, on a small set in the form of a published one."""

import gzip
import json
from pathlib import Path

import pytest

from benchmarks.evidence.tables import told
from benchmarks.prompt_lengths.__main__ import main


def test_the_tables_tell_of_the_set_and_of_each_objective(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "infercept_like_sessions"
    folder.mkdir()
    with gzip.open(folder / "qa_hotpot_react.jsonl.gz", "wt") as file:
        for number in range(600):
            words, tokens = ("long", 90) if number % 2 else ("short", 10)
            segment = {"prompt": f"{words} {number}", "completion": "", "completion_tokens": tokens}
            file.write(json.dumps({"id": str(number), "segments": [segment]}) + "\n")
    monkeypatch.chdir(tmp_path)
    asked = "prompt_lengths --data . --sets questions --models linear --objectives l1 listmle"
    monkeypatch.setattr("sys.argv", [*asked.split(), "--tables", "tables.json"])
    main()
    sets, scores = told(Path("tables.json"))
    assert (sets.key, scores.key) == ("sets", "scores")
    assert [row[:3] for row in sets.rows] == [("questions", "a step of ReAct, tokens", "600")]
    assert [row[:3] for row in scores.rows] == [
        ("questions", "linear", objective) for objective in ("l1", "listmle")
    ]
    pairs = scores.columns.index("pairs")
    assert [row[2] for row in scores.rows if float(row[pairs]) < 0.9] == []
