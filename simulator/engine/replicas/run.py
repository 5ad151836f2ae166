"""Run a workload on many replicas behind a router, and make one result of their accounts."""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any

from caesura.scheduler.policy.names import make_router
from caesura.scheduler.policy.routing import Load
from caesura.simulator.engine.core import collecting_rarely
from caesura.simulator.engine.measure import SUMMED
from caesura.simulator.engine.plan import plan_for
from caesura.simulator.engine.replicas.front import Front
from caesura.simulator.engine.replicas.messages import Account
from caesura.simulator.engine.replicas.replica import Build
from caesura.simulator.engine.replicas.shards import sharded
from caesura.simulator.engine.run import describe, rate_of
from caesura.simulator.machine import Machine
from caesura.simulator.policy import Fleet, Policy
from caesura.simulator.results import TIMELINE, RunResult, Totals
from caesura.simulator.session import Session, Workload

STAYING_EPOCH_SECONDS = 5.0
"""The interval where a router neither looks at loads nor moves sessions, so that nothing depends
on it."""


def simulate_replicas(
    workload: Workload,
    machine: Machine,
    policy: Policy,
    *,
    processes: int = 1,
    window: float | None = None,
    progress: Callable[[float], None] | None = None,
    check: bool = False,
) -> RunResult:
    """Run a workload on the policy's fleet: replicas of a machine, each with its own scheduler.

    The replicas are spread over `processes` processes; with 1 they run in this one. The same
    arguments give the same result in any number of processes. After `window` simulated seconds the
    run is cut off; None: all sessions end. `check` checks the schedulers' invariants.

    Raises `ValueError` for a policy without a fleet, unknown settings, sessions that do not fit,
    sub-agents and closed loops. Raises `RuntimeError` for a scheduler that makes no progress, and
    `EngineFailed` if a process died.
    """
    began = time.perf_counter()
    fleet = _routed(workload, policy)
    plan = plan_for(workload, machine, policy)
    router = make_router(fleet.router)
    build = Build(sample_of(workload), plan, machine, policy, router.keeps, router.looks, check)
    still = router.keeps and not router.looks
    empty = Load(0, 0, policy.most_running, plan.blocks * plan.block_tokens)
    loads = [replace(empty, name=str(number)) for number in range(fleet.replicas)]
    seconds = STAYING_EPOCH_SECONDS if still else fleet.epoch_seconds
    front = Front(workload, router, loads, seconds)
    with sharded(build, fleet.replicas, processes) as shards, collecting_rarely():
        while not front.done and (window is None or front.begin < window):
            orders, end = front.epoch()
            end = end if window is None else min(end, window)
            front.learn(shards.run(orders, end), end)
            if progress is not None:
                progress(end)
        accounts = shards.close(front.begin)
    for account in accounts:
        front.results.update((one.place, one.result) for one in account.unfinished)
    front.results.update(front.unsent())
    settings = describe(workload, machine, policy, plan, window)
    return RunResult(
        policy=policy.name,
        workload=workload.name,
        machine=machine.name,
        rate=rate_of(workload),
        seed=workload.seed,
        sessions=[front.results[place] for place in sorted(front.results)],
        totals=totals_of(accounts),
        timeline=timeline_of(accounts),
        records=[],
        settings=settings,
        wall_seconds=time.perf_counter() - began,
        replicas=replicas_of(accounts),
        load_variation=front.spreading.variation,
    )


def _routed(workload: Workload, policy: Policy) -> Fleet:
    """Return the policy's fleet; raise `ValueError` for what cannot be routed."""
    if policy.fleet is None:
        raise ValueError(f"{policy.name} has no fleet: name its replicas and their router")
    if workload.clients:
        raise ValueError(
            f"{workload.name}: clients that send session after session cannot be routed to"
            " replicas: give arrivals at a --rate"
        )
    if any(session.parent for session in workload.sessions):
        raise ValueError(
            f"{workload.name}: sub-agents cannot be routed to replicas: choose another --workload"
        )
    if policy.free_link:
        raise ValueError(
            f"{policy.name}: a host without bounds cannot be shared by replicas: choose another"
            " --policy"
        )
    return policy.fleet


def sample_of(workload: Workload) -> Workload:
    """Return a part of a workload in which each kind of sessions calls all of its tools."""
    seen: set[tuple[str, str]] = set()
    chosen: list[Session] = []
    for session in workload.sessions:
        calls = {(session.kind, segment.tool) for segment in session.segments}
        if not calls <= seen:
            seen |= calls
            chosen.append(session)
    return replace(workload, sessions=tuple(chosen))


MEANS = ("seconds", "busy_seconds", "stall_seconds")
"""The sums of a run that are means over replicas; all others are sums over them."""


def totals_of(accounts: Sequence[Account]) -> Totals:
    """Return the totals of all replicas together."""
    sums = {
        field.name: sum(getattr(one.totals, field.name) for one in accounts)
        for field in fields(Totals)
    }
    return Totals(**{**sums, **{name: sums[name] / len(accounts) for name in MEANS}})


def replicas_of(accounts: Sequence[Account]) -> list[dict[str, Any]]:
    """Return a row for each replica: what it did in the run."""
    return [
        {
            "busy_seconds": one.totals.busy_seconds,
            "decode_tokens": one.totals.decode_tokens,
            "computed_tokens": one.totals.prefill_tokens + one.totals.recompute_tokens,
            "segments": one.segments,
            "steps": one.totals.steps,
        }
        for one in accounts
    ]


def timeline_of(accounts: Sequence[Account]) -> dict[str, list[float]]:
    """Return the timelines of all replicas as one, in the widest of their intervals."""
    widest = max(_interval(one.timeline["at"]) for one in accounts)
    rows: defaultdict[int, dict[str, float]] = defaultdict(lambda: dict.fromkeys(TIMELINE, 0.0))
    slots = sorted({_slot(at, widest) for one in accounts for at in one.timeline["at"]})
    for one in accounts:
        _add(rows, slots, one.timeline, widest)
    for slot in slots:
        rows[slot]["at"] = slot * widest
    return {name: [rows[slot][name] for slot in slots] for name in TIMELINE}


def _add(
    rows: dict[int, dict[str, float]],
    slots: Sequence[int],
    timeline: dict[str, list[float]],
    width: float,
) -> None:
    """Add a timeline: its sums to their slots, and its levels to all slots until they change."""
    levels = [name for name in TIMELINE if name not in SUMMED and name != "at"]
    latest: dict[int, int] = {}
    for place, at in enumerate(timeline["at"]):
        slot = _slot(at, width)
        latest[slot] = place
        for name in SUMMED:
            rows[slot][name] += timeline[name][place]
    present = None
    for slot in slots:
        present = latest.get(slot, present)
        if present is not None:
            for name in levels:
                rows[slot][name] += timeline[name][present]


def _slot(at: float, width: float) -> int:
    return -int(-at // width)


def _interval(times: Sequence[float]) -> float:
    """Return the interval of a timeline, from which its rows may be further apart."""
    gaps = (after - before for before, after in pairwise(times[:-1]))
    return max(0.25, min(gaps, default=0.25))
