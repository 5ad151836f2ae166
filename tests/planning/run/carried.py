"""Plans of made-up models, carried out on fake hosts."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from caesura.planning.application.requests import Request
from caesura.planning.plan import Makespan, Placement, Plan, Stage
from caesura.planning.run.conductor import Job, carry_out
from caesura.planning.run.host import Limits
from caesura.planning.run.journal import Journal, Result
from caesura.planning.stage_times import Progress
from tests.planning.run.applications import application, question
from tests.planning.run.engines import FakeHost

MODELS = ("a", "b", "c")
LIMITS = Limits(max_in_flight=4, drain_seconds=0.05, watch_seconds=0.02)


def plan(*stages: Iterable[str | Placement], devices: int = 2) -> Plan:
    """Return a plan of stages, each with models or placements."""
    made = [
        Stage(tuple(Placement(one) if isinstance(one, str) else one for one in stage))
        for stage in stages
    ]
    return Plan("test", devices, tuple(made), Makespan(1, 1, 1))


def no_plan(progress: Progress, devices: int) -> Plan:
    raise AssertionError("the run asked for another plan")


async def run(
    tmp_path: Path,
    host: FakeHost,
    planned: Plan,
    asked: Iterable[Request],
    journal_class: type[Journal] = Journal,
    **options: Any,
) -> dict[str, Result]:
    """Carry a plan out, and return the results."""
    app = application(*MODELS)
    journal = journal_class(tmp_path / "out.jsonl", app)
    limits = options.pop("limits", LIMITS)
    job = Job(app, tuple(asked), **{"questions": question, "replan": no_plan, **options})
    try:
        async with asyncio.timeout(20):
            await carry_out(job, planned, host, journal, limits)
    finally:
        journal.close()
    return journal.done
