"""The report of all checks, as tables and as Markdown."""

from collections.abc import Mapping

from benchmarks.evidence.tables import Table
from benchmarks.gpu_check.finding import Finding


def tables(findings: Mapping[str, Finding], titles: Mapping[str, str]) -> list[Table]:
    """Return a table of all checks, then each check's own."""
    rows = [
        (titles[name], found.status, f"{found.seconds:.0f}", found.summary)
        for name, found in findings.items()
    ]
    checks = Table.of(("check", "result", "seconds", "what was found"), rows)
    return [checks] + [
        Table.of(one.columns, one.rows, f"{titles[name]}: {one.title}")
        for name, found in findings.items()
        for one in found.tables
    ]


def markdown(findings: Mapping[str, Finding], titles: Mapping[str, str]) -> str:
    """Return the report as a page."""
    parts = ["## On a GPU", *(table.markdown() for table in tables(findings, titles))]
    return "\n\n".join(parts) + "\n"
