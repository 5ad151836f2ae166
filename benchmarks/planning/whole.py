"""Stages simulated by the scheduler that serves, to check the fast simulation with."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from caesura.planning.costs.cluster import Edges, Part, Pool, Replica, run_cluster, run_of
from caesura.planning.costs.work import Run, Work
from caesura.simulator.latency.calibrated import fitted
from caesura.simulator.machine import Machine
from caesura.simulator.policy import Policy
from caesura.simulator.session import Segment, Session, Workload
from caesura.simulator.study.work import simulate_workload

SERVED = "caesura"
STOCK = "stock"


def real_run(
    work: Work, pools: Sequence[Pool], part: Part, edges: Edges, engine: str = SERVED
) -> Run:
    """Return the run of a component by the scheduler that serves.

    It is a `Simulate` of `FastStages`. `engine` is `caesura`, or `stock` for vLLM's own scheduler.
    Each replica is simulated alone, with the requests that the fast simulation gives it, at its
    times. So requests that wait for others arrive as in the fast simulation. Models that share
    devices are simulated fast. It takes about a second per thousand requests.
    """
    cluster = run_cluster(work, pools, part, edges)
    first: dict[int, float] = {}
    ends: dict[int, float] = {}
    for pool in pools:
        for replica, requests in _by_replica(pool, part, edges).items():
            if pool.shares:
                first |= replica.first
                ends |= {number: cluster.finished[number] for number in requests}
            else:
                _simulate(work, pool, requests, engine, (first, ends))
    return run_of(part, first, ends)


def _by_replica(pool: Pool, part: Part, edges: Edges) -> dict[Replica, dict[int, float]]:
    """Return the requests of each replica with the seconds at which it gets them.

    A single replica gets them when they become ready: it serves them in the same order. So its
    times do not depend on those of the fast simulation.
    """
    alone = len(pool.replicas) == 1
    found: dict[Replica, dict[int, float]] = defaultdict(dict)
    waiting = set(edges[1].tolist())
    arrivals = dict(zip(part[0].tolist(), part[1].tolist(), strict=True))
    for number, (at, replica) in pool.sent.items():
        ready = max(arrivals[number], pool.ready)
        found[replica][number] = ready if alone and number not in waiting else at
    return found


def _simulate(
    work: Work,
    pool: Pool,
    requests: Mapping[int, float],
    engine: str,
    times: tuple[dict[int, float], dict[int, float]],
) -> None:
    """Add the seconds of first tokens and of ends to `times`."""
    sessions = tuple(
        Session(
            f"{number:09d}",  # the scheduler orders what arrives at once by name
            "plain",
            at,
            (Segment(work.prompt_list[number], work.output_list[number]),),
        )
        for number, at in sorted(requests.items(), key=lambda item: (item[1], item[0]))
    )
    policy = Policy(
        engine,
        "caesura" if engine == SERVED else "stock",
        settings={"ranking": "fcfs"} if engine == SERVED else {},
        chunk_tokens=pool.engine.chunk_tokens,
        prefix_caching=False,
        host=False,
        most_running=pool.engine.most_running,
    )
    result = simulate_workload(Workload(pool.model, sessions), _machine(pool), policy)
    first, ends = times
    for session in result.sessions:
        first[int(session.key)] = session.segments[0][1]
        ends[int(session.key)] = session.ended


def _machine(pool: Pool) -> Machine:
    engine = pool.engine
    cost, _ = fitted(engine.latency, pool.kv_tokens)
    return Machine(
        name=f"{pool.model}, as planned",
        latency=engine.latency,
        kv_tokens=pool.kv_tokens,
        kv_bytes=engine.kv_bytes,
        host_bytes=0,
        link_bytes=1.0,
        cost=cost,
        block_tokens=engine.block_tokens,
    )
