"""The commands of plans. They import their implementation when they run."""

from pathlib import Path
from typing import Annotated

import typer

from caesura.planning.show.emit import KINDS
from caesura.runtime.cli.errors import mistakes_told
from caesura.runtime.cli.options import filled
from caesura.runtime.cli.plan.options import (
    ApplicationFile,
    Devices,
    EngineOptions,
    GanttFile,
    PlanOptions,
    RunTraces,
)
from caesura.runtime.errors import UsageError


@filled
def plan(
    application: ApplicationFile,
    how: PlanOptions,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, which `caesura run --plan FILE` reads.")
    ] = False,
    gantt: GanttFile = None,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="RESULTS",
            dir_okay=False,
            help="A file of `caesura run`: compare the plan with this run, in --gantt too.",
        ),
    ] = None,
    emit: Annotated[
        str | None,
        typer.Option(metavar="KIND", help=f"Write files of a deployment: {', '.join(KINDS)}."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", file_okay=False, help="Where --emit writes."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            help="Record the plan in this file of traces, for the page: `caesura trace export`.",
        ),
    ] = None,
    sleep_level: Annotated[
        int | None,
        typer.Option(
            min=0, max=2, help="Plan for `caesura run --backend sleep` with this --sleep-level."
        ),
    ] = None,
) -> None:
    """Plan an application of several models: which run when, on how many devices.

    Output lengths are drawn from each model's distribution, engines are simulated,
    and plans are compared by their expected makespan. Nothing is started.
    """
    from functools import partial

    from caesura.runtime.cli.plan.plan import Outputs, measured_costs, show_plan

    with mistakes_told():
        if emit is not None and emit not in KINDS:
            raise UsageError(f"--emit knows {', '.join(KINDS)}, got {emit!r}")
        outputs = Outputs(as_json, gantt, emit, out, against, trace)
        show_plan(application, how, outputs, partial(measured_costs, sleep_level=sleep_level))


@filled
def run(
    application: ApplicationFile,
    how: PlanOptions,
    engines: EngineOptions,
    traces: RunTraces,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FILE", dir_okay=False, help="The results, as JSON lines."
        ),
    ],
    plan: Annotated[
        Path | None,
        typer.Option(
            "--plan", metavar="FILE", dir_okay=False, help="A plan of `caesura plan --json`."
        ),
    ] = None,
    gantt: GanttFile = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
) -> None:
    """Plan an application of several models, and run the plan on real engines.

    Each request's result is a line of the file, written once. The same command
    continues a run that was interrupted, killed, or stopped by an error: what is
    done is not done again.
    """
    from caesura.runtime.cli.plan.run import RunOptions, run_application

    with mistakes_told():
        options = RunOptions(output, engines, plan, gantt, quiet, traces)
        run_application(application, how, options)


def measure(
    application: ApplicationFile,
    devices: Devices = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", dir_okay=False, help="The file. Default: the one that plans read."
        ),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also measure the engines that the file has already.")
    ] = False,
    sleep: Annotated[
        bool,
        typer.Option("--sleep", help="Also time how engines fall asleep and wake up."),
    ] = False,
    from_run: Annotated[
        list[Path] | None,
        typer.Option(
            "--from-run",
            dir_okay=False,
            help="Start no engine: take the times of loading and stopping from this run's results."
            " May be given several times.",
        ),
    ] = None,
) -> None:
    """Measure an application's engines on this machine: loading, steps, memory.

    Each engine is started twice, and asked for some hundred short outputs between.
    The file is written after each engine. Plans then use what it holds. Runs load engines as plans
    do; with --from-run their times replace those that were measured.
    """
    import asyncio

    from caesura.runtime.cli.plan.measure import correct_loading, measure_application

    with mistakes_told():
        if from_run:
            correct_loading(application, devices, output, from_run)
            return
        asyncio.run(measure_application(application, devices, output, again, sleep=sleep))
