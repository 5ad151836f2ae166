"""What must hold at every step, and what to say when a scheduler stands still."""

from typing import Any

from caesura.scheduler.vllm.snapshot import snapshot


def stuck(scheduler: Any, now: float) -> RuntimeError:
    """Say that a scheduler makes no progress, and in what state it is."""
    return RuntimeError(
        f"the scheduler makes no progress at second {now:.3f}: {state_of(scheduler)}"
    )


def state_of(scheduler: Any) -> dict[str, Any]:
    """Return the state of a scheduler in numbers, ours or vLLM's own."""
    if hasattr(scheduler, "_keeper"):
        return snapshot(scheduler)
    pool = scheduler.kv_cache_manager.block_pool
    free = pool.get_num_free_blocks()
    owned: set[int] = set()
    for request_id in scheduler.requests:
        for group in scheduler.kv_cache_manager.get_blocks(request_id).blocks:
            owned.update(block.block_id for block in group)
    return {
        "running": len(scheduler.running),
        "waiting": len(scheduler.waiting) + len(scheduler.kv_holding_waiting),
        "blocks_total": pool.num_gpu_blocks - 1,
        "blocks_free": free,
        "lost_blocks": pool.num_gpu_blocks - 1 - free - len(owned),
    }


def check_invariants(scheduler: Any) -> None:
    """Raise `RuntimeError` if a block belongs to nobody, or a request stands in no queue or two."""
    state = state_of(scheduler)
    if state["lost_blocks"]:
        raise RuntimeError(f"blocks belong to nobody: {state}")
    queues = [*scheduler.waiting, *scheduler.kv_holding_waiting, *scheduler.running]
    queued = sorted(request.request_id for request in queues)
    alive = sorted(r.request_id for r in scheduler.requests.values() if not r.is_finished())
    if queued != alive:
        raise RuntimeError(f"a request is not in exactly one queue: {queued} and {alive}")
