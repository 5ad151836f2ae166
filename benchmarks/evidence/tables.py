"""Tables as plain data: what a benchmark tells, and what a page shows."""

import argparse
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table as Drawn
from rich.text import Text

NUMBER = re.compile(r"[▸*±+\-−–]*\d|[–-]?$")


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and rows of text; `key` tells it from the other tables of a result."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    key: str = ""

    def __post_init__(self) -> None:
        """Raise `ValueError` where a row has another number of cells than there are columns."""
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"a row of {len(row)} cells under {len(self.columns)} columns")

    @classmethod
    def of(
        cls, columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "", key: str = ""
    ) -> "Table":
        """Return a table of these cells."""
        return cls(tuple(columns), tuple(tuple(row) for row in rows), title, key)

    @classmethod
    def drawn(cls, table: Drawn, title: str | None = None, key: str = "") -> "Table":
        """Return the table that a terminal shows, under its own title unless another is given."""
        columns = [_plain(str(column.header)) for column in table.columns]
        cells = [[_plain(str(cell)) for cell in column.cells] for column in table.columns]
        named = _plain(str(table.title or "")) if title is None else title
        return cls.of(columns, zip(*cells, strict=True), named, key)

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> "Table":
        """Read what `asdict` makes, be it from JSON."""
        return cls.of(wire["columns"], wire["rows"], wire["title"], wire["key"])

    def markdown(self) -> str:
        """Return the table in Markdown, under its title in bold; numbers stand to the right."""
        rules = [
            "---:" if place and all(NUMBER.match(row[place]) for row in self.rows) else "---"
            for place in range(len(self.columns))
        ]
        lines = [f"**{self.title}**", ""] if self.title else []
        lines += [
            f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
            for cells in (self.columns, rules, *self.rows)
        ]
        return "\n".join(lines)


def _plain(text: str) -> str:
    return Text.from_markup(text).plain


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that `tell` needs."""
    about = "write the tables into this file, as benchmarks.evidence asks for them"
    parser.add_argument("--tables", type=Path, metavar="FILE", help=about)


def tell(path: Path | None, tables: Iterable[Table]) -> None:
    """Write the tables of a run that is complete; without a path do nothing."""
    if path is not None:
        path.write_text(json.dumps([asdict(table) for table in tables], ensure_ascii=False))


def told(path: Path) -> list[Table]:
    """Read what `tell` wrote."""
    return [Table.from_wire(wire) for wire in json.loads(path.read_text())]
