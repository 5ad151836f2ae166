"""The tables of SamuLLM's experiments beside the paper's numbers."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from benchmarks.papers.run import Sheet
from benchmarks.papers.samullm_plans.measure import RUNS, Plans
from benchmarks.papers.samullm_plans.rows import PUBLISHED, Experiment

Measured = Mapping[tuple[str, str, bool], Plans]
"""Measurements by the experiment's name, the strategy, and whether lengths were known."""

ERROR_PUBLISHED = "6.5 to 38.7 % (25.6 % on average); known: 9.2 to 20.5 % (17.0 %)"


def sheets(experiments: Sequence[Experiment], found: Measured) -> list[Sheet]:
    """Return the tables of what has been measured."""
    return [
        _ratios(experiments, found),
        _strategies(experiments, found),
        _ablation(experiments, found),
        _errors(experiments, found),
    ]


def _ratios(experiments: Sequence[Experiment], found: Measured) -> Sheet:
    rows = []
    for one in experiments:
        plans = {
            name: found.get((one.name, name, False)) for name in ("best", "greedy", "max", "min")
        }
        best, greedy, most, least = plans.values()
        if best is None or greedy is None or most is None or least is None:
            continue
        paper = PUBLISHED[one.figure]
        rows.append(
            (
                one.name,
                f"{best.end_to_end:.0f} s",
                _ratio(most, best),
                _ratio(least, best),
                _ratio(greedy, best),
                _ratio(most, greedy),
                paper[0],
                _ratio(least, greedy),
                paper[1],
            )
        )
    return Sheet(
        "End to end, 8 A100-80G",
        "Seconds of the search and the run together. A ratio above 1 means that the first takes"
        f" longer than the second. Means of {RUNS} runs. The paper's plans are those of `greedy`.",
        (
            "application",
            "best",
            "max / best",
            "min / best",
            "greedy / best",
            "max / greedy",
            "paper",
            "min / greedy",
            "paper",
        ),
        tuple(rows),
    )


def _strategies(experiments: Sequence[Experiment], found: Measured) -> Sheet:
    names = ("best", "longest-first", "greedy", "max", "min")
    rows = []
    for one in experiments:
        plans = [found.get((one.name, name, False)) for name in names]
        if any(plans):
            rows.append((one.name, *(_seconds(each) for each in plans)))
    return Sheet(
        "Run, and search",
        "Seconds of the run alone, and in brackets those of the search on one core.",
        ("application", *names),
        tuple(rows),
    )


def _ablation(experiments: Sequence[Experiment], found: Measured) -> Sheet:
    rows = []
    for one in experiments:
        for name in ("greedy", "min", "best"):
            base = found.get((one.name, name, False))
            still = found.get((one.name, f"{name}-no-preemption", False))
            known = found.get((one.name, name, True))
            if base and (still or known):
                rows.append((one.name, name, _run_ratio(still, base), _run_ratio(known, base)))
    return Sheet(
        "Without preemption, and with known lengths",
        "The seconds of the run over those of the same strategy as it is. The paper: 1.0 to 1.2"
        " for its own plans without preemption, 1.3 to 1.4 for min-heuristic; 0.9 to 1.0 with known"
        " lengths.",
        ("application", "strategy", "no preemption", "known lengths"),
        tuple(rows),
    )


def _errors(experiments: Sequence[Experiment], found: Measured) -> Sheet:
    rows = []
    for known in (False, True):
        errors = {
            name: [
                plans.error
                for (experiment, strategy, is_known), plans in found.items()
                if strategy == name and is_known is known
            ]
            for name in ("best", "greedy", "max", "min")
        }
        rows += [
            (
                f"{name}, lengths {'known' if known else 'unknown'}",
                f"{min(each):.1%}",
                f"{fmean(each):.1%}",
                f"{max(each):.1%}",
                str(len(each)),
            )
            for name, each in errors.items()
            if each
        ]
    return Sheet(
        "Error of the predicted makespan",
        "Of the applications above. Runs have other lengths than the plan, and step times that"
        " differ by as much as the fits' error on held-out iterations. On real devices the paper"
        f" reports {ERROR_PUBLISHED}.",
        ("plan", "least", "mean", "most", "applications"),
        tuple(rows),
    )


def _ratio(of: Plans, to: Plans) -> str:
    return f"{of.end_to_end / to.end_to_end:.2f}"


def _run_ratio(of: Plans | None, to: Plans) -> str:
    return f"{fmean(of.real) / fmean(to.real):.2f}" if of else "—"


def _seconds(plans: Plans | None) -> str:
    return f"{fmean(plans.real):.0f} ({plans.search:.1f})" if plans else "—"
