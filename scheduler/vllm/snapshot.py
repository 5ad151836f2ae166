"""The scheduler's state in numbers, and a check that no block has been lost."""

from typing import Any

from caesura.intercept.pause import State


def snapshot(scheduler: Any) -> dict[str, Any]:
    """Count requests by state and blocks by owner.

    `lost_blocks` are referenced by nobody although the pool counts them as used; it is 0 unless
    there is a bug or somebody else's KV connector holds blocks of finished requests.
    """
    manager = scheduler.kv_cache_manager
    pool = manager.block_pool
    pauses = scheduler._pauses.values()
    owned = _blocks_by_owner(scheduler)
    running = len(scheduler.running)
    used = pool.num_gpu_blocks - 1 - pool.get_num_free_blocks()
    planner = scheduler._keeper.planner
    return {
        "running": running,
        "waiting": len(scheduler.requests) - running - len(pauses),
        "paused_held": sum(p.held for p in pauses if p.state is State.PAUSED),
        "paused_dropped": sum(not p.held for p in pauses if p.state is State.PAUSED),
        "resuming": sum(p.state is State.RESUMING for p in pauses),
        "retained": len(scheduler._keeper.holdings) - len(pauses),
        "closing": len(scheduler._closing),
        "watched": len(scheduler._watches),
        "handling": scheduler._keeper.handling.name,
        "blocks_total": pool.num_gpu_blocks - 1,
        "blocks_free": pool.get_num_free_blocks(),
        **{f"blocks_{owner}": len(blocks) for owner, blocks in owned.items()},
        "host_blocks": 0 if planner is None else planner.store.slots,
        "host_blocks_used": 0 if planner is None else planner.store.used,
        "lost_blocks": used - len(set().union(*owned.values())),
    }


def _blocks_by_owner(scheduler: Any) -> dict[str, set[int]]:
    manager = scheduler.kv_cache_manager
    owned: dict[str, set[int]] = {
        owner: set() for owner in ("running", "paused", "waiting", "copying", "fenced")
    }
    running = {request.request_id for request in scheduler.running}
    for request_id in scheduler.requests:
        owner = (
            "paused"
            if request_id in scheduler._pauses
            else "running"
            if request_id in running
            else "waiting"
        )
        for group in manager.get_blocks(request_id).blocks:
            owned[owner].update(block.block_id for block in group if not block.is_null)
    for holding in scheduler._keeper.holdings.values():
        owned["paused"].update(block.block_id for block in holding.detached or ())
    if scheduler._keeper.planner is not None:
        in_flight = scheduler._keeper.planner.blocks_in_flight()
        owned["copying"].update(block.block_id for block in in_flight)
    for _, blocks in scheduler.deferred_frees:
        owned["fenced"].update(block.block_id for block in blocks)
    return owned
