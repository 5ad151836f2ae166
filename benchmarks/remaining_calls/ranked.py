"""Simulate recorded agents under rankings that use a predictor, and measure what it costs.

python -m benchmarks.remaining_calls.ranked --data FOLDER --rate 0.5

The predictors learn from the first 60 % of the sessions, in order of time, and go on while the
last ones are simulated. Token counts are divided by `--shrink`. Every tool takes a second, since
tools' times are not recorded.
"""

import argparse
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean, quantiles

from benchmarks.remaining_calls import taught
from benchmarks.remaining_calls.sessions import Recorded, Turn, read
from caesura.scheduler.predict.facts import CallWords
from caesura.simulator.engine import simulate
from caesura.simulator.latency.machines import make_machine
from caesura.simulator.policy import POLICIES
from caesura.simulator.session import Segment, Session, Workload

TOOL_SECONDS = 1.0
PAST = 0.6
RANKED = {"ranking": "caesura"}
SYSTEMS: dict[str, dict[str, str]] = {
    "fcfs": {"ranking": "fcfs", "prediction": f"{taught.__name__}.history"},
    "caesura, history": {**RANKED, "prediction": f"{taught.__name__}.history"},
    "caesura, hazard": {**RANKED, "prediction": f"{taught.__name__}.hazard"},
    "caesura, oracle of calls": {**RANKED, "prediction": "oracle:knows=calls"},
}


def main() -> None:
    """Print a row for each system and seed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of recorded sessions")
    parser.add_argument("--machine", default="gptj-6b-a100-40g", help="the simulated machine")
    parser.add_argument("--rate", type=float, default=0.5, help="sessions per second")
    parser.add_argument(
        "--sessions", type=int, default=100, help="sessions of a run, the last ones"
    )
    parser.add_argument("--shrink", type=int, default=8, help="divisor of token counts")
    parser.add_argument("--seeds", type=int, default=2, help="arrivals that are drawn")
    asked = parser.parse_args()
    sessions, machine = read(asked.data), make_machine(asked.machine)
    taught.teach(sessions[: round(PAST * len(sessions))])
    print("| system | seed | mean s | p50 | p99 | steps | CPU us of a step | step s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for seed in range(asked.seeds):
        workload = _workload(sessions[-asked.sessions :], asked.rate, asked.shrink, seed)
        for name, settings in SYSTEMS.items():
            base = POLICIES["caesura"]
            policy = replace(base, name=name, settings={**base.settings, **settings})
            began = time.process_time()
            run = simulate(workload, machine, policy)
            micros = 1e6 * (time.process_time() - began) / run.totals.steps
            latencies = [session.latency for session in run.sessions]
            cuts = quantiles(latencies, n=100)
            step = run.totals.busy_seconds / run.totals.steps
            print(
                f"| {name} | {seed} | {fmean(latencies):.1f} | {cuts[49]:.1f} | {cuts[98]:.1f}"
                f" | {run.totals.steps} | {micros:.0f} | {step:.4f} |",
                flush=True,
            )


def _workload(sessions: Sequence[Recorded], rate: float, shrink: int, seed: int) -> Workload:
    """Return the sessions in random order, with Poisson arrivals."""
    rng, now, made = random.Random(seed), 0.0, []
    for session in rng.sample(sessions, len(sessions)):
        now += rng.expovariate(rate)
        made.append(Session(session.key, session.kind, now, _segments(session, shrink)))
    return Workload(f"recorded at {rate:g}", tuple(made), seed=seed)


def _segments(session: Recorded, shrink: int) -> tuple[Segment, ...]:
    first = session.turns[0]
    given = [first.facts.context_tokens, *(turn.result_tokens for turn in session.turns[:-1])]
    sizes = [
        (max(1, tokens // shrink), max(1, turn.tokens // shrink))
        for tokens, turn in zip(given, session.turns, strict=True)
    ]
    calls = [
        Segment(
            *size,
            turn.tool,
            TOOL_SECONDS if turn.pause is None else turn.pause,
            words=_words(turn, after),
            failed=after.facts.last_error,
        )
        for size, (turn, after) in zip(sizes[:-1], pairwise(session.turns), strict=True)
    ]
    return (*calls, Segment(*sizes[-1]))


def _words(turn: Turn, after: Turn) -> CallWords:
    """Return the words of the call between two turns, by the facts before and after it."""
    before = dict(turn.facts.heads)
    heads = [head for head, count in after.facts.heads if count > before.get(head, 0)]
    return CallWords(after.facts.words, tuple(heads))


if __name__ == "__main__":
    main()
