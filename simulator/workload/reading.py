"""Read data files, plain or gzipped, as lines, JSON lines or CSV; errors name file and line."""

import csv
import gzip
import io
import json
import math
import zlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any


class DataError(ValueError):
    """A file cannot be read or has the wrong content: `FILE:LINE: what is wrong`."""

    def __init__(self, path: Path, line: int, problem: str) -> None:
        super().__init__(f"{path}:{line}: {problem}" if line else f"{path}: {problem}")
        self.problem = problem


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a UTF-8 file with their numbers, from 1; `.gz` is unpacked."""
    number = 0
    try:
        # Unlike `gzip.open(path, "rt")`, this gives both kinds of files one type.
        packed = path.suffix == ".gz"
        with io.TextIOWrapper(
            gzip.GzipFile(path) if packed else path.open("rb"), encoding="utf-8"
        ) as text:
            for number, line in enumerate(text, 1):
                yield number, line
    except FileNotFoundError as error:
        raise DataError(path, 0, "there is no such file") from error
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(path, number + 1, f"cannot be read: {error}") from error


def json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a JSON-lines file with their line numbers; blank lines are skipped."""
    for number, line in lines(path):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except ValueError as error:
            raise DataError(path, number, f"not JSON: {error}") from error
        if not isinstance(found, dict):
            raise DataError(path, number, f"not a JSON object: {line.strip():.60}")
        yield number, found


def csv_rows(path: Path, columns: Collection[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the rows of a CSV file with their line numbers; the file must have `columns`."""
    # Every line is a row, since no field of these files has a line break.
    header: list[str] = []
    for number, line in lines(path):
        fields = next(csv.reader([line]), [])
        if number == 1:
            header = fields
            missing = [column for column in columns if column not in header]
            if missing:
                raise DataError(path, number, f"no column {missing[0]}; the file has {header}")
        elif fields:
            if len(fields) != len(header):
                raise DataError(path, number, f"{len(fields)} fields under {len(header)} columns")
            yield number, dict(zip(header, fields, strict=True))
    if not header:
        raise DataError(path, 1, "the file is empty")


def number_of(
    record: Mapping[str, Any], key: str, path: Path, line: int, least: float = 0
) -> float:
    """Return the finite number of at least `least` under `key`; it may be a text, as in CSV."""
    value = record.get(key)
    try:
        number = float(value) if isinstance(value, str | int | float) else math.nan
    except ValueError:
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number) or number < least:
        raise DataError(path, line, f"{key} must be a number >= {least:g}, got {value!r}")
    return number


def count_of(record: Mapping[str, Any], key: str, path: Path, line: int, least: int = 0) -> int:
    """Return the whole number of at least `least` under `key`."""
    number = number_of(record, key, path, line, least)
    if number != int(number):
        raise DataError(path, line, f"{key} must be a whole number, got {record[key]!r}")
    return int(number)
