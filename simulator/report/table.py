"""Tables for the terminal, and the same as Markdown."""

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from caesura.simulator.report.grids import Entry, Grid

BEST = "▸"
"""The mark before the best entry of a column, which shows without colour too."""

CUT = "*"
"""The mark after an entry of runs that were cut off."""


def marked(entry: Entry) -> str:
    """Return an entry's text with its marks."""
    return f"{BEST if entry.best else ''}{entry.text}{CUT if entry.cut else ''}"


def to_rich(grid: Grid) -> Table:
    """Return a table for the terminal."""
    table = Table(
        title=escape(grid.title), title_justify="left", title_style="bold", box=SIMPLE_HEAD
    )
    table.add_column("policy", no_wrap=True)
    for column in grid.columns:
        table.add_column(escape(column), justify="right")
    for row in grid.rows:
        cells = [
            f"[bold green]{marked(entry)}[/]" if entry.best else marked(entry)
            for entry in row.entries
        ]
        table.add_row(escape(row.head), *cells)
    return table


def to_markdown(grid: Grid) -> str:
    """Return a table as Markdown, under its title."""
    lines = [
        f"### {plain(grid.title)}",
        "",
        _line(["policy", *map(plain, grid.columns)]),
        _line(["---", *("---:" for _ in grid.columns)]),
    ]
    for row in grid.rows:
        cells = [
            f"**{plain(marked(entry))}**" if entry.best else plain(marked(entry))
            for entry in row.entries
        ]
        lines.append(_line([plain(row.head), *cells]))
    return "\n".join(lines)


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def plain(text: str) -> str:
    """Return the text on one line, with Markdown's markup escaped."""
    for mark in ("\\", "|", "*", "_", "`", "[", "<"):
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())
