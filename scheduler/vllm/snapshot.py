"""The scheduler's state in numbers, and a check that no block has been lost."""

from typing import Any

from caesura.intercept.pause import State


def snapshot(scheduler: Any) -> dict[str, Any]:
    """Count requests by state and blocks by owner.

    `lost_blocks` are referenced by no request although the pool counts them as used; it is 0
    unless there is a bug or a KV connector holds blocks of finished requests.
    """
    manager = scheduler.kv_cache_manager
    pool = manager.block_pool
    pauses = scheduler._pauses.values()
    paused = {pause.request_id for pause in pauses}
    owned: dict[str, set[int]] = {"running": set(), "paused": set(), "waiting": set()}
    running = {request.request_id for request in scheduler.running}
    for request_id in scheduler.requests:
        owner = (
            "paused" if request_id in paused else "running" if request_id in running else "waiting"
        )
        for group in manager.get_blocks(request_id).blocks:
            owned[owner].update(block.block_id for block in group if not block.is_null)
    used = pool.num_gpu_blocks - 1 - pool.get_num_free_blocks()
    return {
        "running": len(running),
        "waiting": len(scheduler.requests) - len(running) - len(paused),
        "paused_held": sum(p.held for p in pauses if p.state is State.PAUSED),
        "paused_dropped": sum(not p.held for p in pauses if p.state is State.PAUSED),
        "resuming": sum(p.state is State.RESUMING for p in pauses),
        "closing": len(scheduler._closing),
        "watched": len(scheduler._watches),
        "blocks_total": pool.num_gpu_blocks - 1,
        "blocks_free": pool.get_num_free_blocks(),
        **{f"blocks_{owner}": len(blocks) for owner, blocks in owned.items()},
        "lost_blocks": used - len(set().union(*owned.values())),
    }
