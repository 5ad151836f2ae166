"""What holds after every step, whatever clients, handlings and the link have done, and at rest."""

from collections import Counter
from typing import Any

from vllm.v1.core.sched.interface import PauseState
from vllm.v1.request import RequestStatus

from caesura.intercept.kv.states import State
from caesura.scheduler.vllm.engine.export.writer import RecordWriter
from caesura.scheduler.vllm.engine.sessions.served import Stage
from tests.scheduler.world import World

from .lanes import check_lanes, replay

WAITS_FOR_TOOL = (RequestStatus.WAITING_FOR_STREAMING_REQ,)
QUEUES = (RequestStatus.WAITING, RequestStatus.PREEMPTED, RequestStatus.WAITING_FOR_REMOTE_KVS)


def check_all(world: World) -> None:
    """Everything that must hold between two steps."""
    world.check()
    check_states(world.scheduler)
    check_stages(world.scheduler)
    check_collections(world.scheduler)
    check_parked(world.scheduler)
    check_blocks(world.scheduler)
    if world.scheduler.parts.manager.planner is not None:
        check_store(world.scheduler)
        check_copies(world.scheduler)
        check_orders(world.last)
    if scheduler_records(world.scheduler):
        check_lanes(world)


def scheduler_records(scheduler: Any) -> bool:
    return isinstance(scheduler.parts.recorder, RecordWriter)


def check_states(scheduler: Any) -> None:
    """A request is in one state, and its pause, its holding and its queue agree on which."""
    running = {request.request_id for request in scheduler.running}
    paused_kvs = scheduler.parts.manager.paused_kvs
    pauses = {name: one.pause for name, one in scheduler.parts.served.paused.items()}
    assert set(pauses) == {one.key for one in paused_kvs.values() if one.pause is not None}
    for request_id, pause in pauses.items():
        request = scheduler.requests[request_id]
        assert request_id not in running
        assert paused_kvs[request_id].request is request
        assert paused_kvs[request_id].pause is pause
        assert pause.state in (State.PAUSED, State.RESUMING)
        assert request.status in (WAITS_FOR_TOOL if pause.state is State.PAUSED else QUEUES)
        assert (paused_kvs[request_id].detached is None) == pause.held
    for request in scheduler.waiting:
        assert not _blocks_of(scheduler, request.request_id), "it queues among those without KV"


def check_stages(scheduler: Any) -> None:
    """Every request has a record, whose session stands where vLLM has the request."""
    served = scheduler.parts.served
    running = {request.request_id for request in scheduler.running}
    alive = {name: one for name, one in scheduler.requests.items() if not one.is_finished()}
    assert set(served) == set(alive)
    for name, request in alive.items():
        waits = Stage.PAUSED if request.status in WAITS_FOR_TOOL else Stage.QUEUED
        assert served[name].session.stage is (Stage.RUNNING if name in running else waits)
        assert served[name].request is request
    assert set(served.following) == {name for name, one in served.items() if one.follows}
    assert set(served.slot_keepers) <= set(served.paused)


def check_collections(scheduler: Any) -> None:
    """What is kept of all paused KV, so that no step searches it, is what a search would find."""
    paused_kvs = scheduler.parts.manager.paused_kvs
    every = list(paused_kvs.values())
    blocks = scheduler.parts.manager.paused_kvs.blocks
    counts = paused_kvs.counts
    assert counts.requests == len(every)
    assert counts.resident == sum(kv.resident for kv in every)
    assert counts.partial == sum(kv.partial for kv in every)
    assert set(paused_kvs.returned) == {kv.key for kv in every if kv.returned}
    assert set(paused_kvs.retained) == {kv.key for kv in every if kv.pause is None}
    holding = {kv.key for kv in every if blocks.of(kv)}
    assert holding <= set(paused_kvs.holding) <= {kv.key for kv in every}
    places = [kv.number for kv in paused_kvs.holding.values()]
    assert places == sorted(places)
    to_copy = [kv.key for kv in paused_kvs.to_copy()]
    assert {kv.key for kv in every if kv.uncopied} <= set(to_copy)
    assert to_copy == [kv.key for kv in every if kv.key in set(to_copy)]


def check_parked(scheduler: Any) -> None:
    """Every paused request is in one queue, or parked beside them all."""
    port = scheduler.parts.port
    parked = [request.request_id for request in port.parked()]
    queued = [request.request_id for request in port.in_queue_order()]
    assert not set(parked) & set(queued)
    assert all(scheduler.requests[one].status in WAITS_FOR_TOOL for one in parked)
    running = [request.request_id for request in scheduler.running]
    alive = {name for name, one in scheduler.requests.items() if not one.is_finished()}
    assert alive == set(parked) | set(queued) | set(running)
    ready = len(queued) - sum(scheduler.requests[one].status in WAITS_FOR_TOOL for one in queued)
    if scheduler.pause_state == PauseState.UNPAUSED:
        assert scheduler.get_num_unfinished_requests() == ready + len(running)


def check_blocks(scheduler: Any) -> None:
    """Every reference to a block is somebody's, and what is referenced is not free."""
    pool = scheduler.kv_cache_manager.block_pool
    references: Counter[int] = Counter()
    for request_id in scheduler.requests:
        references.update(_blocks_of(scheduler, request_id))
    paused_kvs = scheduler.parts.manager.paused_kvs
    for kv in paused_kvs.values():
        references.update(block.block_id for block in paused_kvs.blocks.apart(kv))
    for _, blocks in scheduler.deferred_frees:
        references.update(block.block_id for block in blocks)
    if scheduler.parts.manager.planner is not None:
        in_flight = scheduler.parts.manager.planner.blocks_in_flight()
        references.update(block.block_id for block in in_flight)
    free = [block.block_id for block in pool.free_block_queue.get_all_free_blocks()]
    assert len(free) == len(set(free)) == pool.get_num_free_blocks()
    for block in pool.blocks:
        if not block.is_null:
            assert block.ref_cnt == references[block.block_id], block
            assert (block.block_id in free) == (not block.ref_cnt), block


def check_store(scheduler: Any) -> None:
    """Every slot is free, pending or confirmed, and wanted by as many as may come for it."""
    manager = scheduler.parts.manager
    store, loads = manager.planner.store, manager.planner.loads
    slots = [*store._free, *store._pending.values(), *store._slot_of.values()]
    assert sorted(slots) == list(range(store.slots))
    assert not store._pending.keys() & store._slot_of.keys()
    assert set(store._reusable) == store._slot_of.keys() - store._wanted.keys()
    wanted: Counter[Any] = Counter()
    for kv in manager.paused_kvs.values():
        wanted.update(kv.keys)
    for loading in loads._loading.values():
        wanted.update(loading.keys)
    for joined in [loads._in_step, *loads._in_flight]:
        for keys, _ in joined:
            wanted.update(keys)
    assert store._wanted == wanted


def check_copies(scheduler: Any) -> None:
    """Nobody else has a block that a load is written to, and none that is copied is free."""
    planner = scheduler.parts.manager.planner
    pool = scheduler.kv_cache_manager.block_pool
    assert all(block.ref_cnt > 0 for block in planner.blocks_in_flight())
    saving = {block.block_id for block in planner.blocks_in_flight()}
    for request_id, loading in planner.loads._loading.items():
        if loading.called_off and loading.sent == 0:
            continue
        blocks = _blocks_of(scheduler, request_id)
        assert set(loading.blocks) <= set(blocks), request_id
        assert saving.isdisjoint(loading.blocks)
        assert all(pool.blocks[block].ref_cnt == 1 for block in loading.blocks)
    for keys, slots in ((s.keys, planner.store._pending) for s in planner._saving.values()):
        assert all(key in slots for key in keys)


def check_orders(output: Any) -> None:
    """A step copies no more than its budget, in both directions together; see `held_to`."""
    orders = getattr(output, "kv_connector_metadata", None)
    if orders is None:
        return
    for order in [*orders.loads, *orders.saves]:
        assert len(order.blocks) == len(order.slots)
    written = [slot for save in orders.saves for slot in save.slots]
    assert len(written) == len(set(written))


def held_to_budget(world: World) -> None:
    """Orders within the budget, but for one block if somebody waits for it; tokens likewise."""
    output, scheduler = world.last, world.scheduler
    assert output.total_num_scheduled_tokens <= scheduler.max_num_scheduled_tokens
    orders, planner = output.kv_connector_metadata, scheduler.parts.manager.planner
    if orders is None or planner is None:
        return
    copied = sum(len(order.blocks) for order in [*orders.loads, *orders.saves])
    assert copied <= max(1, planner.traffic.budget)
    assert planner.traffic.saved == sum(len(save.blocks) for save in orders.saves)
    assert planner.traffic.loaded == sum(len(load.blocks) for load in orders.loads)


def check_rest(world: World) -> None:
    """Everybody has gone: nothing is held, wanted or under way any more."""
    scheduler = world.scheduler
    check_all(world)
    pool = scheduler.kv_cache_manager.block_pool
    assert scheduler.requests == {}
    assert pool.get_num_free_blocks() == pool.num_gpu_blocks - 1
    assert not scheduler.parts.served
    assert not scheduler.parts.served.paused
    assert not scheduler.parts.manager.paused_kvs
    assert scheduler.num_waiting_for_streaming_input == 0
    planner = scheduler.parts.manager.planner
    if planner is not None:
        assert not planner.busy
        assert not planner.store._wanted
        assert not planner.store._pending
        assert not planner.loads._matched and not planner.loads._loaded
    if scheduler_records(scheduler):
        assert not replay(world).alive()
        assert not len(scheduler.parts.recorder.states)
        check_blocks_told(world)


def check_blocks_told(world: World) -> None:
    """The last that the records tell of the blocks by owner is how things are at rest."""
    told = [record for record in world.records if record["kind"] in ("steps", "rest")]
    if told:
        names = ("running_blocks", "paused_blocks", "free_blocks")
        values = [told[-1][name] for name in names]
        last = values if told[-1]["kind"] == "rest" else [column[-1] for column in values]
        pool = world.scheduler.kv_cache_manager.block_pool
        assert last == [0, 0, pool.num_gpu_blocks - 1]


def said_as_planned(world: World) -> None:
    """Those that were not aborted have got every token that they planned, and no other."""
    for session in world.sessions.values():
        if session.request_id not in world.aborted:
            decoded = [token for part in session.parts[::2] for token in part]
            assert session.delivered == decoded, session.request_id


def _blocks_of(scheduler: Any, request_id: str) -> list[int]:
    groups = scheduler.kv_cache_manager.get_blocks(request_id).blocks
    return [block.block_id for group in groups for block in group if not block.is_null]


def leaves_nothing(world: World) -> None:
    for _ in range(world.depth + 3):
        world.step()
    world.drain()
    scheduler = world.scheduler
    pool = scheduler.kv_cache_manager.block_pool
    assert scheduler.requests == {}
    assert pool.get_num_free_blocks() == pool.num_gpu_blocks - 1
    assert scheduler.num_waiting_for_streaming_input == 0
