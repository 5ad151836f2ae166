"""One real run next to its simulations, as plain data."""

from dataclasses import asdict
from typing import Any

from benchmarks.handling.mix import Mix
from benchmarks.handling.systems import CONTEXT_TOKENS
from benchmarks.handling.workload import Session, counted, poisson
from benchmarks.validate.pace import paces, unevenness
from benchmarks.validate.real import RealRun, Setup
from benchmarks.validate.sight import (
    figures,
    handlings_of_records,
    handlings_of_result,
    really,
    same_order,
    virtually,
)
from benchmarks.validate.simulated import COSTS, simulated
from benchmarks.validate.steps import run_cost

TOKEN_SCALE, PAUSE_SCALE = 1 / 4, 0.35
"""As in `benchmarks.handling`."""


def draw(
    rate: float, seconds: float, warm_up: float, tail: float, seed: int
) -> tuple[list[Session], frozenset[str]]:
    """Draw the sessions that arrive in so many seconds, and say which of them are measured.

    Those that come before `warm_up` are not, nor those whose tools alone last until `tail` seconds
    behind the last arrivals.
    """
    sessions = poisson(Mix(TOKEN_SCALE, PAUSE_SCALE, CONTEXT_TOKENS).draw, rate, seconds, seed)
    return sessions, counted(sessions, warm_up, seconds + tail)


def compare(
    setup: Setup, run: RealRun, sessions: list[Session], chosen: frozenset[str]
) -> dict[str, Any]:
    """Simulate what was really run, and return the figures of both, over the chosen sessions.

    Those that had not ended when the run was cut are left out of both, and counted.
    """
    real = really(run.records)
    keys = [session.key for session in sessions if session.key in chosen & real.keys()]
    ours = [real[key] for key in keys]
    found: dict[str, Any] = {
        "counted": len(keys),
        "cut": len(chosen) - len(keys),
        "real": figures(ours) | {"handlings": handlings_of_records(run.records, keys)},
        "machine": _machine(run),
        "simulated": {},
    }
    for costs in COSTS:
        result = simulated(setup, run, sessions, costs)
        seen = virtually(result, sessions, run.overhead)
        theirs = [seen[key] for key in keys]
        found["simulated"][costs] = figures(theirs) | {
            "same_events": sum(
                one.events() == other.events() for one, other in zip(ours, theirs, strict=True)
            ),
            "same_order": same_order(ours, theirs),
            "handlings": handlings_of_result(result, keys),
        }
    return found


def _machine(run: RealRun) -> dict[str, Any]:
    """Say how fast the machine was, and how evenly."""
    found = run_cost(run.rows)
    pace = paces(run.rows, found, run.began, run.seconds)
    return {
        "load_average": run.machine_load,
        "seconds": run.seconds,
        "steps": len(run.rows),
        "overhead": run.overhead,
        "gap": found.gap,
        "busy": sum(row.ended - row.began for row in run.rows) / run.seconds,
        "step_error": found.error,
        "unevenness": unevenness(pace),
        "calibration": asdict(run.calibration.cost),
        "calibration_error": run.calibration.step_error,
        "run_cost": asdict(found.cost),
    }
