"""`caesura plan`: the plan of an application as a table, JSON, a chart, or deployment files.

The search shows its progress, and plans are recorded in the file of traces, where the page finds
them.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBar

from caesura.distribution import __version__
from caesura.planning.application.application import Application
from caesura.planning.application.file import read_application
from caesura.planning.application.requests import Requests, estimate_tokens
from caesura.planning.costs.estimate import make_costs
from caesura.planning.plan import Plan, plan_to_json
from caesura.planning.run.journal import Journal
from caesura.planning.search.planner import CostModel, Planner
from caesura.planning.search.strategies import Choice, Effort, SearchOptions
from caesura.planning.show.emit import emit
from caesura.planning.show.gantt import Chart, plan_bars, run_bars, to_html, to_svg
from caesura.planning.show.records import PlannedWork, RunRecords, other_plan, plan_record
from caesura.planning.show.tables import ends_of, ends_table, makespan_text, plan_table, read_run
from caesura.planning.stage_times import Progress
from caesura.runtime.cli.plan.options import PlanOptions, RunTraces
from caesura.runtime.errors import UsageError
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.token_counter import token_counter
from caesura.runtime.tracing.recorded import store_of
from caesura.tools.config.caesura_toml import Config

MakeCosts = Callable[[Requests, Path | None], CostModel]
"""Returns what the models of an application cost, with what a file says was measured."""


def measured_costs(
    requests: Requests, path: Path | None, sleep_level: int | None = None
) -> CostModel:
    """Return the costs of an application's models; raises `UsageError`.

    With a `sleep_level` evicted engines sleep, as far as the times of that were measured.
    """
    return make_costs(requests.application, requests, path=path, sleep_level=sleep_level)


@dataclass(frozen=True, slots=True)
class Search:
    """An application, how many devices it may use, and what makes its plans."""

    application: Application
    requests: Requests
    devices: int
    planner: Planner


def prepare(path: Path, how: PlanOptions, costs: MakeCosts = measured_costs) -> Search:
    """Read an application and the costs of its models; raises `UsageError`."""
    application = read_application(path)
    devices = how.devices or application.devices
    if not devices:
        raise UsageError(
            f"{path} does not say how many devices there are: give --devices, or `devices` in"
            " [application]"
        )
    application = replace(application, devices=devices)  # costs depend on it
    requests = Requests(application, lambda model: token_counter(model.path) or estimate_tokens)
    planner = Planner(requests, costs(requests, how.costs), draws=how.draws, seed=how.seed)
    return Search(application, requests, devices, planner)


def find_plan(
    search: Search, how: PlanOptions, console: Console, done: Progress | None = None
) -> Choice:
    """Return the plan of the chosen strategy; a bar on `console` shows how far the search is.

    The plan is one for what is not `done` yet.
    """
    columns = (
        TextColumn("searching"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    effort = Effort()
    if how.search_seconds is not None:
        effort = Effort(seconds=how.search_seconds, clock=time.monotonic)
    with ProgressBar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=1.0)

        def watch(part: float, seconds: float) -> None:
            bar.update(task, completed=part, description=f"best so far: {seconds:.1f} s")

        options = SearchOptions(how.strategy, effort, watch)
        return search.planner.plan(search.devices, progress=done, options=options)


SOURCE = "plan"


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan of a run, the next best one if it is known, and why that one lost."""

    plan: Plan
    next_best: Plan | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """What writes the records of a run, and their file."""

    records: RunRecords
    file: Path


@contextmanager
def recorded_run(
    search: Search, planned: Planned, journal: Journal, traces: RunTraces
) -> Iterator[RecordedRun | None]:
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
            _work(search),
            done=journal.done.values(),
            next_best=other_plan(planned.next_best, planned.reason),
        )
        yield RecordedRun(records, store.path)


def record_plan(search: Search, choice: Choice, file: Path) -> int:
    """Record a plan alone, and return its recording's number; raises `UsageError`."""
    title = f"caesura plan, {search.application.name}"
    store = store_of(Config.load(), file)
    record = plan_record(
        choice.plan,
        _work(search),
        at=time.time(),
        next_best=other_plan(choice.next_best, choice.reason),
    )
    with Recorder(store, title, SOURCE, _facts(search, choice.plan)) as recorder:
        recorder.add([record.entry()])
    if recorder.recording is None or not recorder.written:
        raise UsageError(f"--trace {file}: the plan could not be written; the log says why")
    return recorder.recording


def _work(search: Search) -> PlannedWork:
    counts = Counter(request.model for request in search.requests.all)
    return PlannedWork(search.application.name, counts, search.planner.costs.load_seconds)


def _facts(search: Search, plan: Plan) -> dict[str, Any]:
    return {
        "version": __version__,
        "application": search.application.name,
        "strategy": plan.strategy,
        "devices": plan.devices,
        "requests": len(search.requests.all),
    }


CHARTS = (".svg", ".html")


@dataclass(frozen=True, slots=True)
class Outputs:
    """What a plan is written to, besides the terminal."""

    json: bool = False
    gantt: Path | None = None
    emit: str | None = None
    out: Path | None = None
    against: Path | None = None
    trace: Path | None = None


def show_plan(
    path: Path, how: PlanOptions, outputs: Outputs, costs: MakeCosts = measured_costs
) -> None:
    """Find a plan and show it; raises `UsageError` for what is wrong with the application."""
    demand_chart(outputs.gantt)
    RunTraces(outputs.trace).check()
    console, errors = Console(soft_wrap=False), Console(stderr=True)
    search = prepare(path, how, costs)
    began = time.monotonic()
    choice = find_plan(search, how, errors)
    seconds = time.monotonic() - began
    if outputs.json:
        print(json.dumps(choice_to_json(choice, search.application, seconds), indent=2))
    else:
        _print(console, search, choice, how, seconds)
    charts = [plan_chart(choice.plan, search.planner.costs)]
    if outputs.against is not None:
        results, events = read_run(outputs.against)
        console.print(ends_table(ends_of(choice.plan, results, events)))
        charts.append(Chart(f"run: {outputs.against.name}", run_bars(events)))
    if outputs.gantt is not None:
        notes = _lines(search, choice, how, seconds)
        write_chart(outputs.gantt, charts, search.devices, search.application.name, notes)
        errors.print(f"written: {outputs.gantt}", highlight=False, soft_wrap=True)
    if outputs.emit is not None:
        folder = outputs.out or Path(f"{search.application.name}-{outputs.emit}")
        for name in write_deployment(choice.plan, search.application, outputs.emit, folder):
            errors.print(f"written: {name}", highlight=False, soft_wrap=True)
    if outputs.trace is not None:
        number = record_plan(search, choice, outputs.trace)
        line = f"recorded: {outputs.trace}, recording {number}"
        errors.print(line, markup=False, highlight=False, soft_wrap=True)


def choice_to_json(choice: Choice, application: Application, seconds: float) -> dict[str, object]:
    """Return a plan, the next best one and why it lost, as JSON values."""
    return plan_to_json(
        choice.plan,
        application.name,
        next_best=choice.next_best and asdict(choice.next_best),
        reason=choice.reason,
        search_seconds=round(seconds, 3),
    )


def plan_chart(plan: Plan, costs: CostModel) -> Chart:
    """Return the panel of a plan."""
    title = f"{plan.strategy}: {makespan_text(plan.makespan)}"
    return Chart(title, plan_bars(plan, costs.load_seconds))


def demand_chart(path: Path | None) -> None:
    """Raise `UsageError` for a chart that cannot be written, before anything is computed."""
    if path is None:
        return
    if path.suffix not in CHARTS:
        raise UsageError(f"--gantt writes .svg or .html, got {path.name!r}")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"there is no directory {path.absolute().parent} for --gantt: create it")


def write_chart(
    path: Path, charts: list[Chart], devices: int, title: str, notes: Sequence[str] = ()
) -> None:
    """Write charts to an SVG file, or by its suffix to a page with notes; raises `UsageError`."""
    page = path.suffix == ".html"
    text = to_html(charts, devices, title, notes) if page else to_svg(charts, devices)
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


def write_deployment(plan: Plan, application: Application, kind: str, folder: Path) -> list[Path]:
    """Write the files of a deployment into a folder, and return their paths."""
    written = []
    for name, text in emit(plan, application, kind).items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from None
        written.append(path)
    return written


def _print(
    console: Console, search: Search, choice: Choice, how: PlanOptions, seconds: float
) -> None:
    application = search.application
    console.print(
        f"{application.name}: {len(application.models)} models, {len(application.tasks)} tasks,"
        f" {len(search.requests.all)} requests, on {search.devices} devices",
        markup=False,
        highlight=False,
    )
    console.print(plan_table(choice.plan, search.planner.costs.device_bytes))
    for line in _lines(search, choice, how, seconds):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _lines(search: Search, choice: Choice, how: PlanOptions, seconds: float) -> list[str]:
    """Return what is said below a plan: its makespan, the next best plan, and the search."""
    lines = [
        f"makespan: {makespan_text(choice.plan.makespan)}, by {choice.plan.strategy},"
        f" over {how.draws} draws of the output lengths"
    ]
    if choice.next_best is not None:
        lines.append(f"next best: {makespan_text(choice.next_best.makespan)}: {choice.reason}")
    lines.append(f"searched for {seconds:.1f} s, {choice.simulated} stages simulated")
    if search.planner.costs.assumed:
        lines.append(
            f"not measured, so that times are rough: {', '.join(search.planner.costs.assumed)}"
        )
    return lines
