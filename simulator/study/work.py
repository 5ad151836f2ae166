"""One run, in whichever process: from a cell to what it measured."""

from collections.abc import Callable

from caesura.simulator.results import RunResult
from caesura.simulator.session import Workload
from caesura.simulator.study.plan import Cell
from caesura.simulator.trace import coarse

Progress = Callable[[float], None]
"""Told now and then at what second of the simulation a run is."""

Work = Callable[[Cell, Progress], RunResult]
"""Makes a run; a function of a module, so that another process can import it."""


def simulate_cell(cell: Cell, progress: Progress) -> RunResult:
    """Make the run that a cell describes.

    Raises `ValueError` for specs that name nothing, and what `simulate` raises.
    """
    return _simulate(cell, progress, records=False)[0]


def trace_cell(cell: Cell, progress: Progress) -> RunResult:
    """Make the same run, and have it write down what a trace needs; raises the same."""
    run, workload = _simulate(cell, progress, records=True)
    if cell.policy.engine != "caesura":
        run.records = coarse(run, workload)
    return run


def _simulate(cell: Cell, progress: Progress, records: bool) -> tuple[RunResult, Workload]:
    # The engine imports vLLM, which takes seconds, and is not needed to plan or to report.
    from caesura.simulator.engine import simulate
    from caesura.simulator.latency.machines import make_machine
    from caesura.simulator.workload.names import make_workload

    workload = make_workload(cell.workload, cell.rate, cell.seconds, cell.seed, cell.data)
    run = simulate(
        workload,
        make_machine(cell.machine),
        cell.policy,
        seed=cell.seed,
        window=cell.window,
        records=records,
        progress=progress,
    )
    return run, workload
