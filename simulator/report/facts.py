"""Facts that a person needs to read a study's figures: its runs, and what was counted."""

import caesura
from caesura.simulator.policy import Fleet
from caesura.simulator.report.table import BEST, CUT
from caesura.simulator.study.conduct import Outcome
from caesura.simulator.study.plan import Study


def facts(study: Study) -> list[tuple[str, str]]:
    """Return the inputs of a study as names and values."""
    whole = "to the end of all sessions"
    loads = _listed(study.rates)
    told = [
        ("workload", study.workload),
        ("machine", "; ".join(study.machines)),
        ("load", f"{loads} clients" if study.closed else f"{loads} sessions/s"),
        ("seeds", _listed(study.seeds)),
        ("counted", _counted(study)),
        ("runs", whole if study.window is None else f"cut off after {study.window:g} s"),
        ("baseline", study.baseline or "none"),
        ("version", f"caesura {caesura.__version__}"),
    ]
    fleets = [policy.fleet for policy in study.policies if policy.fleet is not None]
    if fleets:
        told.append(("replicas", _fleet(fleets[0], study)))
    if study.data is not None:
        told.insert(1, ("data", study.data.name))
    if study.slo is not None:
        told.append(("objective", f"{study.slo}, in seconds, in every segment of a session"))
    return told


def notes(outcome: Outcome) -> list[str]:
    """Return notes on how to read the figures, on cut-off sessions and on failed runs."""
    study = outcome.study
    said = ["Times are simulated. Latency is from arrival to the end, without the time of tools."]
    if len(study.seeds) > 1:
        said.append("Means over seeds ± half of their 95 % confidence interval (Student's t).")
    else:
        said.append("One seed: nothing is known of the spread.")
    if len(study.policies) > 1:
        said.append(f"{BEST} best of its column.")
    cut = sum(made.figures.unfinished for made in outcome.made)
    if cut:
        counted = sum(made.figures.sessions for made in outcome.made)
        said.append(
            f"{CUT} not finished: {cut:,} of {counted:,} counted sessions were cut off and are in"
            " no latency; true latencies are higher."
        )
    said += [f"Failed: {failure.cell}: {failure.reason}" for failure in outcome.failures]
    return said


def _fleet(fleet: Fleet, study: Study) -> str:
    loads = f"{_listed(tuple(rate / fleet.replicas for rate in study.rates))} sessions/s each"
    return f"{fleet.replicas}, {loads}; loads told every {fleet.epoch_seconds:g} s"


def _counted(study: Study) -> str:
    if study.closed:
        early = "sixth" if study.warm_up is None else f"{study.warm_up:g} s"
        return f"sessions sent after the first {early} of a run's arrivals, the warm-up"
    begin, end = study.counted(0.0)
    return (
        f"sessions that arrive from {begin:g} s to {end:g} s, when arrivals end;"
        f" the first {begin:g} s are warm-up"
    )


def _listed(values: tuple[float, ...] | tuple[int, ...]) -> str:
    return ", ".join(f"{value:g}" for value in values)
