"""The capacity of a workload on a machine: the throughput of a closed loop."""

from pathlib import Path

from caesura.simulator.policy import parse_policy
from caesura.simulator.results import RunResult
from caesura.simulator.study.conduct import Watch, conduct
from caesura.simulator.study.plan import Study

from .cases import CHOICE_SEEDS, Case

REFERENCE = "fcfs"
"""The policy whose throughput is the capacity."""

TURNS = 2.5
"""Sessions per client of a closed loop."""


def throughput(run: RunResult) -> float:
    """Return the sessions per second between the first and the last quarter of all ends."""
    ends = sorted(each.ended for each in run.sessions if not each.parent)
    first, last = len(ends) // 4, 3 * len(ends) // 4
    return (last - first) / (ends[last] - ends[first])


def capacity(case: Case, runs: Path, jobs: int, watch: Watch | None = None) -> float:
    """Return the sessions per second that the machine completes under a steady load.

    It is the throughput of a closed loop of `case.clients`, with a seed that is not reported. Long
    pauses hold memory that the loop does not have to find, so it is an upper bound for them.
    Raises `RuntimeError` if the run failed.
    """
    joined = "," if ":" in case.loop else ":"
    study = Study(
        f"{case.loop}{joined}requests={round(TURNS * case.clients)}",
        (parse_policy(REFERENCE),),
        (float(case.clients),),
        CHOICE_SEEDS[:1],
        (case.machine,),
        1.0,
        data=case.data,
        closed=True,
    )
    outcome = conduct(study, runs, jobs, watch=watch)
    run = outcome.made[0].run() if outcome.made else None
    if run is None:
        raise RuntimeError(f"{case.name}: the closed loop failed: {outcome.failures}")
    return throughput(run)
