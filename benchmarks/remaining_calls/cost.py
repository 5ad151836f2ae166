"""Measure what a predictor costs a step of the scheduler, in pairs, on the simulator's clock.

python -m benchmarks.remaining_calls.cost

The scheduler that serves runs a closed loop of the six tools, whose segments are short, so that
predictions are asked for often. What counts is computing time, and no model runs.
"""

import argparse
import time
from statistics import median

from benchmarks.pairs import ratio
from caesura.simulator.engine import simulate
from caesura.simulator.latency.machines import make_machine
from caesura.simulator.policy import parse_policy
from caesura.simulator.results import RunResult
from caesura.simulator.session import Workload
from caesura.simulator.workload.names import make_workload

MACHINE = "gptj-6b-a100-40g:kv=200000"
"""Its KV cache holds all requests, so that none waits for blocks."""

LONGEST_PAUSE = 0.05


def main() -> None:
    """Print the computing time of a step by predictor, and the difference."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--clients", type=int, default=110, help="clients of the closed loop")
    parser.add_argument("--requests", type=int, default=250, help="sessions of a run")
    parser.add_argument("--pairs", type=int, default=4, help="pairs of runs")
    parser.add_argument("--of", default="hazard", help="the predictor")
    parser.add_argument("--to", default="history", help="the predictor that it is compared with")
    asked = parser.parse_args()
    loop = f"longest={LONGEST_PAUSE},clients={asked.clients},requests={asked.requests}"
    workload = make_workload(f"mix:{loop}", 1.0, 1.0, 7)
    names = (asked.of, asked.to)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for pair in range(asked.pairs):
        for name in names if pair % 2 else names[::-1]:
            run, used = _run(workload, name)
            seconds[name].append(used / run.totals.steps)
            print(
                f"{name}: {_told(run)}; {seconds[name][-1] * 1e3:.3f} ms of CPU a step", flush=True
            )
    more = [a - b for a, b in zip(seconds[asked.of], seconds[asked.to], strict=True)]
    print(f"{asked.of} / {asked.to}: {ratio(seconds[asked.of], seconds[asked.to])}")
    print(
        f"{median(more) * 1e3:.3f} ms more a step [{min(more) * 1e3:.3f} .. {max(more) * 1e3:.3f}]"
    )


def _run(workload: Workload, prediction: str) -> tuple[RunResult, float]:
    """Return a run with this predictor, and the seconds of computing time that it took."""
    policy = parse_policy(f"caesura:prediction={prediction}")
    began = time.process_time()
    run = simulate(workload, make_machine(MACHINE), policy)
    return run, time.process_time() - began


def _told(run: RunResult) -> str:
    totals = run.totals
    segments = sum(len(session.segments) for session in run.sessions)
    return (
        f"{totals.decode_tokens / totals.steps:.1f} decode tokens and"
        f" {segments / totals.steps:.2f} ends of segments a step of"
        f" {totals.seconds / totals.steps * 1e3:.1f} ms"
    )


if __name__ == "__main__":
    main()
