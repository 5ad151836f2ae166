"""Reclaiming the KV cache of paused requests, so that they never stand in anybody's way.

Before a step, the blocks that it will ask for are compared with those that are free, by asking
vLLM's KV cache manager the very questions that `schedule()` will ask it. What is missing is taken
from paused requests, most wasteful first (`caesura.intercept.reclaim`). Requests that have come
back from a pause and hold KV while they queue are spared as long as somebody is running, who will
free blocks in time; if nobody is, or a running request would otherwise be preempted, the last in
the queue give theirs. Without that, sessions that all come back at once wedge the engine: each
holds blocks, none can get the rest.
"""

import logging
from collections.abc import Iterator
from typing import Any

from vllm.utils.math_utils import cdiv
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request, RequestStatus

from caesura.intercept.pause import State
from caesura.intercept.reclaim import HeldKV, choose_victims

logger = logging.getLogger(__name__)


def relieve(scheduler: Any) -> None:
    """Reclaim what the running requests and those about to be admitted need in this step."""
    if scheduler.pause_state == PauseState.PAUSED_ALL:
        return
    free = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
    running = _running_blocks(scheduler, free)
    if running > free:
        free += _reclaim_paused(scheduler, running - free)
        if running > free:
            free += _reclaim_resuming(scheduler, running - free, spare=None)
    free -= running
    slots = scheduler.max_num_active_reqs - len(scheduler.running)
    budget = scheduler.max_num_scheduled_tokens - len(scheduler.running)
    for request in _ready(scheduler):
        if slots <= 0 or budget <= 0:
            return
        needed, computed = _admission_blocks(scheduler, request, free)
        if needed > free:
            free += _reclaim_paused(scheduler, needed - free)
        if needed > free and not scheduler.running:
            free += _reclaim_resuming(scheduler, needed - free, spare=request)
        if needed > free:
            return
        free -= needed
        slots -= 1
        budget -= request.num_tokens - computed


def unwedge(scheduler: Any, output: SchedulerOutput) -> None:
    """Make sure of progress: nothing runs, somebody is ready, so everything else gives way.

    `relieve` predicts what a step needs; this holds even where the prediction is wrong, as it may
    be for a cache layout that it has not met.
    """
    if output.total_num_scheduled_tokens or scheduler.running:
        return
    if scheduler.pause_state != PauseState.UNPAUSED:
        return
    head = next(_ready(scheduler), None)
    if head is None:
        return
    everything = scheduler.kv_cache_manager.block_pool.num_gpu_blocks
    freed = _reclaim_paused(scheduler, everything)
    freed += _reclaim_resuming(scheduler, everything, spare=head)
    if freed:
        logger.warning("nothing could be scheduled: reclaimed %d blocks of paused requests", freed)


def _ready(scheduler: Any) -> Iterator[Request]:
    """Waiting requests that could be admitted, in the order in which vLLM will try them."""
    for queue in (scheduler.kv_holding_waiting, scheduler.waiting):
        for request in tuple(queue):
            if request.status in (RequestStatus.WAITING, RequestStatus.PREEMPTED):
                yield request


def _running_blocks(scheduler: Any, free: int) -> int:
    """Blocks that the running requests ask for in this step; an upper bound where that fits."""
    block_size = scheduler.block_size
    groups = len(scheduler.kv_cache_config.kv_cache_groups)
    new_tokens = [_new_tokens(scheduler, request) for request in scheduler.running]
    bound = groups * sum(cdiv(tokens, block_size) + 1 for tokens in new_tokens)
    if bound <= free:
        return bound
    return sum(
        _blocks_to_allocate(scheduler, request, request.num_computed_tokens + tokens)
        for request, tokens in zip(scheduler.running, new_tokens, strict=True)
    )


def _new_tokens(scheduler: Any, request: Request) -> int:
    wanted = (
        request.num_tokens_with_spec + request.num_output_placeholders - request.num_computed_tokens
    )
    return max(0, min(wanted, scheduler.max_num_scheduled_tokens)) + scheduler.num_lookahead_tokens


def _admission_blocks(scheduler: Any, request: Request, free: int) -> tuple[int, int]:
    """Blocks that admitting the request takes, and its tokens that need no computation.

    The prefix cache is only asked where the whole request might not fit.
    """
    watermark = scheduler.kv_cache_manager.watermark_blocks if scheduler.running else 0
    computed = request.num_computed_tokens
    tokens = min(request.num_tokens + scheduler.num_lookahead_tokens, scheduler.max_model_len)
    if computed:
        return _blocks_to_allocate(scheduler, request, tokens) + watermark, computed
    groups = len(scheduler.kv_cache_config.kv_cache_groups)
    bound = groups * cdiv(tokens, scheduler.block_size) + watermark
    if bound <= free:
        return bound, 0
    blocks, computed, _ = scheduler.kv_cache_manager.get_computed_blocks(request)
    needed = _blocks_to_allocate(scheduler, request, tokens, blocks.blocks, computed)
    return needed + watermark, computed


def _blocks_to_allocate(
    scheduler: Any, request: Request, tokens: int, cached_blocks: Any = None, cached: int = 0
) -> int:
    manager = scheduler.kv_cache_manager
    tokens = min(tokens, scheduler.max_model_len)
    computed = request.num_computed_tokens + cached
    return int(
        manager.coordinator.get_num_blocks_to_allocate(
            request_id=request.request_id,
            num_tokens=tokens,
            new_computed_blocks=(
                manager.empty_kv_cache_blocks.blocks if cached_blocks is None else cached_blocks
            ),
            num_encoder_tokens=0,
            total_computed_tokens=computed,
            num_local_computed_tokens=computed,
            num_tokens_main_model=tokens,
            prefill_end=max(request.num_prompt_tokens, request.num_tokens - 1),
        )
    )


def _reclaim_paused(scheduler: Any, blocks: int) -> int:
    now = scheduler._clock()
    held = [
        HeldKV(
            pause.request_id,
            _own_blocks(scheduler, pause.request_id),
            pause.frontier_tokens,
            now - pause.paused_at,
        )
        for pause in scheduler._pauses.values()
        if pause.held and pause.state is State.PAUSED
    ]
    return _drop(scheduler, choose_victims(held, blocks))


def _reclaim_resuming(scheduler: Any, blocks: int, spare: Request | None) -> int:
    """Take KV from requests that came back and queue, the last in the queue first."""
    freed = 0
    for request in reversed(tuple(scheduler.kv_holding_waiting)):
        pause = scheduler._pauses.get(request.request_id)
        if freed >= blocks or request is spare:
            break
        if pause is not None and pause.held and pause.state is State.RESUMING:
            freed += _drop(scheduler, [request.request_id])
    return freed


def _drop(scheduler: Any, request_ids: list[str]) -> int:
    """Discard; return how many blocks that freed."""
    pool = scheduler.kv_cache_manager.block_pool
    before = pool.get_num_free_blocks()
    for request_id in request_ids:
        scheduler.drop_kv(request_id)
    return int(pool.get_num_free_blocks() - before)


def _own_blocks(scheduler: Any, request_id: str) -> int:
    """Blocks that nobody shares with the request, so that freeing it frees them."""
    groups = scheduler.kv_cache_manager.get_blocks(request_id).blocks
    return sum(block.ref_cnt == 1 and not block.is_null for group in groups for block in group)
