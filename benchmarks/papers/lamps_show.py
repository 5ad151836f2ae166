"""Tables of what was run for a figure of the LAMPS paper, and of what adds what."""

from collections.abc import Iterator

from benchmarks.papers.lamps_plan import Chain, Figure
from benchmarks.papers.lamps_run import Found, Setup
from benchmarks.papers.run import Sheet, number

NAMES = {
    "latency_mean": "latency mean, s",
    "latency_median": "latency median, s",
    "latency_p99": "latency P99, s",
    "ttft_mean": "TTFT mean, s",
    "ttft_p99": "TTFT P99, s",
    "sessions_per_second": "ended/s",
    "tokens_per_second": "decoded tokens/s",
}

STATE = ("recompute_share", "memory_share", "unfinished")
"""What tells whether a run was overloaded, and what it lost."""

STATE_NAMES = ("recomputed", "KV in use", "cut off")


def measures(figure: Figure, found: Found, quick: bool, about: str) -> Sheet:
    """Return the figure's measures of all that was run for it."""
    columns = ("setup", "system", *(NAMES[name] for name in figure.measures), *STATE_NAMES)
    rows = tuple(
        (str(setup), system, *_values(found, setup, system, figure.measures))
        for setup, systems in _together(figure, quick).items()
        for system in systems
        if found.has(setup, system)
    )
    return Sheet(f"LAMPS, Figure {figure.number}: {figure.shows}", about, columns, rows)


def added(chain: Chain, found: Found) -> Sheet:
    """Return what each change of a chain makes of the mean latency, the TTFT and the tail."""
    setup, steps = chain
    shown = ("latency_mean", "ttft_mean", "latency_p99")
    rows, before = [], ""
    for system, change in steps:
        cells = [change]
        for name in shown:
            cells.append(number(found.mean(setup, system, name)))
            part = found.quotient(setup, system, before, name).mean if before else 1.0
            cells.append(f"{part - 1:+.0%}" if before else "")
        cells.append(f"{found.mean(setup, system, 'recompute_share'):.0%}")
        rows.append(tuple(cells))
        before = system
    names = [text for name in shown for text in (NAMES[name], "change")]
    return Sheet(
        f"What adds what: {setup}",
        "Each row differs from the one above it by what it says, and in nothing else.",
        ("system", *names, "recomputed"),
        tuple(rows),
    )


def _together(figure: Figure, quick: bool) -> dict[Setup, dict[str, None]]:
    systems: dict[Setup, dict[str, None]] = {}
    for setup, system in figure.wanted(quick):
        systems.setdefault(setup, {})[system] = None
    return systems


def _values(found: Found, setup: Setup, system: str, names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        yield number(found.mean(setup, system, name))
    for name in STATE:
        value = found.mean(setup, system, name)
        yield f"{value:.0f}" if name == "unfinished" else f"{value:.0%}"
