"""Simulate one run: from a cell to its measurements, in any process."""

from collections.abc import Callable

from caesura.simulator.machine import Machine
from caesura.simulator.policy import Policy
from caesura.simulator.results import RunResult
from caesura.simulator.session import Workload
from caesura.simulator.study.plan import Cell
from caesura.simulator.trace import coarse

REPLAY = "record"
"""The workload of recorded sessions, in which predictors are compared too."""

Progress = Callable[[float], None]
"""Called from time to time with the simulated second that a run has reached."""

Work = Callable[[Cell, Progress], RunResult]
"""Returns the run of a cell; it is a function of a module, so that a worker can import it."""


def simulate_cell(cell: Cell, progress: Progress, processes: int = 1) -> RunResult:
    """Return the run of a cell; its replicas, if it has some, run in so many processes.

    Raises `ValueError` for specs with unknown names, and the errors of `simulate`.
    """
    if cell.policy.fleet is not None:
        return _simulate_replicas(cell, progress, processes)
    return _simulate(cell, progress, records=False)[0]


def trace_cell(cell: Cell, progress: Progress) -> RunResult:
    """Return the same run with the records that a trace needs; raises the same errors."""
    run, workload = _simulate(cell, progress, records=True)
    if cell.policy.engine != "caesura":
        run.records = coarse(run, workload)
    return run


def simulate_workload(workload: Workload, machine: Machine, policy: Policy) -> RunResult:
    """Return the run of a workload that is no cell of a study; raises the errors of `simulate`."""
    from caesura.simulator.engine import simulate

    return simulate(workload, machine, policy)


def _simulate_replicas(cell: Cell, progress: Progress, processes: int) -> RunResult:
    from caesura.simulator.engine.replicas import simulate_replicas
    from caesura.simulator.latency.machines import make_machine
    from caesura.simulator.workload.names import make_workload

    return simulate_replicas(
        make_workload(cell.workload, cell.rate, cell.seconds, cell.seed, cell.data),
        make_machine(cell.machine),
        cell.policy,
        processes=processes,
        window=cell.window,
        progress=progress,
    )


def _simulate(cell: Cell, progress: Progress, records: bool) -> tuple[RunResult, Workload]:
    # The engine imports vLLM, which takes seconds and which plans and reports do not need.
    from caesura.simulator.engine.run import Member, prepare
    from caesura.simulator.latency.machines import make_machine
    from caesura.simulator.workload.names import make_workload

    workload = make_workload(cell.workload, cell.rate, cell.seconds, cell.seed, cell.data)
    member = Member(workload, make_machine(cell.machine), cell.policy)
    prepared = prepare(member, records=records, predictions=cell.workload == REPLAY)
    return prepared.run(cell.window, progress), workload
