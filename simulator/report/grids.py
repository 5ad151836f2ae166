"""The tables of a report as plain data, before they are drawn."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from caesura.simulator.report.measures import GOODPUT, MEMORY, REPLICAS, SERVICE, Measure, estimated
from caesura.simulator.study.plan import Study
from caesura.simulator.study.summary import Estimate, Point

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
    able = [
        entry.value
        for point, entry in zip(points, entries, strict=True)
        if not (entry.cut or point.policy.free_link or math.isnan(entry.value))
    ]
    if not measure.better or len(set(able)) < 2:
        return entries
    best = min(able) if measure.better == "low" else max(able)
    return [
        replace(entry, best=entry.value == best and not (entry.cut or point.policy.free_link))
        for point, entry in zip(points, entries, strict=True)
    ]


def _entry(point: Point, measure: Measure) -> Entry:
    found = point.means[measure.name]
    return Entry(
        estimated(found, measure.scale), found.mean * measure.scale, cut=point.unfinished > 0
    )


def _ratio(point: Point, measure: Measure) -> Entry:
    found = point.ratios.get(measure.name, NO_ENTRY)
    return Entry(estimated(found), found.mean, cut=point.unfinished > 0)
