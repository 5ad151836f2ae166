"""How the cost of a step and the memory grow with paused sessions, for docs/study/evidence.md.

    python -m benchmarks.paused_growth
    python -m benchmarks.paused_growth --counts 100 1000 --states kept     # in seconds
    python -m benchmarks.paused_growth --profile --counts 10000 --states swapped

One scheduler serves eight requests that decode, while so many sessions wait for their tools, or in
its queue. Measured is the processor time of `schedule()` and `update_from_output()`: the median of
the steps of eight decoding requests. Each case runs in a process of its own. The sessions' KV is
`kept` on the device, `swapped` to the host, or `discarded`; `queued` sessions have not run yet.
`bytes` are what the process grew by for each of them, tokens and blocks of its context included.
"""

import argparse
import cProfile
import gc
import multiprocessing
import pstats
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from rich.progress import track

from benchmarks.evidence.tables import Table, add_option, tell
from caesura.intercept.kv.costs import CostModel
from caesura.simulator.engine.core import Core, collecting_rarely
from caesura.simulator.engine.run import Member, prepare
from caesura.simulator.machine import Machine, StepShape
from caesura.simulator.policy import Policy, parse_policy
from caesura.simulator.session import Segment, Session, Workload

STATES = ("kept", "swapped", "discarded", "queued")
COUNTS = (100, 1_000, 10_000, 100_000)
DECODING = 8
GIVEN, BLOCK_TOKENS = 32, 16
BLOCKS = 3
"""The blocks of one session at its pause."""

FOR_EVER = 1e9
APART = 0.001
"""Seconds between the arrivals of sessions that pause: ten in each step."""

STEPS = 300
SETTLING = 30
"""Steps before the measured ones."""


@dataclass(frozen=True, slots=True)
class Case:
    """So many sessions in a state; `profile` prints where the time of the measured steps goes."""

    state: str
    count: int
    profile: bool = False


@dataclass(frozen=True, slots=True)
class Measured:
    """Microseconds of processor time per step, and bytes per session."""

    schedule: float
    update: float
    bytes: float


@dataclass(frozen=True, slots=True)
class Even:
    """Steps of 10 ms."""

    name: str = "even"

    def seconds(self, step: StepShape) -> float:
        """Return the time of a step."""
        return 0.01


def machine(case: Case) -> Machine:
    """Return a machine whose KV cache holds all sessions, or few of them."""
    own = DECODING * (GIVEN + STEPS * 3) // BLOCK_TOKENS + 2 * DECODING
    blocks = own + (case.count + 64) * BLOCKS if case.state == "kept" else own + 64 * BLOCKS
    return Machine(
        name="even",
        latency=Even(),
        kv_tokens=blocks * BLOCK_TOKENS,
        kv_bytes=1000,
        host_bytes=(case.count + 1000) * BLOCKS * BLOCK_TOKENS * 1000,
        link_bytes=1e12,
        cost=CostModel(0.01, 1e-5, 1e-5, 0.0, 512),
        block_tokens=BLOCK_TOKENS,
    )


def policy(case: Case) -> Policy:
    """Return the policy that brings sessions into the case's state."""
    name = {"swapped": "caesura", "discarded": "caesura:host=false"}.get(case.state, "caesura")
    base = parse_policy(name)
    handling = "discard" if case.state == "discarded" else "caesura"
    return replace(
        base, settings={**base.settings, "handling": handling}, most_running=64 + DECODING
    )


def workload(case: Case) -> Workload:
    """Return the sessions that pause or queue, and those that decode meanwhile."""
    decoding = [
        Session(f"decodes {place}", "decodes", 1.0, (Segment(GIVEN, 3 * STEPS),))
        for place in range(DECODING)
    ]
    segments = (Segment(GIVEN, 2, "person", FOR_EVER), Segment(5, 2))
    arrival, apart = 2.0, 0.0
    if case.state != "queued":
        # Those that decode come when all others have paused, which come slowly: they never queue.
        decoding = [replace(one, arrival=FOR_EVER / 2) for one in decoding]
        arrival, apart = 0.0, APART
    waiting = [
        Session(f"waits {n}", "waits", arrival + n * apart, segments) for n in range(case.count)
    ]
    return Workload("growth", tuple(waiting + decoding))


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


class Stopwatch:
    """Takes the processor time of calls of a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.seconds: list[float] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        began = time.process_time()
        try:
            return self._function(*args, **kwargs)
        finally:
            self.seconds.append(time.process_time() - began)


def run_until(core: Core, done: Callable[[], bool]) -> None:
    """Step until `done`."""
    while not done():
        at = core.next_at
        assert at is not None, "the engine has nothing to do"
        core.step_at(at)


def measure(case: Case) -> Measured:
    """Return what one case costs."""
    given = policy(case)
    if case.state == "queued":
        # Those that decode hold all slots, so that all others queue.
        given = replace(given, most_running=DECODING)
    ready = prepare(Member(workload(case), machine(case), given))
    core, scheduler, clients = ready.core, ready.scheduler, ready.clients
    gc.collect()
    before = resident_bytes()
    with collecting_rarely():
        if case.state == "queued":
            run_until(core, lambda: len(clients.live) == case.count + DECODING)
        else:
            run_until(core, lambda: core.now >= FOR_EVER / 2 and len(clients.live) == DECODING)
        for _ in range(SETTLING):
            core.step_at(core.next_at or core.now)
        gc.collect()
        grown = resident_bytes() - before
        schedule, update = Stopwatch(scheduler.schedule), Stopwatch(scheduler.update_from_output)
        scheduler.schedule, scheduler.update_from_output = schedule, update
        profile = cProfile.Profile(time.process_time)
        if case.profile:
            profile.enable()
        for _ in range(STEPS):
            core.step_at(core.next_at or core.now)
        profile.disable()
    if case.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)
    micro = [1e6 * median(one.seconds) for one in (schedule, update)]
    return Measured(*micro, bytes=grown / case.count)


def main() -> None:
    """Measure the cases, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS)
    parser.add_argument("--states", choices=STATES, nargs="+", default=STATES)
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    add_option(parser)
    options = parser.parse_args()
    cases = [
        Case(state, count, options.profile) for state in options.states for count in options.counts
    ]
    found = table(cases)
    print(found.markdown())
    tell(options.tables, [found])


def table(cases: Sequence[Case]) -> Table:
    """Measure the cases, each in a process of its own, and return their table."""
    columns = (
        "state",
        "sessions",
        "`schedule()` [µs]",
        "`update_from_output()` [µs]",
        "bytes per session",
    )
    rows = []
    # What a case imports is imported once, before.
    context = multiprocessing.get_context("fork")
    for case in track(cases, "cases"):
        with context.Pool(1) as pool:
            found = pool.apply(measure, (case,))
        figures = (found.schedule, found.update, found.bytes)
        rows.append((case.state, f"{case.count:,}", *(f"{value:,.0f}" for value in figures)))
    return Table.of(columns, rows)


if __name__ == "__main__":
    main()
