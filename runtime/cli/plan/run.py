"""`caesura run`: an application's plan carried out on engines.

Its progress is a bar in a terminal, and elsewhere a line for each stage and load.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBar

from caesura.planning.plan import Plan, read_next_best, read_plan
from caesura.planning.run.asking import asked_models, routed
from caesura.planning.run.backends import host_named
from caesura.planning.run.client import ApplicationQuestions
from caesura.planning.run.conductor import Job, carry_out
from caesura.planning.run.host import EngineHost, HostError, Limits
from caesura.planning.run.journal import Journal, Result, RunError
from caesura.planning.show.gantt import Chart, run_bars
from caesura.planning.show.tables import makespan_text, read_run
from caesura.planning.stage_times import Progress
from caesura.runtime.cli.plan.options import EngineOptions, PlanOptions, RunTraces
from caesura.runtime.cli.plan.plan import (
    MakeCosts,
    Planned,
    Search,
    demand_chart,
    find_plan,
    measured_costs,
    plan_chart,
    prepare,
    recorded_run,
    write_chart,
)
from caesura.runtime.errors import UsageError

TOLD = ("stage", "loaded", "not loaded", "lost", "devices", "replanned")
"""The events that get a line."""


class Shown(Protocol):
    """What a run is shown to."""

    def event(self, row: Mapping[str, Any]) -> None:
        """Show an event of the run."""
        ...

    def result(self, result: Result) -> None:
        """Show a result."""
        ...


@contextmanager
def watching(requests: int, done: int, console: Console, quiet: bool) -> Iterator[Shown]:
    """Yield what shows a run of `requests`, of which `done` are done; remove the bar at the end."""
    if quiet or not console.is_terminal:
        yield Lines(None if quiet else console)
        return
    columns = (
        TextColumn("running"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with ProgressBar(*columns, console=console, transient=True) as progress:
        yield Bar(progress, requests, done)


class Lines:
    """Prints a line for each event; nothing without a console."""

    def __init__(self, console: Console | None) -> None:
        self._console = console

    def event(self, row: Mapping[str, Any]) -> None:
        """Print the event."""
        if self._console is not None and row["event"] in TOLD:
            line = f"{row['at']:8.1f} s  {line_of(row)}"
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def result(self, result: Result) -> None:
        """Print nothing."""


class Bar:
    """A bar of the requests, with the engines that serve or load."""

    def __init__(self, progress: ProgressBar, requests: int, done: int) -> None:
        self._progress = progress
        self._engines: dict[str, str] = {}
        self._task = progress.add_task("", total=requests, completed=done)

    def event(self, row: Mapping[str, Any]) -> None:
        """Update the engines, and print what is unusual above the bar."""
        name, replica = row["event"], row.get("replica", "")
        if name == "loading":
            self._engines[replica] = f"{replica} (loading)"
        elif name == "loaded":
            self._engines[replica] = replica
        elif name in ("evicted", "lost"):
            self._engines.pop(replica, None)
        if name in ("not loaded", "lost", "devices", "replanned"):
            self._progress.console.print(line_of(row), markup=False, highlight=False)
        self._progress.update(self._task, description=", ".join(self._engines.values()))

    def result(self, result: Result) -> None:
        """Count the result."""
        self._progress.advance(self._task)


def line_of(row: Mapping[str, Any]) -> str:
    """Return a line that says an event."""
    match row["event"]:
        case "stage":
            named = (f"{one['model']} x{one['replicas']}" for one in row["placements"])
            return f"stage {row['stage'] + 1}: {', '.join(named)}"
        case "loaded":
            devices = ", ".join(map(str, row["devices"]))
            return f"{row['replica']} is loaded on device {devices} after {row['seconds']:.1f} s"
        case "not loaded":
            return f"{row['replica']} could not be loaded: {row['reason']}"
        case "lost":
            return f"{row['replica']} was lost: {row['reason']}"
        case "devices":
            return f"devices that are left: {', '.join(map(str, row['usable']))}"
        case "replanned":
            return f"another plan for what is left, by {row['strategy']}: {row['reason']}"
        case name:
            return str(name)


INTERRUPTED = 130
LOGS_SUFFIX = ".logs"
"""What the directory of engines' logs has behind the name of the file of results."""

MakeHost = Callable[[int, Path], Awaitable[EngineHost]]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Where results go, which plan is carried out, and on what."""

    output: Path
    engines: EngineOptions = field(default_factory=EngineOptions)
    plan: Path | None = None
    gantt: Path | None = None
    quiet: bool = False
    traces: RunTraces = field(default_factory=RunTraces)

    @property
    def logs(self) -> Path:
        """The directory of the engines' logs."""
        return self.engines.logs or self.output.with_name(self.output.name + LOGS_SUFFIX)


def run_application(
    path: Path,
    how: PlanOptions,
    options: RunOptions,
    *,
    costs: MakeCosts | None = None,
    make_host: MakeHost | None = None,
) -> None:
    """Plan an application and run the plan; what a former run has done is not done again.

    Raises `UsageError` and `RunError`, and `typer.Exit` after an interrupt (130) or if a request
    has failed (1).
    """
    demand_chart(options.gantt)
    options.traces.check()
    console = Console(stderr=True)
    engines = options.engines
    sleeps = engines.sleep_level if engines.backend == "sleep" else None
    search = prepare(path, how, costs or partial(measured_costs, sleep_level=sleeps))
    _demand_local(search, options)
    journal = Journal(options.output, search.application)
    try:
        before = len(journal.done)
        plan = None
        if before < len(search.requests.all):
            planned = _plan(search, how, options, journal, console)
            plan = planned.plan
            make = make_host or partial(
                host_named, engines.backend, sleep_level=engines.sleep_level
            )
            with recorded_run(search, planned, journal, options.traces) as recorded:
                if recorded is not None:
                    _say(console, f"recorded for the page in {recorded.file}")
                    _watch(journal, recorded.records)
                _carry_out(search, plan, make, journal, options, console)
        _tell_end(console, journal, options, plan if not before else None)
        if plan is not None and options.gantt is not None:
            _draw(options.gantt, plan, search, options)
    finally:
        journal.close()
    if any(result.error for result in journal.done.values()):
        raise typer.Exit(1)


def _plan(
    search: Search, how: PlanOptions, options: RunOptions, journal: Journal, console: Console
) -> Planned:
    """Return the plan of the file, or search for one for what is not done yet."""
    if options.plan is not None:
        models = {model.name: model for model in search.application.models}
        plan = read_plan(options.plan, search.application.name, models)
        return Planned(plan, *read_next_best(options.plan))
    done = Progress(0.0, dict.fromkeys(journal.done, 0.0))
    choice = find_plan(search, how, console, done)
    plan = choice.plan
    _say(console, f"planned: {makespan_text(plan.makespan)}, by {plan.strategy}")
    return Planned(plan, choice.next_best, choice.reason)


def _demand_local(search: Search, options: RunOptions) -> None:
    """Raise `UsageError` for models that ask others on a backend with other machines."""
    if options.engines.backend == "ray" and asked_models(search.application):
        raise UsageError(
            "--backend ray: tasks of this application ask other models, whose address holds on this"
            f" machine only: {', '.join(asked_models(search.application).values())}; use"
            " --backend processes"
        )


def _answer_seconds(search: Search) -> dict[str, float]:
    """Return what is expected of an answer by asked model, where that is known."""
    expected = {
        asked: search.planner.costs.answer_seconds(asked)
        for asked in asked_models(search.application).values()
    }
    return {asked: seconds for asked, seconds in expected.items() if seconds is not None}


async def _host(make: MakeHost, devices: int, options: RunOptions) -> EngineHost:
    try:
        return await make(devices, options.logs)
    except HostError as error:
        raise UsageError(f"--backend {options.engines.backend}: {error}") from error


def _carry_out(
    search: Search,
    plan: Plan,
    make: MakeHost,
    journal: Journal,
    options: RunOptions,
    console: Console,
) -> None:
    """Run the plan under a progress bar; tell how to continue if it does not get to its end."""
    requests = search.requests.all
    try:
        with (
            watching(len(requests), len(journal.done), console, options.quiet) as shown,
            asyncio.Runner() as runner,
        ):
            _watch(journal, shown)
            runner.run(_run_on_host(search, plan, make, journal, options))
    except KeyboardInterrupt:
        _say(console, f"interrupted: {_kept(journal, len(requests), options)}")
        raise typer.Exit(INTERRUPTED) from None
    except RunError as error:
        raise RunError(
            f"{error}\n{_kept(journal, len(requests), options)}; the engines' logs are in"
            f" {options.logs}"
        ) from error


async def _run_on_host(
    search: Search, plan: Plan, make: MakeHost, journal: Journal, options: RunOptions
) -> None:
    host = await _host(make, plan.devices, options)
    answers = _answer_seconds(search)
    planner, questions = search.planner, ApplicationQuestions(search.requests)
    limits = Limits(options.engines.in_flight, options.engines.drain_seconds)
    async with routed(search.application, host, options.logs, answers) as (application, routes):
        job = Job(application, search.requests.all, questions, planner.replan, planner.better)
        await carry_out(job, plan, routes, journal, limits)


def _watch(journal: Journal, watcher: Shown) -> None:
    journal.watch(watcher.event)
    journal.watch_results(watcher.result)


def _kept(journal: Journal, requests: int, options: RunOptions) -> str:
    return (
        f"{len(journal.done)} of {requests} requests are done and kept in {options.output}; the"
        " same command continues the run"
    )


def _tell_end(console: Console, journal: Journal, options: RunOptions, plan: Plan | None) -> None:
    """Print how many requests are done, in which time, and what was planned."""
    failed = [result for result in journal.done.values() if result.error]
    told = f"{len(journal.done)} requests are done"
    if plan is not None:
        measured, planned = journal.seconds, plan.makespan.mean
        told += f" in {measured:.1f} s, planned {planned:.1f} s ({planned / measured:.2f} of it)"
    _say(console, f"{told}: {options.output}")
    if failed:
        first = failed[0]
        _say(console, f"{len(failed)} have failed, the first: {first.key}: {first.error}")


def _draw(path: Path, plan: Plan, search: Search, options: RunOptions) -> None:
    """Draw the plan and the run, one below the other."""
    _, events = read_run(options.output)
    charts = [plan_chart(plan, search.planner.costs), Chart("the run", run_bars(events))]
    write_chart(path, charts, plan.devices, search.application.name)


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
