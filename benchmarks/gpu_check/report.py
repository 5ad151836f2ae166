"""The report of all checks, as Markdown that fits into docs/study/evidence.md."""

from collections.abc import Mapping, Sequence

from benchmarks.gpu_check.finding import Finding, Rows


def markdown(findings: Mapping[str, Finding], titles: Mapping[str, str]) -> str:
    """Return the report: a table of all checks, then each with its own tables."""
    lines = ["## On a GPU", ""]
    lines += _table(
        ["check", "result", "seconds", "what was found"],
        [
            [titles[name], found.status, f"{found.seconds:.0f}", found.summary]
            for name, found in findings.items()
        ],
    )
    for name, found in findings.items():
        if not found.tables:
            continue
        lines += ["", f"### {titles[name]}"]
        for table in found.tables:
            lines += ["", table.title, "", *_of(table)]
    return "\n".join(lines) + "\n"


def _of(table: Rows) -> list[str]:
    return _table(table.columns, table.rows)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [_line(columns), _line(["---"] * len(columns)), *map(_line, rows)]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"
