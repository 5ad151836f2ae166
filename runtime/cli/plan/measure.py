"""`caesura measure`: measures the engines of an application on this machine."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from caesura.planning.application.application import Application, Model
from caesura.planning.application.file import read_application
from caesura.planning.costs.devices import Kind, this_machine
from caesura.planning.costs.measured import (
    MeasuredCosts,
    MeasuredEngine,
    corrected,
    costs_path,
    model_name,
    read_costs,
    seen_in,
)
from caesura.planning.run.host import HostError
from caesura.planning.run.measure import WantedEngine, measure_engine, measure_sleeps
from caesura.planning.run.processes import ProcessHost
from caesura.planning.run.sleep import check_sleep_mode, sleepy_processes
from caesura.planning.show.tables import read_run
from caesura.runtime.errors import UsageError

BATCH, CONTEXT = 16, 500
"""The batch of the decoding step in the table, and the context of each request."""


async def measure_application(
    path: Path, devices: int | None, output: Path | None, again: bool, *, sleep: bool = False
) -> None:
    """Measure the engines of an application, and write them to a file after each.

    Engines that the file has already are left out, unless `again`. With `sleep` engines are also
    put to sleep and woken up. Raises `UsageError`, also for devices without a sleep mode.
    """
    if sleep:
        await _demand_sleep_mode()
    application = read_application(path)
    count = devices or application.devices or 1
    kind, file = this_machine(count), output or costs_path()
    kept = read_costs(file) if file.is_file() else MeasuredCosts()
    wanted = missing(application, count, MeasuredCosts() if again else kept, kind, sleep)
    console, errors = Console(), Console(stderr=True)
    with tempfile.TemporaryDirectory() as logs:
        host = sleepy_processes(count, Path(logs)) if sleep else ProcessHost(count, Path(logs))
        try:
            for place, each in enumerate(wanted):
                told = f"{place + 1}/{len(wanted)}"
                found = await _measured(host, each, kind, errors, told, sleep)
                kept = kept.updated([found])
                _save(kept, file)
        except HostError as error:
            raise UsageError(f"an engine cannot be measured: {error}") from error
        finally:
            await host.close()
    console.print(table(application, kept, kind))
    console.print(f"kept in {file}", highlight=False, soft_wrap=True)


def correct_loading(
    path: Path, devices: int | None, output: Path | None, runs: Sequence[Path]
) -> None:
    """Replace measured times of loading and stopping by those that runs have seen.

    Raises `UsageError` without measurements, or where the runs have loaded none of their engines.
    """
    application = read_application(path)
    kind, file = this_machine(devices or application.devices or 1), output or costs_path()
    kept = read_costs(file)
    seen = seen_in(read_run(run)[1] for run in runs)
    better = [
        corrected(found, seen[model.name, found.tensor_parallel])
        for model in application.models
        for found in _of(model, kept, kind)
        if (model.name, found.tensor_parallel) in seen
    ]
    if not better:
        raise UsageError(
            f"no run in {', '.join(map(str, runs))} has loaded an engine of {path} that {file} has"
            f" measurements of; measure first: caesura measure {path}"
        )
    kept = kept.updated(better)
    _save(kept, file)
    Console().print(table(application, kept, kind))


async def _demand_sleep_mode() -> None:
    try:
        await check_sleep_mode()
    except HostError as error:
        raise UsageError(f"--sleep: {error}") from error


def missing(
    application: Application,
    devices: int,
    kept: MeasuredCosts,
    kind: Kind,
    sleep: bool = False,
) -> list[WantedEngine]:
    """Return the engines that are not measured yet and that fit on so many devices.

    With `sleep` those count too of which only the times of sleeping are not known.
    """

    def is_known(model: Model, degree: int) -> bool:
        found = kept.find(model_name(model.path), kind.name, degree)
        return found is not None and (bool(found.sleeps) or not sleep)

    return [
        WantedEngine(model, degree, _temperature(application, model))
        for model in application.models
        for degree in dict.fromkeys(model.tensor_parallel)
        if degree <= devices and not is_known(model, degree)
    ]


def _temperature(application: Application, model: Model) -> float:
    """Return the highest temperature of a model's tasks."""
    own = (task.temperature for task in application.tasks if task.model == model.name)
    return max(own, default=0.0)


def table(application: Application, kept: MeasuredCosts, kind: Kind) -> Table:
    """Return a table of the measured engines of an application on one kind of device."""
    shown = Table(title=f"engines on {kind.name} per device", title_justify="left")
    names = ("model", "tp", "load", "stop", f"step of {BATCH}", "prefill", "KV cache", "error")
    kept_here = [each for model in application.models for each in _of(model, kept, kind)]
    sleeps = any(each.sleeps for each in kept_here)
    for name in (*names, *(("sleep", "wake") if sleeps else ())):
        shown.add_column(name, justify="left" if name == "model" else "right")
    for model in application.models:
        for found in _of(model, kept, kind):
            step = found.steps.step_seconds(BATCH, BATCH * CONTEXT)
            rate = CONTEXT / found.steps.step_seconds(CONTEXT, CONTEXT)
            shown.add_row(
                model.name,
                str(found.tensor_parallel),
                f"{found.load_seconds:.1f} s",
                f"{found.stop_seconds:.1f} s",
                f"{1000 * step:.1f} ms",
                f"{rate:,.0f} tokens/s",
                f"{found.kv_tokens:,} tokens",
                f"{found.step_error:.1%}",
                *(_sleep_cells(found) if sleeps else ()),
            )
    return shown


def _sleep_cells(found: MeasuredEngine) -> tuple[str, str]:
    """Return the seconds of falling asleep and of waking up, level by level."""
    sleeps = " / ".join(f"{each.sleep_seconds:.1f}" for each in found.sleeps)
    wakes = " / ".join(f"{each.wake_seconds:.1f}" for each in found.sleeps)
    return (f"{sleeps} s", f"{wakes} s") if found.sleeps else ("-", "-")


def _of(model: Model, kept: MeasuredCosts, kind: Kind) -> Sequence[MeasuredEngine]:
    name = model_name(model.path)
    degrees = dict.fromkeys(model.tensor_parallel)
    return [each for degree in degrees if (each := kept.find(name, kind.name, degree))]


async def _measured(
    host: ProcessHost, wanted: WantedEngine, kind: Kind, console: Console, place: str, sleep: bool
) -> MeasuredEngine:
    columns = (
        TextColumn(f"{place} {wanted.model.name}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=1.0)

        def watch(part: float, what: str) -> None:
            bar.update(task, completed=part, description=what)

        return await measure_engine(
            host, wanted, kind, watch, sleeps=measure_sleeps if sleep else None
        )


def _save(kept: MeasuredCosts, file: Path) -> None:
    try:
        kept.save(file)
    except OSError as error:
        raise UsageError(
            f"{file} cannot be written: {error.strerror}; choose another file with --output"
        ) from error
