"""The rows of a task, from a file: JSON lines with fields, or a text file of prompts."""

import json
from collections.abc import Mapping
from pathlib import Path

from caesura.planning.application.application import ApplicationError

PROMPT = "prompt"
"""The field that holds a line of a text file."""

Row = Mapping[str, object]


def read_rows(path: Path) -> tuple[Row, ...]:
    """Read the rows of a `.jsonl` file, or the prompts of a `.txt` file, a line each.

    Empty lines are skipped. Raises `ApplicationError` with the file and its line.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise ApplicationError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ApplicationError(f"{path}: is not UTF-8 text") from None
    if path.suffix not in (".txt", ".jsonl"):
        raise ApplicationError(
            f"{path}: prompts come from a .jsonl file (an object with fields per line) or a .txt"
            f" file (a prompt per line), got {path.suffix or path.name!r}"
        )
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not numbered:
        raise ApplicationError(f"{path}: holds no rows: write one per line")
    if path.suffix == ".txt":
        return tuple({PROMPT: line.strip()} for _, line in numbered)
    return tuple(_row(path, number, line) for number, line in numbered)


def _row(path: Path, number: int, line: str) -> Row:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ApplicationError(
            f"{path}, line {number}: not valid JSON: {error.msg} (column {error.colno})"
        ) from None
    if not isinstance(row, dict):
        raise ApplicationError(
            f"{path}, line {number}: a row must be an object with fields, got {line.strip():.60}"
        )
    return row
