"""`caesura calibrate`: measures an engine, saves the calibration and prints it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import floor, log10
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from caesura.intercept.kv.costs import MIN_LINK_SHARE
from caesura.runtime.cli.engine import engine_on
from caesura.runtime.engine import Engine
from caesura.runtime.errors import UsageError
from caesura.scheduler.calibration import Calibration
from caesura.scheduler.engine_options import EngineOptions
from caesura.scheduler.paths import calibration_path

SEQUENCES = (1, 8, 32)
CONTEXT = 1000
"""The context tokens of each sequence in the table."""


async def measure_model(
    model: str | None,
    output: Path | None,
    quick: bool,
    host_gib: float,
    vllm_args: Sequence[str],
) -> None:
    """Start the engine as `serve` does, measure it, save the calibration and print it.

    Raises `UsageError` for a file that cannot be written, and the errors of the engine.
    """
    if output is not None:
        _demand_writable(output)
    options = EngineOptions(
        model,
        vllm_args=vllm_args,
        settings={"calibration": None, "pauses": None},
        connector={"host_gib": host_gib},
    )
    async with engine_on(options) as engine:
        found = await measure_shown(engine, quick)
    path = output or default_path(found)
    keep(found, path)
    console = Console()
    console.print(table(found, swapping=host_gib > 0))
    console.print(f"{verdict(found)}\nwritten to {path}", highlight=False, soft_wrap=True)
    if output is not None:
        console.print(f"use it with `caesura serve --calibration {path}`", style="dim")


def default_path(found: Calibration) -> Path:
    """Return the file in which `serve` looks for the calibration."""
    return calibration_path(found.model, found.dtype, found.device, found.vllm_version)


def keep(found: Calibration, path: Path) -> None:
    """Write the calibration to a file; raise `UsageError` if that fails."""
    try:
        found.save(path)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}; choose another file with --output"
        ) from error


def table(found: Calibration, swapping: bool = True) -> Table:
    """Return a table of the measurements."""
    cost = found.cost
    shown = Table(
        title=f"{found.model}, {found.dtype}, {found.device}, vLLM {found.vllm_version}",
        show_header=False,
        title_justify="left",
    )
    shown.add_column()
    shown.add_column(justify="right")
    most = max(tokens for tokens, _, _ in found.steps)
    shown.add_row(
        f"prefill, in chunks of {most} tokens",
        f"{most / cost.step_seconds(most, most):,.0f} tokens/s",
    )
    for count in SEQUENCES:
        seconds = cost.step_seconds(count, count * CONTEXT)
        sequences = "1 sequence" if count == 1 else f"{count} sequences"
        shown.add_row(f"decoding step, {sequences} of {CONTEXT} tokens", milliseconds(seconds))
    shown.add_row("saturated from (S)", f"{cost.saturation} tokens per step")
    shown.add_row("KV cache", f"{found.bytes_per_token:,} bytes per token")
    if cost.out_rate and cost.in_rate:
        shown.add_row("to the host, beside a step", rate(cost.out_rate, found))
        shown.add_row("to the host, engine idle", rate(found.out_alone, found))
        shown.add_row("from the host, beside a step", rate(cost.in_rate, found))
        shown.add_row("from the host, engine idle", rate(found.in_alone, found))
        least = MIN_LINK_SHARE / cost.prefill_seconds_per_token
        shown.add_row("swapping pays from", rate(least, found))
    else:
        shown.add_row("link to the host", "could not be measured" if swapping else "off")
    shown.add_row(
        "steps measured, mean error of the fit", f"{len(found.steps)}, {found.step_error:.1%}"
    )
    return shown


def verdict(found: Calibration) -> str:
    """Return a sentence that says whether loading from the host is faster than recomputation."""
    cost = found.cost
    recompute = milliseconds(cost.prefill_seconds_per_token * CONTEXT)
    text = f"{CONTEXT} tokens are recomputed in {recompute}"
    if not (cost.in_rate and cost.out_rate):
        return f"{text}; no link to the host was measured."
    load = milliseconds(cost.swap_seconds(CONTEXT, "in"))
    pays = "pays" if cost.swap_pays else "does not pay"
    return f"{text} and loaded from the host in {load}: swapping {pays}."


def milliseconds(seconds: float) -> str:
    """Return a time in milliseconds with three digits, or with all digits before the point."""
    digits = 2 - floor(log10(seconds * 1e3)) if seconds > 0 else 0
    return f"{seconds * 1e3:,.{max(0, digits)}f} ms"


def rate(tokens: float, found: Calibration) -> str:
    """Return a rate of the link in tokens and in bytes per second."""
    return f"{tokens:,.0f} tokens/s, {tokens * found.bytes_per_token / 1e9:.1f} GB/s"


def _demand_writable(path: Path) -> None:
    """Raise `UsageError` for an invalid path before the measurement starts."""
    if path.is_dir():
        raise UsageError(f"--output {path} is a directory: choose a file in it")
    if not path.absolute().parent.is_dir():
        raise UsageError(
            f"there is no directory {path.absolute().parent} for --output: create it, or choose"
            " another file"
        )


async def measure_shown(engine: Engine, quick: bool) -> Calibration:
    """Return the engine's calibration, measured under a progress bar.

    Raises `UsageError` and `EngineFailed`.
    """
    with _bar(Console(stderr=True)) as progress:
        return await engine.backend.measure(quick, progress)


@contextmanager
def _bar(console: Console) -> Iterator[Callable[[float, str], None]]:
    if not console.is_terminal:
        console.print("measuring the engine ...")
        yield lambda done, what: None
        return
    columns = (
        TextColumn("measuring {task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("steps", total=1.0)
        yield lambda done, what: bar.update(task, completed=done, description=what)
