"""What a check found, as plain data that a child process hands to its parent."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

Status = Literal["passed", "measured", "failed", "skipped"]


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
        data = json.loads(path.read_text())
        return cls(**{**data, "tables": [Rows(**table) for table in data["tables"]]})
