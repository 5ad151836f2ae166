"""The same sessions on the same engine, simulated."""

import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.handling.workload import Session
from benchmarks.validate.pace import Paced, paces
from benchmarks.validate.real import RealRun, Setup
from benchmarks.validate.steps import run_cost
from caesura.simulator import session as sim
from caesura.simulator.engine.clock import Clock
from caesura.simulator.engine.run import Member, prepare
from caesura.simulator.latency.calibrated import Calibrated
from caesura.simulator.latency.machines import make_machine
from caesura.simulator.machine import Machine
from caesura.simulator.policy import Policy
from caesura.simulator.results import RunResult

GIGA = 1e9


COSTS = ("calibration", "steps", "pace")
"""Where the simulated steps' times are from.

`calibration`: the file that was measured on the same engine before the load came. `steps`: a fit to
the steps of the real run itself. `pace`: that fit, times the pace at which the machine, which
others use too, went in that second of the real run.
"""


def simulated(setup: Setup, run: RealRun, sessions: list[Session], costs: str) -> RunResult:
    """Simulate the sessions of a real run to their ends, with steps' times from one of `COSTS`.

    Raises `ValueError` if too few steps were measured, or no link.
    """
    clock = Clock()
    machine = _machine(setup, run)
    if costs != "calibration":
        found = run_cost(run.rows)
        steady = Calibrated(costs, found.cost)
        pace = paces(run.rows, found, run.began, run.seconds)
        latency = steady if costs == "steps" else Paced(costs, found.cost, pace, clock)
        machine = replace(machine, latency=latency)
    workload = workload_of(sessions, run.overhead)
    member = Member(workload, machine, policy_of(setup))
    return prepare(member, records=True, clock=clock).run()


def _machine(setup: Setup, run: RealRun) -> Machine:
    """Return the machine that `caesura simulate` makes of the calibration file."""
    block_bytes = run.calibration.block_size * run.calibration.bytes_per_token
    # Half a block more, so that rounding takes none away.
    host = (run.host_blocks + 0.5) * block_bytes / GIGA
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "calibration.json")
        run.calibration.save(path)
        return make_machine(f"calibration:path={path},kv={setup.kv_tokens},host={host}")


def policy_of(setup: Setup) -> Policy:
    """Return the policy that is set up as the real engine was."""
    return Policy(
        setup.handling,
        settings={"handling": setup.handling},
        chunk_tokens=setup.batched_tokens,
        most_running=setup.sequences,
    )


def workload_of(sessions: list[Session], overhead: float) -> sim.Workload:
    """Return the sessions as the engine meets them: each segment is `overhead` seconds late.

    They are all of one kind, since the real clients do not say which tools they offer.
    """
    return sim.Workload("validate", tuple(_session(each, overhead) for each in sessions))


def _session(session: Session, overhead: float) -> sim.Session:
    segments = tuple(
        replace(
            segment,
            tool_seconds=segment.tool_seconds + overhead if segment.tool else 0.0,
            # As the driver of the real sessions says it.
            most_tokens=segment.decode_tokens + 1,
        )
        for segment in session.segments
    )
    return sim.Session(session.key, "mix", session.arrival_seconds + overhead, segments)
