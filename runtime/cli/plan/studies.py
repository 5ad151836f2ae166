"""The implementation of `caesura simulate` and `caesura replay`: studies, shown in the terminal.

A study's progress is a bar in a terminal, and elsewhere a line for each run.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, nextafter
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from caesura.runtime.cli.options import search_here
from caesura.runtime.cli.plan.simulate_options import (
    ReplicaOptions,
    StudyOptions,
    WorkloadOptions,
    processes_of,
    routed,
)
from caesura.runtime.cli.recordings import Span
from caesura.runtime.cli.terminal import shorten
from caesura.runtime.errors import UsageError
from caesura.runtime.recording import catalog
from caesura.runtime.recording.entries import Recording
from caesura.runtime.recording.files import write_html
from caesura.runtime.whatif.choice import doubts_about, recorded_of
from caesura.runtime.whatif.stretch import collect
from caesura.runtime.whatif.trajectories import read_trajectories, write_records
from caesura.scheduler.policy.names import ABOUT_ROUTERS
from caesura.scheduler.policy.slo import Slo
from caesura.scheduler.settings import Settings
from caesura.simulator.latency.machines import PLANS, make_machine
from caesura.simulator.policy import POLICIES, Policy, parse_policy
from caesura.simulator.study.conduct import Outcome, Unwatched, conduct, trace_study
from caesura.simulator.study.plan import Cell, Study, StudyError
from caesura.simulator.study.pool import Failure, Watch
from caesura.simulator.study.report import facts, notes, write_report
from caesura.simulator.study.summary import summarise
from caesura.simulator.study.tables import (
    HEADLINE,
    prediction_grids,
    ratio_grids,
    replica_grids,
    service_grids,
    to_rich,
)
from caesura.simulator.study.work import Work, simulate_cell, trace_cell
from caesura.simulator.trace import read_trace
from caesura.simulator.workload.names import make_workload
from caesura.simulator.workload.options import Options
from caesura.simulator.workload.records import read_recorded
from caesura.simulator.workload.sources import SOURCES

MAX_SHARE_UNFINISHED = 0.95
"""The largest share shown for a run that has not ended, since its last sessions may take long."""

WIDTH = 70
"""Characters of the description of running runs."""


@contextmanager
def watching(study: Study, console: Console, quiet: bool) -> Iterator[Watch]:
    """Yield a watch that shows a study's progress; remove the bar at the end."""
    if quiet:
        yield Unwatched()
    elif not console.is_terminal:
        yield Lines(console)
    else:
        columns = (
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
        )
        with Progress(*columns, console=console, transient=True) as progress:
            yield Bar(progress, study.window or study.seconds)


class Lines:
    """Prints the number of runs, and a line for each run that ends."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._missing = 0
        self._ended = 0

    def planned(self, runs: int, kept: int) -> None:
        """Print the number of runs."""
        self._missing = runs - kept
        self._console.print(_plan(runs, kept), markup=False, highlight=False)

    def moved(self, cell: Cell, at: float) -> None:
        """Print nothing."""

    def ended(self, cell: Cell) -> None:
        """Print the run that has ended."""
        self._ended += 1
        text = f"[{self._ended}/{self._missing}] {cell}"
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class Bar:
    """One bar for the study, with each running run and its simulated second.

    Arrivals span `seconds` of the simulation.
    """

    def __init__(self, progress: Progress, seconds: float) -> None:
        self._progress = progress
        self._seconds = seconds
        self._running: dict[int, tuple[Cell, float]] = {}
        self._ended = 0
        self._task = progress.add_task("")

    def planned(self, runs: int, kept: int) -> None:
        """Set the number of runs."""
        self._progress.update(self._task, total=runs - kept, description=_plan(runs, kept))

    def moved(self, cell: Cell, at: float) -> None:
        """Update a run that has reached the simulated second `at`."""
        self._running[id(cell)] = cell, at
        self._draw()

    def ended(self, cell: Cell) -> None:
        """Remove a run that has ended."""
        self._running.pop(id(cell), None)
        self._ended += 1
        self._draw()

    def _draw(self) -> None:
        running = self._running.values()
        done = self._ended + sum(min(at / self._seconds, MAX_SHARE_UNFINISHED) for _, at in running)
        said = "; ".join(f"{cell}, at {at:,.0f} s" for cell, at in running)
        text = escape(shorten(said, WIDTH))
        self._progress.update(self._task, completed=done, description=text)


def _plan(runs: int, kept: int) -> str:
    return f"{runs} runs, {kept} of them kept from before" if kept else f"{runs} runs"


PLAIN_WIDTH = 140
"""The columns of the output if it is not a terminal."""

INTERRUPTED = 130

FOLDER, PAGE = "trace", "trace.html"
"""The folder of the traces, and the page that shows them."""


def make_study(
    study: Study,
    out: Path,
    jobs: int,
    quiet: bool,
    trace: bool = False,
    *,
    work: Work = simulate_cell,
    tracing: Work = trace_cell,
) -> None:
    """Run a study, write its report into the folder `out`, and print it.

    With `trace`, also write each policy's handling of every request under the first load.

    Raises `StudyError` if `out` cannot be written, and `EngineFailed` if a process died. Raises
    `typer.Exit` after an interrupt (130) or a failed run (1).
    """
    runs = out / "runs"
    errors = Console(stderr=True)
    try:
        runs.mkdir(parents=True, exist_ok=True)
        with watching(study, errors, quiet) as watch:
            outcome = conduct(study, runs, jobs, work=work, watch=watch)
        traced = _trace(study, out, jobs, tracing, errors, quiet) if trace else None
        report = write_report(outcome, out, PAGE if traced and traced.page else "")
    except KeyboardInterrupt:
        errors.print(
            f"interrupted: {sum(1 for _ in runs.glob('*.json.gz'))} runs are kept in {runs};"
            " the same command continues the study",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        raise typer.Exit(INTERRUPTED) from None
    except OSError as error:
        raise StudyError(
            f"{out} cannot be written: {error.strerror or error}; choose another folder with --out"
        ) from error
    show(outcome)
    typer.echo(f"report: {report}")
    if traced is not None:
        typer.echo(f"trace: {traced.page or out / FOLDER}")
    if outcome.failures or (traced is not None and traced.failures):
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class _Traced:
    """The page that shows the traces, or None if it could not be made, and the failed runs."""

    page: Path | None
    failures: tuple[Failure, ...]


def _trace(study: Study, out: Path, jobs: int, work: Work, errors: Console, quiet: bool) -> _Traced:
    """Write `trace/POLICY.jsonl` for each policy, and the page that shows them."""
    with watching(study, errors, quiet) as watch:
        traces = trace_study(study, out / FOLDER, jobs, work=work, watch=watch)
    for failure in traces.failures:
        told = f"not traced: {failure.cell}: {failure.reason}"
        errors.print(told, markup=False, highlight=False, soft_wrap=True)
    if not traces.files:
        return _Traced(None, traces.failures)
    try:
        held = [read_trace(path) for path in traces.files]
        write_html([(Recording.from_public(head), entries) for head, entries in held], out / PAGE)
    except UsageError as error:  # for example if the page was not built
        errors.print(f"no {PAGE}: {error}", markup=False, highlight=False, soft_wrap=True)
        return _Traced(None, traces.failures)
    return _Traced(out / PAGE, traces.failures)


def show(outcome: Outcome) -> None:
    """Print the study's facts and its results."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    study, points = outcome.study, summarise(outcome)
    for name, value in facts(study):
        console.print(f"[dim]{name:9}[/dim] {escape(value)}", highlight=False, soft_wrap=True)
    console.print()
    for grid in (
        *service_grids(study, points, HEADLINE),
        *replica_grids(study, points),
        *ratio_grids(study, points, HEADLINE),
        *prediction_grids(outcome),
    ):
        console.print(to_rich(grid), highlight=False)
    for note in notes(outcome):
        console.print(note, markup=False, highlight=False, soft_wrap=True)


POLICIES_COMPARED = ("stock,caesura",)
POLICY_ROUTED = "caesura"
MACHINE = ("gptj-6b-a100-40g",)
RATES = ("1,2",)
"""The defaults of a study, which then takes a minute or two."""


def simulate(load: WorkloadOptions, how: StudyOptions, replicas: ReplicaOptions, out: Path) -> None:
    """Run the study that the options describe; raise `StudyError` for invalid options."""
    closed, loads = _loads(load.workload, load.rates or (), load.clients)
    if replicas.replicas is not None and not how.policies:
        how = replace(how, policies=[POLICY_ROUTED])
    study = study_of(how, load.workload, load.data, loads, load.seconds)
    study = replace(study, closed=closed, seeds=parse_seeds(load.seeds))
    start(routed(study, how, replicas), how, out)


def study_of(
    how: StudyOptions, workload: str, data: Path | None, rates: tuple[float, ...], seconds: float
) -> Study:
    """Return the study of a workload with one seed; raise `StudyError` for invalid options."""
    policies = tuple(parse_policies(how.policies or POLICIES_COMPARED))
    # The first policy is the baseline, unless it is the only one.
    try:
        slo = Slo.parse(how.slo) if how.slo is not None else None
    except ValueError as error:
        raise StudyError(f"--slo {how.slo}: {error}") from None
    baseline = how.baseline or (policies[0].name if len(policies) > 1 else "")
    return Study(
        workload=workload,
        policies=policies,
        rates=rates,
        seeds=(0,),
        machines=tuple(how.machines or MACHINE),
        seconds=seconds,
        data=data,
        window=how.window,
        warm_up=how.warm_up,
        baseline="" if baseline == "none" else baseline,
        slo=slo,
    )


def start(study: Study, how: StudyOptions, out: Path) -> None:
    """Check a study, which may take minutes, and run it in the folder `out`.

    Raises `StudyError`.
    """
    cell = study.cells()[0]
    try:
        for machine in study.machines:
            make_machine(machine)
        workload = make_workload(cell.workload, cell.rate, cell.seconds, cell.seed, cell.data)
    except ValueError as error:
        raise StudyError(str(error)) from None
    if not workload.sessions:
        raise StudyError(
            f"no session arrives within {study.seconds:g} s at {study.load(cell.rate)}:"
            " raise --rate or --seconds"
        )
    jobs = how.jobs or cores()
    processes = processes_of(study, jobs)
    if processes == 1:
        make_study(study, out, jobs, how.quiet, how.trace)
    else:
        work = partial(simulate_cell, processes=processes)
        make_study(study, out, len(study.cells()), how.quiet, how.trace, work=work)


def cores() -> int:
    """Return the number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


# -- parsing the options -------------------------------------------------------------------------


def parse_policies(texts: Sequence[str]) -> Iterator[Policy]:
    """Yield the policies of one or more texts such as `name,name:key=value,key=value,name`.

    A comma starts the next policy, unless `key=value` follows, which continues the policy before
    it. Raises `StudyError`.
    """
    specs: list[str] = []
    for text in texts:
        begun = False
        for part in filter(None, text.split(",")):
            # In `lamps:ranking=fcfs`, a colon precedes the first equals sign.
            if begun and "=" in part.partition(":")[0]:
                specs[-1] += f"{',' if ':' in specs[-1] else ':'}{part}"
            else:
                specs.append(part.strip())
                begun = True
    for spec in specs:
        search_here(spec)
        try:
            policy = parse_policy(spec)
            if policy.engine == "caesura":
                Settings.from_mapping(policy.settings)
        except ValueError as error:
            raise StudyError(f"--policy {spec}: {error}") from None
        yield policy


def parse_seeds(text: str) -> tuple[int, ...]:
    """Return the seeds of `5` (0 to 4), `31-35` (five seeds) or `1,4,9`; raise `StudyError`."""
    try:
        if "," in text:
            return tuple(int(part) for part in text.split(",") if part)
        first, dash, last = text.partition("-")
        return tuple(range(int(first), int(last) + 1)) if dash else tuple(range(int(text)))
    except ValueError:
        raise StudyError(f"--seeds must be like 5, 31-35 or 1,4,9, got {text!r}") from None


def parse_numbers(option: str, texts: Sequence[str]) -> tuple[float, ...]:
    """Return the numbers of one or more texts such as `1,2.5,3`; raise `StudyError`."""
    try:
        return tuple(float(part) for text in texts for part in text.split(",") if part)
    except ValueError:
        raise StudyError(f"{option} must be numbers like 1,2.5, got {','.join(texts)!r}") from None


def _loads(workload: str, rates: Sequence[str], clients: str) -> tuple[bool, tuple[float, ...]]:
    """Return whether the workload is a closed loop, and its loads: rates, or numbers of clients."""
    try:
        options = Options(workload)
        source = SOURCES.get(options.name)
        own = options.whole("clients", source.clients if source is not None else 0)
    except ValueError as error:
        raise StudyError(str(error)) from None
    if not (own or clients):
        return False, parse_numbers("--rate", rates or RATES)
    if rates:
        raise StudyError(
            f"{workload}: sessions come from clients, not at a rate, got --rate"
            f" {','.join(rates)}: give --clients instead"
        )
    return True, parse_numbers("--clients", [clients or str(own)])


# -- known names ---------------------------------------------------------------------------------


MADE_MACHINES = {
    "calibration:path=FILE": "the costs that `caesura calibrate` measured; also takes kv=, host=",
    "samullm:model=NAME": "an A100-80G with the costs of SamuLLM's timed iterations",
}


def list_names() -> None:
    """Print workloads, machines and policies, with a line about each."""
    console = Console()
    workloads = {
        name: source.about + (f"; --data: {source.file}" if source.file else "")
        for name, source in SOURCES.items()
    }
    machines = {
        name: f"{plan.kv_tokens:,} tokens of KV, link {plan.link_bytes / 1e9:g} GB/s,"
        f" host {plan.host_bytes / 1e9:g} GB"
        for name, plan in PLANS.items()
    }
    machines |= MADE_MACHINES
    policies = {name: describe(policy) for name, policy in POLICIES.items()}
    for title, names in (
        ("workloads", workloads),
        ("machines", machines),
        ("policies", policies),
        ("routers", ABOUT_ROUTERS),
    ):
        table = Table(title=title, title_justify="left", title_style="bold", box=None)
        table.add_column(no_wrap=True)
        table.add_column(style="dim")
        table.show_header = False
        for name, about in names.items():
            table.add_row(escape(name), escape(about))
        console.print(table, highlight=False)


def describe(policy: Policy) -> str:
    """Return a line that describes a policy."""
    if policy.engine == "caesura":
        settings = policy.settings
        said = [f"handling {settings['handling']}", f"ranking {settings['ranking']}"]
        said += ["no back-filling"] if settings.get("backfill") is False else []
    else:
        said = ["vLLM's own scheduler"]
        said += ["its offloading to the host"] if policy.engine == "stock-offload" else []
    saturating = policy.engine == "caesura" and policy.settings.get("chunk", "auto") == "auto"
    said.append("chunks by saturation" if saturating else f"chunks of {policy.chunk_tokens} tokens")
    told = {
        "no prefix caching": not policy.prefix_caching,
        "follow-ups at their session's place": policy.session_order,
        "steps wait for copies": policy.synchronous_swap,
        "a bound: copies take no time": policy.free_link,
    }
    return ", ".join(said + [words for words, holds in told.items() if holds])


RECORDS = "stretch.jsonl"
"""The file in the folder of a replay that holds the records of a recording's stretch."""


@dataclass(frozen=True, slots=True)
class Records:
    """A file of records; of a recording also its policy, and what of it cannot be replayed."""

    path: Path
    policy: Policy | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()


def recorded(record: Path | None, store: Path, said: str, span: Span, out: Path) -> Records:
    """Write the records of a recording's stretch into the folder `out`.

    Raises `UsageError` for a recording that is not there, and for a stretch without sessions.
    """
    if record is not None:
        raise UsageError(f"--recording excludes the file {record}: give only one of them")
    found = catalog.find(store, said)
    policy = recorded_of(found.about)
    times = span.times(found.ended or 0.0) or (-inf, inf)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror or error}") from error
    stretch = collect(store, int(found.id), *times, out / RECORDS)
    return Records(stretch.path, policy, stretch.left_out, tuple(doubts_about(found.about)))


def records_in(record: Path, out: Path) -> Records:
    """Return the records in a file; those of trajectories are written into the folder `out`.

    Raises `UsageError` for trajectories that cannot be replayed.
    """
    trajectories = read_trajectories(record)
    if trajectories is None:
        return Records(record)
    left_out = write_records(trajectories, out / RECORDS)
    return Records(out / RECORDS, left_out=left_out)


def replay(records: Records | None, speed: float, how: StudyOptions, out: Path) -> None:
    """Simulate the sessions of a record file, which arrive `speed` times as fast as they did.

    The policy of a recording is simulated too, and the others are compared with it. Raises
    `StudyError` for a file without sessions, and for invalid options.
    """
    if records is None:
        raise UsageError("what shall be replayed? Give a file of records, or --recording ID")
    record = records.path
    try:
        found = read_recorded(record)
    except ValueError as error:
        raise StudyError(str(error)) from None
    arrivals = [session.arrival for session in found.sessions]
    for why, many in (records.left_out or found.left_out).items():
        typer.echo(f"left out: {many} session{'s' * (many != 1)} {why}", err=True)
    for doubt in records.doubts:
        typer.echo(doubt, err=True)
    if not 0 < speed < inf:
        raise StudyError(f"--speed must be a factor above 0, got {speed:g}")
    span = (arrivals[-1] - arrivals[0]) / speed
    if not span > 0:
        raise StudyError(
            f"{record}: a single session has no rate; record at least two sessions, at different"
            " times"
        )
    rate = (len(arrivals) - 1) / span
    # The last session arrives at the end of the span, and must be included.
    seconds = nextafter(span, inf)
    study = study_of(how, "record", record, (rate,), seconds)
    start(_beside_recorded(study, records.policy, how.baseline), how, out)


def _beside_recorded(study: Study, recorded: Policy | None, baseline: str | None) -> Study:
    """Add the policy of the recording to a study, as the baseline unless another one is named."""
    if recorded is None:
        return study
    policies = (recorded, *study.policies)
    return replace(study, policies=policies, baseline=study.baseline if baseline else recorded.name)
