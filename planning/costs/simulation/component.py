"""Models that are simulated together, request by request."""

from collections.abc import Callable, Sequence

import numpy as np

from caesura.planning.costs.simulation.cluster import Cluster, Pool
from caesura.planning.costs.simulation.outcome import Run
from caesura.planning.costs.simulation.work import Array, Indices, Work

Edges = tuple[Indices, Indices]
"""Who waits (the second) for whom (the first), both (m,)."""

Part = tuple[Indices, Array, Array]
"""The requests of a component (k,): numbers, seconds of arrival, tokens decoded before."""

Simulate = Callable[[Work, Sequence[Pool], Part, Edges], Run]
"""Returns the run of a component: its pools, its requests, and the needs among these."""


def run_component(work: Work, pools: Sequence[Pool], part: Part, edges: Edges) -> Run:
    """Return the run of a component, in jumps of many steps."""
    cluster = run_cluster(work, pools, part, edges)
    first: dict[int, float] = {}
    for pool in pools:
        for replica in pool.replicas:
            first |= replica.first
    return run_of(part, first, cluster.finished)


def run_cluster(work: Work, pools: Sequence[Pool], part: Part, edges: Edges) -> Cluster:
    """Return a cluster that has run; requests that have begun already go first."""
    numbers, arrivals, decoded = part
    by_model = {pool.model: pool for pool in pools}
    places = work.model_of[numbers].tolist()
    pool_of = {
        number: by_model[work.models[place]]
        for number, place in zip(numbers.tolist(), places, strict=True)
    }
    needs: dict[int, int] = {}
    needed_by: dict[int, list[int]] = {}
    for source, target in zip(*(each.tolist() for each in edges), strict=True):
        needs[target] = needs.get(target, 0) + 1
        needed_by.setdefault(source, []).append(target)
    there = dict(zip(numbers.tolist(), arrivals.tolist(), strict=True))
    for number in numbers[decoded > 0].tolist():
        there[number] = -1.0
    cluster = Cluster(pools, pool_of, there, needs, needed_by)
    cluster.run()
    return cluster


def run_of(part: Part, first: dict[int, float], ends: dict[int, float]) -> Run:
    """Return a run from the seconds of first tokens and ends; others never run."""
    numbers, _, decoded = part
    return Run(
        numbers,
        decoded,
        np.array([first.get(number, np.inf) for number in numbers.tolist()]),
        np.array([ends.get(number, np.inf) for number in numbers.tolist()]),
    )
