"""A burst of 200 requests with three causes of slowness, by the scheduler that serves.

`SLOW_TOOL` takes half a minute where the others take half a second. One request, `LONG_PROMPT`,
brings a prompt of many steps. And the KV cache holds a few of the sessions only, so that most of
them wait for blocks. Time alone is simulated; all records are the scheduler's own.
"""

from collections.abc import Iterable
from functools import cache

from caesura.intercept.kv.costs import CostModel
from caesura.runtime.recording.entries import Entry, Recording
from caesura.simulator.engine import simulate
from caesura.simulator.machine import Machine, StepShape
from caesura.simulator.policy import POLICIES
from caesura.simulator.session import Segment, Session, Workload
from caesura.simulator.trace import recording

SLOW_TOOL, QUICK_TOOL = "browse", "lookup"
SLOW_SECONDS, QUICK_SECONDS = 30.0, 0.5
LONG_PROMPT = "long-prompt"
LONG_TOKENS = 12_000
REQUESTS, ARRIVAL_SECONDS = 200, 20.0
BLOCKS = 1000
"""Blocks of 16 tokens: room for the long prompt, and for about 40 of the others."""
BASE, PER_TOKEN = 0.01, 0.0004


class Pace:
    """Steps of 10 ms and 0.4 ms for each token."""

    name = "steady"

    def seconds(self, step: StepShape) -> float:
        """Return how long a step takes."""
        return BASE + PER_TOKEN * step.tokens


def machine() -> Machine:
    """Return a machine whose KV cache is too small for the burst."""
    return Machine(
        name="small",
        latency=Pace(),
        kv_tokens=BLOCKS * 16,
        kv_bytes=1000,
        host_bytes=500 * 16_000,
        link_bytes=1e6,
        cost=CostModel(BASE, PER_TOKEN, PER_TOKEN, 0.0, 256),
    )


def sessions() -> Iterable[Session]:
    """Yield the burst: each asks, calls a tool once, and answers."""
    for number in range(REQUESTS):
        at = ARRIVAL_SECONDS * number / REQUESTS
        if number == REQUESTS // 2:
            yield Session(LONG_PROMPT, "long", at, (Segment(LONG_TOKENS, 60),))
            continue
        slow = number % 10 == 3
        tool, seconds = (SLOW_TOOL, SLOW_SECONDS) if slow else (QUICK_TOOL, QUICK_SECONDS)
        first = Segment(300, 60, tool, seconds)
        yield Session(f"request-{number:03}", "usual", at, (first, Segment(40, 40)))


@cache
def burst() -> tuple[Recording, list[Entry]]:
    """Return the recording of the burst; it is made once."""
    workload = Workload("a burst of 200 requests", tuple(sessions()))
    policy = POLICIES["caesura"]
    run = simulate(workload, machine(), policy, records=True)
    return Recording.from_public(recording(run, len(run.records))), run.records
