"""Recording plans and their runs in the file of traces, where the page finds them."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caesura.distribution import __version__
from caesura.planning.plan import Plan
from caesura.planning.run.journal import Journal
from caesura.planning.search.strategies import Choice
from caesura.planning.show.records import RunRecords, other_plan, plan_record
from caesura.runtime.cli.plan.options import RunTraces
from caesura.runtime.cli.plan.search import Search
from caesura.runtime.cli.recording import store_of
from caesura.runtime.errors import UsageError
from caesura.runtime.recording.recorder import Recorder
from caesura.tools.config.caesura_toml import Config

SOURCE = "plan"


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan of a run, the next best one if it is known, and why that one lost."""

    plan: Plan
    next_best: Plan | None = None
    reason: str = ""


@contextmanager
def recorded_run(
    search: Search, planned: Planned, journal: Journal, traces: RunTraces
) -> Iterator[tuple[RunRecords, Path] | None]:
    """Yield what writes records of a run, and their file; None if nothing is to be recorded."""
    config = Config.load()
    if traces.off or not (config.trace.enabled or traces.file):
        yield None
        return
    store = store_of(config, traces.file)
    title = f"caesura run, {search.application.name}"
    with Recorder(store, title, SOURCE, _facts(search, planned.plan)) as recorder:
        records = RunRecords(
            recorder.add,
            search.application.name,
            Counter(request.model for request in search.requests.all),
            search.planner.costs.load_seconds,
            done=journal.done.values(),
            next_best=other_plan(planned.next_best, planned.reason),
        )
        yield records, store.path


def record_plan(search: Search, choice: Choice, file: Path) -> int:
    """Record a plan alone, and return its recording's number; raises `UsageError`."""
    title = f"caesura plan, {search.application.name}"
    store = store_of(Config.load(), file)
    record = plan_record(
        choice.plan,
        search.application.name,
        len(search.requests.all),
        search.planner.costs.load_seconds,
        at=time.time(),
        next_best=other_plan(choice.next_best, choice.reason),
    )
    with Recorder(store, title, SOURCE, _facts(search, choice.plan)) as recorder:
        recorder.add([record.entry()])
    if recorder.recording is None or not recorder.written:
        raise UsageError(f"--trace {file}: the plan could not be written; the log says why")
    return recorder.recording


def _facts(search: Search, plan: Plan) -> dict[str, Any]:
    return {
        "version": __version__,
        "application": search.application.name,
        "strategy": plan.strategy,
        "devices": plan.devices,
        "requests": len(search.requests.all),
    }
