"""Replicas behind a router: what is exact, what moves, and who waits in one queue."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from math import ceil
from typing import Any

import pytest

from caesura.scheduler.policy.routing import rendezvous
from caesura.simulator.engine import simulate
from caesura.simulator.engine.replicas import simulate_replicas
from caesura.simulator.policy import Fleet, Policy
from caesura.simulator.results import RunResult
from caesura.simulator.session import Session, Workload
from caesura.simulator.workload.names import make_workload

from .simulated import OURS, STOCK, machine, plain, session, workload

MIXED = tuple(
    session(
        f"s{number}",
        (90 + number % 7 * 10, 12 + number % 5, 0.3 + number % 3),
        (30, 9, 0.2),
        (10, 8),
        arrival=0.07 * number,
    )
    for number in range(30)
)


def routed(
    router: str,
    sessions: Sequence[Session] | Workload = MIXED,
    policy: Policy = OURS,
    replicas: int = 3,
    epoch: float = 0.05,
    processes: int = 1,
    window: float | None = None,
    **sizes: Any,
) -> RunResult:
    work = sessions if isinstance(sessions, Workload) else workload(*sessions)
    behind = replace(policy, fleet=Fleet(replicas, router, epoch))
    return simulate_replicas(
        work,
        machine(**{"blocks": 60, **sizes}),
        behind,
        processes=processes,
        window=window,
        check=True,
    )


def rows(result: RunResult) -> list[dict[str, Any]]:
    return sorted((asdict(one) for one in result.sessions), key=lambda row: str(row["key"]))


@pytest.mark.parametrize("policy", [OURS, STOCK], ids=lambda policy: policy.name)
@pytest.mark.parametrize("router", ["hash", "affinity", "round-robin"])
def test_one_replica_serves_as_one_engine(router: str, policy: Policy) -> None:
    """Behind a router that asks again after each tool too, if tools take longer than an epoch."""
    alone = simulate(workload(*MIXED), machine(blocks=60), policy)
    together = routed(router, policy=policy, replicas=1)
    assert rows(together) == rows(alone)
    got, want = asdict(together.totals), asdict(alone.totals)
    exact = {"decode_tokens", "prefill_tokens", "recompute_tokens", "saved_blocks", "preemptions"}
    assert {name: got[name] for name in exact} == {name: want[name] for name in exact}
    assert got["busy_seconds"] == pytest.approx(want["busy_seconds"])


def test_a_router_by_hash_is_exact() -> None:
    """Every replica serves its sessions as it would alone."""
    parts: list[list[Session]] = [[], [], []]
    for one in MIXED:
        parts[max(range(3), key=lambda place: rendezvous(one.key, str(place)))].append(one)
    alone = [
        row for part in parts for row in rows(simulate(workload(*part), machine(blocks=60), OURS))
    ]
    assert rows(routed("hash")) == sorted(alone, key=lambda row: str(row["key"]))


@pytest.mark.parametrize("router", ["random", "round-robin"])
def test_calls_that_outlast_an_epoch_return_at_their_time(router: str) -> None:
    """So a router that does not look at loads is exact too: the epoch's length changes nothing."""
    assert rows(routed(router, epoch=0.01)) == rows(routed(router, epoch=0.15))


@pytest.mark.parametrize("router", ["affinity", "one-queue", "front", "data-parallel"])
def test_the_number_of_processes_changes_nothing(router: str) -> None:
    assert plain(routed(router)) == plain(routed(router, processes=2))


@pytest.mark.parametrize("policy", [OURS, STOCK], ids=lambda policy: policy.name)
def test_a_session_that_moves_is_computed_again(policy: Policy) -> None:
    """And it decodes what it would have decoded at one replica."""
    one = session("one", (100, 10, 1.0), (20, 5))
    pair = (one, session("two", (100, 10, 1.0), (20, 5), arrival=0.05))
    stayed = routed("affinity", pair, policy, replicas=2)
    # A third request comes to the first replica, so that each session returns to the other.
    third = session("third", (50, 5), arrival=0.5)
    moved = routed("round-robin", (*pair, third), policy, replicas=2)
    assert stayed.totals.recompute_tokens < 2 * 16 < 2 * 100 < moved.totals.recompute_tokens
    assert all(one.ended for one in (*stayed.sessions, *moved.sessions))
    assert [one.segment_tokens for one in moved.sessions[:2]] == [[10, 5], [10, 5]]


def test_affinity_returns_where_the_kv_is_and_least_does_not() -> None:
    near, far = routed("affinity", blocks=900), routed("least", blocks=900)
    assert sum(one.recomputed_tokens for one in near.sessions) == 0
    assert sum(one.recomputed_tokens for one in far.sessions) > 0


def test_sessions_with_a_prefix_go_where_it_is() -> None:
    """Eight prompts begin with the same 160 tokens, and are computed at one replica only."""
    shared = tuple(
        session(f"s{n}", (200, 4), arrival=1.0 * n, shared_name="system", shared_tokens=160)
        for n in range(8)
    )
    by_prefix, by_load = routed("prefix", shared), routed("round-robin", shared)
    assert [row["segments"] for row in by_prefix.replicas] == [8, 0, 0]
    saved = by_load.totals.prefill_tokens - by_prefix.totals.prefill_tokens
    assert saved == 2 * 160


def test_in_one_queue_nobody_is_behind_a_slow_request_while_a_replica_is_free() -> None:
    """Two long requests come first: by turns, each third request waits behind one of them."""
    slow = (session("slow", (60, 400)), session("also", (60, 2)))
    quick = tuple(session(f"q{n}", (60, 5), arrival=0.2 + 0.2 * n) for n in range(9))
    one_slot = replace(OURS, most_running=1)
    queue = routed("one-queue", (*slow, *quick), one_slot, replicas=2)
    turns = routed("round-robin", (*slow, *quick), one_slot, replicas=2)
    assert max(one.ttft for one in queue.sessions) < 0.5
    assert max(one.ttft for one in turns.sessions) > 2


def test_in_one_queue_the_first_to_come_is_the_first_to_run() -> None:
    many = tuple(session(f"q{n:02}", (60, 5 + n % 3), arrival=0.01 * n) for n in range(20))
    run = routed("one-queue", many, replace(OURS, most_running=2), replicas=2)
    begun = [one.segments[0][1] for one in run.sessions]
    in_epochs = [ceil(at / 0.2) for at in begun]
    assert in_epochs == sorted(in_epochs)


def test_a_run_that_is_cut_off_counts_the_sessions_that_wait() -> None:
    many = tuple(session(f"q{n:02}", (60, 50), arrival=0.01 * n) for n in range(20))
    run = routed("one-queue", many, replace(OURS, most_running=1), replicas=2, window=1.0)
    assert len(run.sessions) == 20
    assert sum(not one.ended for one in run.sessions) > 10


def test_rows_of_replicas_add_up() -> None:
    run = routed("least")
    assert len(run.replicas) == 3
    assert sum(row["decode_tokens"] for row in run.replicas) == run.totals.decode_tokens
    assert sum(run.timeline["decode_tokens"]) == run.totals.decode_tokens
    assert sum(row["segments"] for row in run.replicas) == 3 * len(MIXED)
    busy = [row["busy_seconds"] for row in run.replicas]
    assert run.totals.busy_seconds == pytest.approx(sum(busy) / 3)


def test_what_cannot_be_routed_is_told() -> None:
    parent = session("parent", (20, 3, 0.0), (5, 2))
    with pytest.raises(ValueError, match="sub-agents cannot be routed"):
        routed("hash", (parent, session("child", (5, 2), parent="parent")))
    with pytest.raises(ValueError, match="cannot be routed to replicas: give arrivals"):
        routed("hash", workload(*MIXED, clients=2))
    with pytest.raises(ValueError, match="unknown name 'nearest'; choose from: affinity"):
        routed("nearest")
    with pytest.raises(ValueError, match="has no fleet"):
        simulate_replicas(workload(*MIXED), machine(), OURS)


def test_a_published_mix_is_served_by_every_router() -> None:
    mix = make_workload("mix", 4, 5, 0, None)
    for router in ("affinity:slack=2", "prefix", "random", "front:slack=1", "data-parallel"):
        run = routed(router, mix, blocks=2000, host_blocks=2000)
        assert len(run.sessions) == len(mix.sessions)
        assert all(one.ended for one in run.sessions)
