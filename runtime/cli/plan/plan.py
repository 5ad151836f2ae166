"""`caesura plan`: the plan of an application as a table, JSON, a chart, or deployment files."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from caesura.planning.application.application import Application
from caesura.planning.plan import Plan, plan_to_json
from caesura.planning.search.planner import CostModel
from caesura.planning.search.strategies import Choice
from caesura.planning.show.emit import emit
from caesura.planning.show.gantt import Chart, plan_bars, run_bars, to_html, to_svg
from caesura.planning.show.tables import ends_of, ends_table, makespan_text, plan_table, read_run
from caesura.runtime.cli.plan.options import PlanOptions, RunTraces
from caesura.runtime.cli.plan.recording import record_plan
from caesura.runtime.cli.plan.search import MakeCosts, Search, find_plan, measured_costs, prepare
from caesura.runtime.errors import UsageError

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
