"""Lanes as somebody who reads the records has them, against what the scheduler knows itself."""

from dataclasses import dataclass, field, fields
from typing import Any

from vllm.v1.request import RequestStatus

from caesura.intercept.kv.states import State
from caesura.scheduler.records import LanesRecord
from caesura.scheduler.vllm.engine.export.request_states import PAUSED
from caesura.scheduler.vllm.engine.sessions.served import PausedKV

from .world import World

COLUMNS = tuple(each.name for each in fields(LanesRecord))
PREFILL = {"prefill", "recompute"}


@dataclass
class Row:
    request: str
    state: str
    at: float
    blocks: int
    host: int
    tokens: int


@dataclass
class Replay:
    """Records, read one after the other, as a page does; what is kept is where everybody stands."""

    last: dict[str, Row] = field(default_factory=dict)
    open: set[tuple[str, float]] = field(default_factory=set)
    """Pauses that have an opening and no end, by request and time."""
    at: float = 0.0
    read: int = 0

    def take(self, records: list[dict[str, Any]]) -> None:
        for record in records:
            if record["kind"] == "lanes":
                for row in rows_of(record):
                    self._row(row)
            elif record["kind"] == "opening":
                pause = (record["request"], record["at"])
                assert pause not in self.open
                self.open.add(pause)
            elif record["kind"] == "pause":
                self.open.remove((record["request"], record["at"]))
            elif record["kind"] == "wait":
                check_wait(record)

    def _row(self, row: Row) -> None:
        assert row.at >= self.at, "rows are in the order of time"
        self.at = row.at
        before = self.last.get(row.request)
        assert before is not None or row.state == "waiting", "everybody queues first"
        assert before is None or before.state != "ended", "nothing follows the end"
        self.last[row.request] = row

    def alive(self) -> dict[str, Row]:
        return {name: row for name, row in self.last.items() if row.state != "ended"}


def rows_of(record: dict[str, Any]) -> list[Row]:
    return [Row(*values) for values in zip(*(record[name] for name in COLUMNS), strict=True)]


def states(records: list[dict[str, Any]], request_id: str) -> list[str]:
    """The states of a request in their order, without those where only blocks have changed."""
    lanes = (record for record in records if record["kind"] == "lanes")
    rows = [row.state for one in lanes for row in rows_of(one) if row.request == request_id]
    return [state for i, state in enumerate(rows) if not i or rows[i - 1] != state]


def check_wait(record: dict[str, Any]) -> None:
    assert record["until"] >= record["since"]
    assert record["steps"] >= 2
    assert all(steps > 0 for steps in record["lacked"].values())
    assert set(record["lacked"]) <= {"blocks", "slots", "tokens", "admission", "line"}
    assert sum(record["lacked"].values()) <= record["steps"]
    assert ("blocks" in record["lacked"]) <= (record["needed_blocks"] is not None)
    assert record["overtaken"] >= 0
    assert record["after"] in ("fresh", "tool", "preempted")


def replay(world: World) -> Replay:
    """Read what has left since the last time; what is still to leave is read beside it."""
    known = world.__dict__.setdefault("replayed", Replay())
    known.take(world.records[known.read :])
    known.read = len(world.records)
    seen = Replay(dict(known.last), set(known.open), known.at)
    seen.take(world.scheduler.connector.outbox)
    lanes = world.scheduler.parts.recorder.states
    if lanes is not None and lanes._rows:
        columns = zip(*lanes._rows, strict=True)
        seen.take([{"kind": "lanes", **dict(zip(COLUMNS, columns, strict=True))}])
    return seen


def check_lanes(world: World) -> None:
    """Every request, and every one whose KV is kept for a follow-up, is in the state it is in."""
    scheduler = world.scheduler
    seen, manager = replay(world), scheduler.parts.manager
    paused_kvs = list(manager.paused_kvs.values())
    assert seen.open == {(one.key, one.opening.record.at) for one in paused_kvs}
    requests = {r.request_id for r in scheduler.requests.values() if not r.is_finished()}
    kept = {one.key for one in paused_kvs if one.pause is None and one.follow_up is None}
    alive = seen.alive()
    assert set(alive) == requests | kept
    for row in alive.values():
        check_lane(world, row)


def check_lane(world: World, row: Row) -> None:
    scheduler = world.scheduler
    request = scheduler.requests.get(row.request)
    kv = scheduler.parts.manager.paused_kvs.get(row.request)
    paused = scheduler.parts.served.paused.get(row.request)
    pause = paused.pause if paused is not None else None
    if request is None or (pause is not None and pause.state is State.PAUSED):
        assert row.blocks == kv.resident, row
        if settled(scheduler, kv):
            assert (row.state, row.host) == whereabouts(scheduler, kv), row
        return
    assert row.state not in PAUSED, row
    if request.status == RequestStatus.RUNNING:
        did = world.did[row.request]
        another = scheduler.parts.sessions[row.request].session_id != row.request
        if did in PREFILL and (world.depth or world.link.failures or another):
            assert row.state in PREFILL, (row, did)
        elif not world.link.failures:
            assert row.state == did, row
        return
    planner = scheduler.parts.manager.planner
    under_way = planner is not None and row.request in planner.loads._loading
    assert row.state in ("waiting", "loading"), row
    if request.status != RequestStatus.WAITING_FOR_REMOTE_KVS:
        assert row.state == "waiting", row
    if under_way:
        assert row.state == "loading", row


def settled(scheduler: Any, kv: PausedKV) -> bool:
    """Whether it is known of every block where it is; what others share with it is not."""
    manager = scheduler.parts.manager
    planner = manager.planner
    if planner is None:
        return True
    mine = all(manager._owner.get(key) is kv for key in kv.keys)
    return mine and not {*planner._settled, *planner.loads.distrusted} & set(kv.keys)


def whereabouts(scheduler: Any, kv: PausedKV) -> tuple[str, int]:
    """Look up where the KV is, block by block: the state, and the blocks that are only hosted."""
    manager = scheduler.parts.manager
    present, hosted = len(manager.paused_kvs.blocks.of(kv)), 0
    for key in kv.keys[present:]:
        if manager.planner is None or manager.planner.store.slot_of(key) is None:
            break
        hosted += 1
    if kv.whole is not None and present + hosted < len(kv.keys):
        hosted = 0  # the others are of no use
    if present + hosted < len(kv.keys) or not present + hosted:
        return "dropped", hosted
    return ("offloaded", hosted) if hosted else ("paused", 0)
