"""What a step looks at does not grow with paused sessions, and its decisions are the same."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from caesura.scheduler.vllm.engine import compose
from caesura.scheduler.vllm.engine.kv.paused_kvs import PausedKVs
from caesura.scheduler.vllm.engine.port.v032 import EngineState032
from caesura.scheduler.vllm.engine.sessions.served import PausedKV
from caesura.simulator.engine import simulate
from caesura.simulator.engine.run import Member, Prepared, prepare
from caesura.simulator.policy import Policy
from caesura.simulator.session import Session

from .simulated import machine, plain, session, workload

FOREVER = 1e6


class Searched(PausedKVs):
    """Leaves all paused KV in every collection, so that each step searches all."""

    def _index(self, kv: PausedKV) -> None:
        pass


def crowd() -> tuple[Session, ...]:
    """Sessions that pause long beside others that need their memory."""
    return tuple(
        session(
            f"s{number}",
            (60 + number % 9 * 20, 10 + number % 7, 0.2 + number % 5 * 0.9),
            (25, 12 + number % 3, 0.4),
            (10, 9),
            arrival=0.11 * number,
        )
        for number in range(60)
    )


@pytest.mark.parametrize(
    ("handling", "host_blocks"),
    [("caesura", 0), ("caesura", 12), ("caesura", 400), ("infercept", 12), ("ttl", 12)],
)
def test_decisions_are_those_of_a_search_in_all_paused_sessions(
    handling: str, host_blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = Policy("ours", settings={"handling": handling, "pause_deadline": 2.0})
    small = machine(blocks=45, host_blocks=host_blocks, blocks_per_second=60)

    def run() -> dict[str, Any]:
        return plain(simulate(workload(*crowd()), small, policy, records=True))

    found = run()
    monkeypatch.setattr(compose, "PausedKVs", Searched)
    monkeypatch.setattr(EngineState032, "park", lambda port, request: None)
    assert found == run()


def paused(count: int, blocks: int, handling: str = "caesura", host: bool = True) -> Prepared:
    """Return an engine with so many paused sessions and one that decodes."""
    waiting = [session(f"w{n}", (40, 2, FOREVER), (5, 2)) for n in range(count)]
    last = session("last", (40, 400), arrival=FOREVER / 2)
    policy = Policy("ours", settings={"handling": handling}, host=host, most_running=8)
    room = machine(blocks=blocks, host_blocks=count * 4)
    ready = prepare(Member(workload(*waiting, last), room, policy), check=True)
    step_until(ready, lambda: "last" in ready.clients.live)
    for _ in range(4):
        ready.core.step_at(ready.core.now)
    return ready


def step_until(ready: Prepared, done: Callable[[], bool]) -> None:
    while not done():
        at = ready.core.next_at
        assert at is not None
        ready.core.step_at(at)


@pytest.mark.parametrize(
    ("blocks", "handling", "host", "holding"),
    [(400, "caesura", True, 60), (60, "caesura", True, 20), (60, "discard", False, 0)],
    ids=["kept", "swapped", "discarded"],
)
def test_paused_sessions_are_in_no_queue(
    blocks: int, handling: str, host: bool, holding: int
) -> None:
    """And those without blocks are not looked at when blocks are needed."""
    ready = paused(60, blocks, handling, host)
    parts: Any = ready.scheduler
    port, paused_kvs = parts.parts.port, parts.parts.manager.paused_kvs
    assert len(paused_kvs) == len(port.parked()) == 60
    assert not list(port.in_queue_order())
    assert len(paused_kvs.holding) <= holding
    assert port.levels() == (1, 0, 60)
    assert ready.scheduler.get_num_unfinished_requests() == 1


def test_a_session_returns_from_outside_of_the_queues() -> None:
    """Half of them with their KV, half after it was discarded."""
    returning = tuple(session(f"r{n}", (40, 2, 1.0 + n * 0.01), (5, 3)) for n in range(12))
    for blocks in (100, 20):
        run = simulate(
            workload(*returning),
            machine(blocks=blocks, host_blocks=0),
            replace(Policy("ours"), host=False),
            check=True,
        )
        assert all(one.ended for one in run.sessions)
