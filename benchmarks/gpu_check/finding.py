"""What a check found, as plain data that a child process hands to its parent."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

Status = Literal["passed", "measured", "failed", "skipped"]
WORST_FIRST: tuple[Status, ...] = ("failed", "measured", "passed", "skipped")


@dataclass(frozen=True)
class Rows:
    """A table of a report; cells are shown as they are."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Finding:
    """What one check found.

    A check that only measures is `measured`. One that holds something against a rule has `passed`
    or `failed`. `summary` is one sentence, for a skipped check its reason.
    """

    status: Status
    summary: str
    tables: Sequence[Rows] = ()
    figures: dict[str, float | str | bool] = field(default_factory=dict)
    """Numbers by name, with their unit in the name."""
    seconds: float = 0.0

    def save(self, path: Path) -> None:
        """Write the finding as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> "Finding":
        """Read what `save` wrote; raise `OSError` or `ValueError` if there is nothing of it."""
        return cls.of(json.loads(path.read_text()))

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "Finding":
        """Read a finding from its plain data."""
        return cls(**{**data, "tables": [Rows(**table) for table in data["tables"]]})


def merged(parts: Sequence[Finding]) -> Finding:
    """Return what the parts of a check found together: the worst status, and rows side by side.

    Parts with the same title of a table share it. Numbers of the same name are added up.
    """
    if len(parts) == 1:
        return parts[0]
    worst = min((part.status for part in parts), key=WORST_FIRST.index)
    tables: dict[str, Rows] = {}
    figures: dict[str, float | str | bool] = {}
    for part in parts:
        for one in part.tables:
            before = tables[one.title].rows if one.title in tables else ()
            tables[one.title] = Rows(one.title, one.columns, [*before, *one.rows])
        for name, value in part.figures.items():
            figures[name] = _sum(figures.get(name), value)
    told = [part.summary for part in parts if part.status == worst]
    summary = " ".join(dict.fromkeys(told))
    return Finding(worst, summary, list(tables.values()), figures, max(p.seconds for p in parts))


def _sum(before: float | str | bool | None, value: float | str | bool) -> float | str | bool:
    counts = isinstance(before, int | float) and isinstance(value, int | float)
    return before + value if counts else value  # type: ignore[operator]
