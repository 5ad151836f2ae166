"""Long sessions beside a closed loop of short ones, on a pool of 40 blocks: how long each waits."""

from dataclasses import replace

import pytest

from caesura.simulator.engine import simulate
from caesura.simulator.machine import StepShape
from caesura.simulator.policy import Policy
from caesura.simulator.results import RunResult
from caesura.simulator.session import Workload

from .simulated import Linear, machine, session

CLIENTS = 56
SECONDS = 5.0
"""The bound on being overtaken."""


class Slow(Linear):
    """A processor on which a step takes half a second more than on the other machine."""

    def seconds(self, step: StepShape) -> float:
        return 0.5 + super().seconds(step)


def crowd(count: int = 160) -> Workload:
    """Eight sessions that need most of the pool, then `count` short ones from all other clients."""
    long = [session(f"long-{place}", (880, 20), kind="long") for place in range(8)]
    short = [session(f"short-{place}", (60, 8, 1.0), (10, 8)) for place in range(count)]
    return Workload("crowd", (*short[:48], *long, *short[48:]), clients=CLIENTS)


def served(seconds: float, ranking: str, slo: str | None) -> RunResult:
    settings = {
        "slo": slo,
        "ranking": ranking,
        "max_overtaken_steps": 10**9,
        "max_overtaken_seconds": seconds,
    }
    pool = replace(machine(blocks=40, block_tokens=32), latency=Slow())
    return simulate(crowd(), pool, Policy("ours", settings=settings, most_running=4))


def longest_wait(run: RunResult, kind: str = "") -> float:
    rows = [row for one in run.sessions if one.kind.startswith(kind) for row in one.segments]
    return max(first - sent for sent, first, _ in rows)


@pytest.mark.parametrize(
    ("ranking", "slo"),
    [("fcfs", None), ("caesura:beta=300", None), ("fcfs", "ttft=20,tpot=1")],
)
def test_no_session_starves_beside_a_closed_loop(ranking: str, slo: str | None) -> None:
    """Eight long sessions are served one by one, each in about 15 s, and then the short ones."""
    bounded, unbounded = served(SECONDS, ranking, slo), served(1e9, ranking, slo)
    assert all(one.ended for one in bounded.sessions)
    assert longest_wait(bounded) < SECONDS + 8 * 18
    assert longest_wait(unbounded, "long") > 300, "they wait until the short ones are done"


@pytest.mark.parametrize("ranking", ["fcfs", "caesura", "caesura:beta=300"])
def test_long_sessions_end_while_short_ones_keep_coming(ranking: str) -> None:
    """With the bounds that are the default; without them, most wait for the last client."""
    pool = replace(machine(blocks=40, block_tokens=32), latency=Slow())
    work = crowd(480)

    def left(settings: dict[str, object]) -> int:
        """Return how many long sessions had not ended when the last short one was sent."""
        run = simulate(work, pool, Policy("ours", settings=settings, most_running=4))
        sent = max(one.arrival for one in run.sessions if one.kind == "qa")
        return sum(one.ended > sent for one in run.sessions if one.kind == "long")

    unbounded = {"max_overtaken_steps": 10**9, "max_overtaken_seconds": 1e9}
    assert left({"ranking": ranking}) == 0
    assert left({"ranking": ranking, **unbounded}) > 4, "without bounds most of them wait"
