"""Files of prompts and lengths, and their parts."""

import gzip
from pathlib import Path

import pytest

from caesura.scheduler.prompt_lengths.training import (
    CHOOSE,
    PARTS,
    REPORT,
    TRAIN,
    DataError,
    Row,
    fingerprint,
    read_rows,
    split,
    split_rule,
    write_rows,
)


def test_rows_survive_a_file(tmp_path: Path) -> None:
    rows = [Row("a\nb", (3,)), Row("ü", (1, 2), "s", 4.5)]
    for name in ("rows.jsonl", "rows.jsonl.gz"):
        write_rows(tmp_path / name, rows)
        assert read_rows(tmp_path / name) == rows
    assert fingerprint(rows) != fingerprint(rows[::-1])


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "must be JSON"),
        ("[1]", "a text `prompt`"),
        ('{"prompt": 3, "tokens": 1}', "a text `prompt`"),
        ('{"prompt": "a"}', "whole number"),
        ('{"prompt": "a", "tokens": -1}', "whole number"),
        ('{"prompt": "a", "tokens": true}', "whole number"),
        ('{"prompt": "a", "samples": []}', "whole number"),
        ('{"prompt": "a", "tokens": 1, "time": "now"}', "`time`"),
        ('{"prompt": "a", "tokens": 1, "session": 7}', "`session`"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, says: str) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"prompt": "fine", "tokens": 1}\n' + line + "\n")
    with pytest.raises(DataError, match=f"line 2: .*{says}"):
        read_rows(file)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_rows(tmp_path / "missing.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(DataError, match="holds no rows"):
        read_rows(tmp_path / "empty.jsonl")
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b'{"prompt": "a", "tokens": 1}' * 99)[:-20])
    with pytest.raises(DataError, match="cannot be read"):
        read_rows(tmp_path / "cut.gz")


def test_parts_follow_the_time_of_sessions() -> None:
    rows = [
        Row("same", (turn,), f"s{index:02}", 100.0 * index + turn)
        for turn in range(3)
        for index in range(20)
    ]
    parts = split(rows, seed=1)
    last = {part: max(row.time or 0 for row in parts[part]) for part in PARTS}
    first = {part: min(row.time or 0 for row in parts[part]) for part in PARTS}
    assert last[TRAIN] < first[CHOOSE] and last[CHOOSE] < first[REPORT]
    assert [len(parts[part]) for part in PARTS] == [39, 9, 12]
    assert split_rule(rows) == "by session, in order of time"


def test_a_prompt_is_in_one_part_whatever_the_order() -> None:
    rows = [Row(f"p{index % 30}", (index,)) for index in range(90)]
    parts = split(rows, seed=3)
    prompts = [{row.prompt for row in parts[part]} for part in PARTS]
    assert sum(map(len, prompts)) == 30
    again = split(rows[::-1], seed=3)
    assert [{row.prompt for row in again[part]} for part in PARTS] == prompts
    assert [{row.prompt for row in split(rows, seed=4)[part]} for part in PARTS] != prompts
    with pytest.raises(DataError, match="2 sessions or prompts are too few"):
        split(rows[:2], seed=3)
