"""Read the arrivals of published traces.

Azure LLM inference 2023 (Patel et al., "Splitwise: Efficient generative LLM inference using phase
splitting", ISCA 2024): CSV with a column `TIMESTAMP`. Mooncake (Qin et al., FAST 2025): JSON lines
with a `timestamp` in milliseconds. Other columns and fields are ignored.
"""

from datetime import UTC, datetime
from pathlib import Path

from caesura.simulator.workload.reading import DataError, csv_rows, json_lines, number_of

MOONCAKE_GRAIN = 3.0
"""The resolution of Mooncake's stamps in seconds."""


def azure_stamps(path: Path) -> list[float]:
    """Return the ascending arrivals in seconds of one of Azure's CSV files."""
    stamps = []
    for line, row in csv_rows(path, ["TIMESTAMP"]):
        try:
            moment = datetime.fromisoformat(row["TIMESTAMP"])
        except ValueError as error:
            raise DataError(path, line, f"TIMESTAMP: {error}") from error
        # The trace has no time zone; only differences matter.
        stamps.append(moment.replace(tzinfo=UTC).timestamp())
    return _checked(path, stamps)


def mooncake_stamps(path: Path) -> list[float]:
    """Return the ascending arrivals in seconds of one of Mooncake's JSON-lines files."""
    return _checked(
        path,
        [number_of(row, "timestamp", path, line) / 1000 for line, row in json_lines(path)],
    )


def _checked(path: Path, stamps: list[float]) -> list[float]:
    stamps.sort()
    if len(stamps) < 2 or stamps[0] == stamps[-1]:
        raise DataError(path, 0, "a trace needs at least two arrivals at different seconds")
    return stamps
