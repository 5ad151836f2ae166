"""The tables of a study: what they measure, a row per policy, and how they are drawn.

A `Measure` has the title, the unit and the better direction of a field of `Figures`. A `Grid` is a
table as plain data, which the terminal and Markdown show with the same marks.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from caesura.simulator.study.conduct import Outcome
from caesura.simulator.study.plan import Study
from caesura.simulator.study.summary import Estimate, Point

Better = Literal["low", "high", ""]

UNKNOWN = "–"
"""The text in place of a missing value."""

SIGNIFICANT = 3


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure of `Figures`; its value times `scale` is in its unit."""

    name: str
    title: str
    unit: str = ""
    better: Better = "low"
    scale: float = 1.0

    @property
    def heading(self) -> str:
        """Return the title with its unit, for a column or an axis."""
        return f"{self.title} [{self.unit}]" if self.unit else self.title


SERVICE = (
    Measure("latency_mean", "mean latency", "s"),
    Measure("latency_median", "median latency", "s"),
    Measure("latency_p99", "p99 latency", "s"),
    Measure("ttft_mean", "mean TTFT", "s"),
    Measure("ttft_p99", "p99 TTFT", "s"),
    Measure("normalized_latency", "normalized latency", "ms/token", scale=1e3),
    Measure("sessions_per_second", "sessions", "1/s", "high"),
    Measure("tokens_per_second", "tokens", "1/s", "high"),
)
"""The measures of the service that users get."""

GOODPUT = (
    Measure("goodput_share", "sessions within the objective", "%", "high", 100),
    Measure("goodput_sessions", "goodput", "sessions/s", "high"),
    Measure("goodput_tokens", "goodput", "tokens/s", "high"),
)
"""The measures that need an objective."""

HEADLINE = tuple(
    measure
    for measure in SERVICE
    if measure.name not in ("latency_median", "ttft_p99", "tokens_per_second")
)
"""The measures of `SERVICE` that fit a terminal."""

MEMORY = (
    Measure("waste_recompute", "waste: recompute", "%", scale=100),
    Measure("waste_preserve", "waste: preserve", "%", scale=100),
    Measure("waste_stall", "waste: stall", "%", scale=100),
    Measure("recompute_share", "tokens recomputed", "%", scale=100),
    Measure("preemptions", "preemptions"),
    Measure("stall_seconds", "stalled", "s"),
    Measure("steps", "steps", "", ""),
    Measure("busy_share", "device busy", "%", "", 100),
    Measure("memory_share", "KV memory used", "%", "", 100),
)
"""The measures of memory and steps."""

REPLICAS = (
    Measure("load_variation", "variation of requests"),
    Measure("busy_imbalance", "busiest over mean"),
    Measure("cached_share", "tokens cached", "%", "high", 100),
    Measure("recompute_share", "tokens recomputed", "%", scale=100),
    Measure("waste_preserve", "waste: preserve", "%", scale=100),
    Measure("busy_share", "devices busy", "%", "", 100),
    Measure("memory_share", "KV memory used", "%", "", 100),
)
"""The measures of several replicas: their balance, their caches and their waste."""

BY_NAME = {measure.name: measure for measure in (*REPLICAS, *SERVICE, *GOODPUT, *MEMORY)}


def number(value: float, like: float | None = None) -> str:
    """Return a number as text with three significant digits, or all digits before the point.

    With `like` it has as many decimals as `like` would have.
    """
    if math.isnan(value):
        return UNKNOWN
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:,.{_decimals(value if like is None else like)}f}"


def estimated(found: Estimate, scale: float = 1.0) -> str:
    """Return a mean as text, with the half width of its interval if there is one."""
    text = number(found.mean * scale)
    if math.isnan(found.half):
        return text
    return f"{text} ±{number(found.half * scale, like=found.mean * scale)}"


def _decimals(value: float) -> int:
    if value == 0 or not math.isfinite(value):
        return 0
    return max(0, SIGNIFICANT - 1 - math.floor(math.log10(abs(value))))


BOUND = " (bound)"
"""The mark after the name of a policy that is a bound and not a system."""

NO_ENTRY = Estimate(math.nan, math.nan, 0)


@dataclass(frozen=True, slots=True)
class Entry:
    """One value: its text, the number that sorts it, and its marks.

    `best`: it is the best of its column. `cut`: sessions of its runs were cut off.
    """

    text: str
    value: float
    best: bool = False
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """The entries of a policy."""

    head: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: a title, the heads of its columns, and a row per policy."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


def service_grids(
    study: Study, points: Sequence[Point], measures: Sequence[Measure] = SERVICE
) -> list[Grid]:
    """Return a table of the users' measures per machine and rate, with goodput if it is known."""
    return [
        _measures_grid(_at(study, machine, rate), here, _measured(study, measures))
        for machine, rate, here in _places(study, points)
    ]


def memory_grids(study: Study, points: Sequence[Point]) -> list[Grid]:
    """Return a table of memory and steps per machine and rate."""
    return [
        _measures_grid(f"{_at(study, machine, rate)}: memory and steps", here, MEMORY)
        for machine, rate, here in _places(study, points)
    ]


def replica_grids(study: Study, points: Sequence[Point]) -> list[Grid]:
    """Return a table of balance, caches and waste per machine and rate; none for one engine."""
    routed = [point for point in points if point.policy.fleet is not None]
    return [
        _measures_grid(f"{_at(study, machine, rate)}: balance and caches", here, REPLICAS)
        for machine, rate, here in _places(study, routed)
    ]


def rate_grids(study: Study, points: Sequence[Point]) -> list[Grid]:
    """Return a table per machine and measure, with a column per rate; none for a single rate."""
    if len(study.rates) < 2:
        return []
    return [
        _rates_grid(study, measure, machine, [each for each in points if each.machine == machine])
        for machine in study.machines
        for measure in _measured(study, SERVICE)
    ]


def ratio_grids(
    study: Study, points: Sequence[Point], measures: Sequence[Measure] = SERVICE
) -> list[Grid]:
    """Return a table of ratios to the baseline per machine and rate; none without a baseline."""
    grids = []
    for machine, rate, here in _places(study, points):
        if any(point.ratios for point in here):
            title = f"{_at(study, machine, rate)}: ratio to {study.baseline}, by seed"
            known = _measured(study, measures)
            rows = [
                Row(_name(point), tuple(_ratio(point, measure) for measure in known))
                for point in here
                if point.name != study.baseline
            ]
            columns = tuple(measure.title for measure in known)
            if rows:
                grids.append(Grid(title, columns, tuple(rows)))
    return grids


def _measured(study: Study, measures: Sequence[Measure]) -> Sequence[Measure]:
    """Return the measures that a study has: with an objective, goodput too."""
    return (*measures, *GOODPUT) if study.slo is not None else measures


def _places(study: Study, points: Iterable[Point]) -> list[tuple[str, float, list[Point]]]:
    places = [(machine, rate) for machine in study.machines for rate in study.rates]
    found = [
        (machine, rate, [p for p in points if (p.machine, p.rate) == (machine, rate)])
        for machine, rate in places
    ]
    return [place for place in found if place[2]]


def _at(study: Study, machine: str, rate: float) -> str:
    where = f", {machine}" if len(study.machines) > 1 else ""
    return f"{study.load(rate)}{where}"


def _name(point: Point) -> str:
    return point.name + (BOUND if point.policy.free_link else "")


def _measures_grid(title: str, points: Sequence[Point], measures: Sequence[Measure]) -> Grid:
    columns = [_marked(points, measure) for measure in measures]
    rows = [
        Row(_name(point), entries)
        for point, entries in zip(points, zip(*columns, strict=True), strict=True)
    ]
    return Grid(title, tuple(measure.heading for measure in measures), tuple(rows))


def _rates_grid(study: Study, measure: Measure, machine: str, points: Sequence[Point]) -> Grid:
    where = f", {machine}" if len(study.machines) > 1 else ""
    columns: list[dict[str, Entry]] = []
    for rate in study.rates:
        here = [point for point in points if point.rate == rate]
        entries = _marked(here, measure)
        columns.append({_name(p): entry for p, entry in zip(here, entries, strict=True)})
    nothing = Entry(estimated(NO_ENTRY), math.nan)
    names = dict.fromkeys(_name(point) for point in points)
    rows = [Row(name, tuple(column.get(name, nothing) for column in columns)) for name in names]
    heads = tuple(study.load(rate) for rate in study.rates)
    return Grid(f"{measure.heading}{where}", heads, tuple(rows))


def _marked(points: Sequence[Point], measure: Measure) -> list[Entry]:
    """Return a column with its best entries marked, unless all are equal.

    Neither a bound nor a run that was cut off can be best: the sessions of a cut-off run that ended
    are those with short latencies.
    """
    entries = [_entry(point, measure) for point in points]
    barred = [
        entry.cut or point.policy.free_link for entry, point in zip(entries, points, strict=True)
    ]
    return _best_marked(entries, measure.better, barred)


def _best_marked(entries: Sequence[Entry], better: Better, barred: Sequence[bool]) -> list[Entry]:
    """Return a column with its best entries marked, unless all are equal; none is `barred`."""
    known = [
        (entry, not (out or math.isnan(entry.value)))
        for entry, out in zip(entries, barred, strict=True)
    ]
    values = {entry.value for entry, able in known if able}
    if not better or len(values) < 2:
        return list(entries)
    best = min(values) if better == "low" else max(values)
    return [replace(entry, best=able and entry.value == best) for entry, able in known]


def _entry(point: Point, measure: Measure) -> Entry:
    found = point.means[measure.name]
    return Entry(
        estimated(found, measure.scale), found.mean * measure.scale, cut=point.unfinished > 0
    )


def _ratio(point: Point, measure: Measure) -> Entry:
    found = point.ratios.get(measure.name, NO_ENTRY)
    return Entry(estimated(found), found.mean, cut=point.unfinished > 0)


PREDICTED: tuple[tuple[str, str, str, Better], ...] = (
    ("decode_tokens", "error", "tokens: error", "low"),
    ("decode_tokens", "pair_accuracy", "in order", "high"),
    ("calls_left", "error", "calls left: error", "low"),
    ("calls_left", "pair_accuracy", "in order", "high"),
    ("ends_within_3", "pair_accuracy", "3 or fewer left: AUC", "high"),
    ("ends_now", "pair_accuracy", "ends now: AUC", "high"),
    ("pause_seconds", "error", "pause: error [s]", "low"),
    ("long_pause", "pair_accuracy", "over 30 s: AUC", "high"),
)
"""Quantity, measure, heading, and the better direction of each column."""


def prediction_grids(outcome: Outcome) -> list[Grid]:
    """Return a table of predictors per machine and rate, of the first seed; none without them.

    An error is the mean absolute one. `in order` is the share of pairs that the predictions order
    rightly. A policy has a row for its predictor, and for each part that this mixes.
    """
    study, grids = outcome.study, []
    for machine in study.machines:
        for rate in study.rates:
            runs = [
                made
                for made in outcome.made
                if (made.cell.machine, made.cell.rate) == (machine, rate)
                and made.cell.seed == study.seeds[0]
                and made.predictions
            ]
            rows = [
                row
                for made in runs
                for row in _predictor_rows(made.cell.policy.name, made.predictions)
            ]
            if rows:
                title = f"{_at(study, machine, rate)}: predictions against what came"
                heads = tuple(heading for _, _, heading, _ in PREDICTED)
                grids.append(Grid(title, heads, tuple(_predictors_marked(rows))))
    return grids


def _predictor_rows(policy: str, predictions: Sequence[Mapping[str, Any]]) -> list[Row]:
    names = list(dict.fromkeys(each["predictor"] for each in predictions))
    known = {(each["predictor"], each["quantity"]): each for each in predictions}
    return [
        Row(
            f"{policy}: {name}",
            tuple(
                _predicted(known.get((name, quantity), {}).get(measure))
                for quantity, measure, _, _ in PREDICTED
            ),
        )
        for name in names
    ]


def _predicted(value: float | None) -> Entry:
    known = math.nan if value is None else value
    return Entry(number(known), known)


def _predictors_marked(rows: Sequence[Row]) -> list[Row]:
    columns = [
        _best_marked(column, better, [False] * len(rows))
        for column, (_, _, _, better) in zip(
            zip(*(row.entries for row in rows), strict=True), PREDICTED, strict=True
        )
    ]
    marked = zip(*columns, strict=True)
    return [Row(row.head, entries) for row, entries in zip(rows, marked, strict=True)]


# -- drawn ----------------------------------------------------------------------------------------

BEST = "▸"
"""The mark before the best entry of a column, which shows without colour too."""

CUT = "*"
"""The mark after an entry of runs that were cut off."""


def _told(entry: Entry) -> str:
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
            f"[bold green]{_told(entry)}[/]" if entry.best else _told(entry)
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
            f"**{plain(_told(entry))}**" if entry.best else plain(_told(entry))
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
