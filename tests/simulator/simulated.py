"""Small machines and workloads for the simulator's engine, with times that can be told by hand."""

import json
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from caesura.intercept.kv.costs import CostModel
from caesura.simulator.machine import Machine, StepShape
from caesura.simulator.policy import Policy
from caesura.simulator.results import RunResult
from caesura.simulator.session import Segment, Session, Workload

BASE = 0.01
PER_TOKEN = 0.001
KV_BYTES = 1000

STOCK = Policy("stock", "stock", host=False)
OFFLOAD = Policy("offload", "stock-offload")
PRESERVE = Policy("preserve", settings={"handling": "preserve"}, host=False)
SWAP = Policy("swap", settings={"handling": "swap"}, prefix_caching=False)
OURS = Policy("ours", settings={"handling": "caesura"})


@dataclass
class Linear:
    """Steps of 10 ms and 1 ms for each token; it remembers their shapes."""

    name: str = "linear"
    shapes: list[StepShape] = field(default_factory=list)

    def seconds(self, step: StepShape) -> float:
        self.shapes.append(step)
        return BASE + PER_TOKEN * step.tokens


def machine(
    *,
    blocks: int = 100,
    host_blocks: int = 1000,
    blocks_per_second: float = 1000,
    block_tokens: int = 16,
    **changes: Any,
) -> Machine:
    """A machine with so many blocks, there and on the host, and a link that carries so many."""
    block_bytes = block_tokens * KV_BYTES
    made = Machine(
        name="small",
        latency=Linear(),
        kv_tokens=blocks * block_tokens,
        kv_bytes=KV_BYTES,
        host_bytes=host_blocks * block_bytes,
        link_bytes=blocks_per_second * block_bytes,
        cost=CostModel(BASE, PER_TOKEN, PER_TOKEN, 0.0, 256),
        block_tokens=block_tokens,
    )
    return replace(made, **changes)


def session(
    key: str, *segments: tuple[Any, ...], arrival: float = 0.0, kind: str = "qa", **changes: Any
) -> Session:
    """A session of segments (given, decoded, tool's seconds); the last has no tool."""
    made = [
        Segment(given, decoded, kind if seconds else "", *seconds)
        for given, decoded, *seconds in segments
    ]
    calls = [replace(one, tool=one.tool and f"{kind}-{one.tool}") for one in made[:-1]]
    return Session(key, kind, arrival, (*calls, made[-1]), **changes)


def workload(*sessions: Session, clients: int = 0) -> Workload:
    return Workload("by hand", sessions, clients)


def plain(result: RunResult) -> dict[str, Any]:
    """All that two equal runs have in common."""
    data: dict[str, Any] = json.loads(json.dumps(asdict(result)))
    del data["wall_seconds"]
    return data


def first_computations(work: Workload) -> int:
    """Tokens that any engine computes once at least: all but the last of each session."""
    return sum(one.context_tokens - 1 for one in work.sessions)


def with_settings(policy: Policy, **settings: Any) -> Policy:
    given: Mapping[str, Any] = {**policy.settings, **settings}
    return replace(policy, settings=given)


SWAPPED = workload(
    session("one", (160, 2, 5.0), (5, 2)),
    session("two", (320, 20, 60.0), (5, 2), arrival=0.5),
    session("busy", (10, 150)),
)
"""While two run their tools, the third keeps the engine stepping, so that they can be copied."""


def crowd(seed: int, sessions: int = 24) -> Workload:
    """Sessions that come close together, of one to five segments, with short and long tools."""
    rng = random.Random(seed)
    made = []
    for index in range(sessions):
        segments = [
            (rng.randint(1, 120), rng.randint(1, 30), rng.choice((0.0001, 0.05, 2.0, 20.0)))
            for _ in range(rng.randint(0, 4))
        ]
        last = (rng.randint(1, 60), rng.randint(1, 30))
        arrival = rng.uniform(0, 5)
        kind = rng.choice(("qa", "image"))
        made.append(session(f"{index:02d}", *segments, last, arrival=arrival, kind=kind))
    return workload(*sorted(made, key=lambda one: one.arrival))


CROWD = workload(
    *(
        session(
            f"s{number}",
            (60 + 10 * number, 30, 0.5),
            (20, 25, 2.0 + number % 3),
            (10, 20),
            arrival=0.2 * number,
            kind="qa" if number % 2 else "chat",
        )
        for number in range(12)
    )
)
SMALL = {"blocks": 40, "host_blocks": 60}
