"""A report as one self-contained page, with its images and a short script."""

from base64 import b64encode
from collections.abc import Sequence
from html import escape
from itertools import count

from caesura.simulator.report.grids import Grid, Row
from caesura.simulator.report.plots import Chart
from caesura.simulator.report.table import marked

STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #fff; --faint: #666; --line: #ddd;
  --best: #e3f4ea; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --paper: #16181b; --faint: #9a9a9a; --line: #3a3d42; --best: #173a26; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 80rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; }
dt { color: var(--faint); } dd { margin: 0; }
.scroll { overflow-x: auto; margin: 1.5rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; }
thead th { vertical-align: bottom; white-space: normal; cursor: pointer; user-select: none; }
th:first-child { text-align: left; } tbody th { font-weight: normal; }
td.best { background: var(--best); font-weight: 600; }
figure { margin: 1.5rem 0; } figcaption { color: var(--faint); }
img { max-width: 100%; height: auto; background: #fff; border-radius: 6px; padding: 6px; }
"""

SCRIPT = """
for (const table of document.querySelectorAll('table')) {
  const body = table.tBodies[0];
  table.tHead.querySelectorAll('th').forEach((head, column) => {
    const sort = () => {
      const up = head.getAttribute('aria-sort') !== 'ascending';
      table.tHead.querySelectorAll('th').forEach(other => other.removeAttribute('aria-sort'));
      head.setAttribute('aria-sort', up ? 'ascending' : 'descending');
      const value = row => Number(row.cells[column].dataset.value);
      const compare = (a, b) => {
        const [x, y] = [value(a), value(b)];
        if (isNaN(x) || isNaN(y)) return isNaN(x) - isNaN(y);
        return up ? x - y : y - x;
      };
      [...body.rows].sort(compare).forEach(row => body.append(row));
    };
    head.tabIndex = 0;
    head.addEventListener('click', sort);
    head.addEventListener('keydown', event => { if (event.key === 'Enter') sort(); });
  });
}
"""


def page(
    title: str,
    facts: Sequence[tuple[str, str]],
    notes: Sequence[str],
    sections: Sequence[tuple[str, Sequence[Grid]]],
    charts: Sequence[Chart],
    trace: str = "",
) -> str:
    """Return the page; all text is escaped, so that names may hold any character.

    `sections` are headings with their tables, and `charts` come before them. `trace` is a page to
    link to.
    """
    told = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts)
    said = "".join(f"<p>{escape(note)}</p>" for note in notes)
    if trace:
        said += f'<p><a href="{escape(trace)}">What each policy did, request by request</a></p>'
    tables = "".join(
        f"<h2>{escape(heading)}</h2>{''.join(map(table, grids))}"
        for heading, grids in sections
        if grids
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>"
        f"<h1>{escape(title)}</h1><dl>{told}</dl>{said}"
        f"{''.join(map(_figure, charts))}{tables}"
        f"<script>{SCRIPT}</script></body></html>\n"
    )


def table(grid: Grid) -> str:
    """Return a table that a click on a column's head sorts."""
    heads = "".join(f'<th scope="col">{escape(head)}</th>' for head in ("policy", *grid.columns))
    rows = "".join(_row(row, place) for row, place in zip(grid.rows, count(), strict=False))
    return (
        f'<div class="scroll"><table><caption>{escape(grid.title)}</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _row(row: Row, place: int) -> str:
    cells = "".join(
        f'<td data-value="{entry.value!r}"{" class=best" if entry.best else ""}>'
        f"{escape(marked(entry))}</td>"
        for entry in row.entries
    )
    # Policies sort in the order of the study.
    return f'<tr><th scope="row" data-value="{place}">{escape(row.head)}</th>{cells}</tr>'


def _figure(chart: Chart) -> str:
    image = b64encode(chart.png).decode()
    return (
        f'<figure><img alt="{escape(chart.title)}" src="data:image/png;base64,{image}">'
        f"<figcaption>{escape(chart.title)}</figcaption></figure>"
    )
