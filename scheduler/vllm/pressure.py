"""Reclaiming the KV cache of paused requests, so that they never stand in anybody's way.

Before a step, the blocks that it will ask for are compared with those that are free, by asking
vLLM's KV cache manager the very questions that `schedule()` will ask it. What is missing is taken
from paused requests, in the order that the handling gives. Running requests always win. To admit a
waiting one, a handling may protect what is worth more where it is, but not if nobody runs: then
the head of the queue is admitted by force. Requests that have come back from a pause and hold KV
while they queue are spared as long as somebody is running, who will free blocks in time, with one
exception: a request that is back and all but complete takes the few blocks that it lacks from the
last in the queue. Without these rules sessions that all come back at once form a convoy: each holds
blocks, none can get the rest.
"""

import logging
from collections.abc import Iterator
from typing import Any

from vllm.utils.math_utils import cdiv
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request, RequestStatus

from caesura.scheduler.vllm.holding import Holding

logger = logging.getLogger(__name__)

FEW_BLOCKS = 8
"""So many blocks at most a returning request takes from those behind it in the queue."""


def relieve(scheduler: Any) -> None:
    """Reclaim what the running requests and those about to be admitted need in this step."""
    if scheduler.pause_state == PauseState.PAUSED_ALL:
        return
    keeper = scheduler._keeper
    free = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
    running = _running_blocks(scheduler, free)
    if running > free:
        free += _reclaim(scheduler, running - free, True, _paused(keeper))
        if running > free:
            free += _reclaim_returned(scheduler, running - free, spare=None)
    free -= running
    slots = scheduler.max_num_active_reqs - len(scheduler.running)
    budget = scheduler.max_num_scheduled_tokens - len(scheduler.running)
    for request in _ready(scheduler):
        if slots <= 0 or budget <= 0:
            return
        needed, computed = _admission_blocks(scheduler, request, free)
        if needed > free:
            free = _make_room(scheduler, request, needed, free)
        if needed > free:
            return
        free -= needed
        slots -= 1
        budget -= request.num_tokens - computed


def _make_room(scheduler: Any, request: Request, needed: int, free: int) -> int:
    """Reclaim blocks to admit a waiting request; return how many are free then."""
    keeper = scheduler._keeper
    alone = not (scheduler.running or keeper.loading)
    among = [holding for holding in _paused(keeper) if holding.follow_up != request.request_id]
    free += _reclaim(scheduler, needed - free, alone, among)
    if needed <= free:
        return free
    few = request.request_id in keeper.holdings and needed - free <= FEW_BLOCKS
    if alone or few:
        free += _reclaim_returned(scheduler, needed - free, spare=request)
    return free


def unwedge(scheduler: Any, output: SchedulerOutput) -> None:
    """Make sure of progress: nothing runs, somebody is ready, so everything else gives way.

    `relieve` predicts what a step needs; this holds even where the prediction is wrong, as it may
    be for a cache layout that it has not met.
    """
    if output.total_num_scheduled_tokens or scheduler.running:
        return
    if scheduler.pause_state != PauseState.UNPAUSED:
        return
    if scheduler._keeper.loading:
        return
    if scheduler.defer_block_free and scheduler.sched_step_seq > scheduler.processed_step_seq:
        return  # blocks will be free when the steps in flight are over
    head = next(_ready(scheduler), None)
    if head is None:
        return
    keeper, now = scheduler._keeper, scheduler._clock()
    pool = scheduler.kv_cache_manager.block_pool
    before = pool.get_num_free_blocks()
    holdings = list(keeper.holdings.values())
    own = [one for one in holdings if head.request_id in (one.key, one.follow_up)]
    for holding in holdings:
        if holding not in own:
            keeper.drop(holding, now)
    freed = pool.get_num_free_blocks() - before
    # If that was no help, what it holds lies in the prefix cache twice, and it is given the other
    # copy; or somebody behind it has all that it needs, but vLLM stops at the first misfit.
    for holding in () if freed else own:
        keeper.drop(holding, now)
    if freed:
        logger.warning("nothing could be scheduled: reclaimed %d blocks of paused requests", freed)


def _reclaim(scheduler: Any, blocks: int, forced: bool, among: list[Holding]) -> int:
    """Have the handling choose; what nobody owns alone goes last, and only if it must."""
    keeper, now = scheduler._keeper, scheduler._clock()
    freed = keeper.reclaim(blocks, forced, now, among)
    if forced and freed < blocks:
        freed += keeper.reclaim_shared(blocks - freed, now, among)
    return _freed(scheduler, freed)


def _freed(scheduler: Any, expected: int) -> int:
    """Return how many blocks are free at once: none, while a step in flight may touch them."""
    return 0 if scheduler.defer_block_free else expected


def _paused(keeper: Any) -> list[Holding]:
    return [holding for holding in keeper.holdings.values() if not holding.returned]


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


def _reclaim_returned(scheduler: Any, blocks: int, spare: Request | None) -> int:
    """Take KV from requests that came back and queue, the last in the queue first.

    One by one from the back, and never from `spare` or from those before it.
    """
    keeper, now = scheduler._keeper, scheduler._clock()
    freed = 0
    queued = [*scheduler.kv_holding_waiting, *scheduler.waiting]
    for request in reversed(queued):
        if freed >= blocks or request is spare:
            break
        holding = keeper.holdings.get(request.request_id)
        if holding is not None and holding.returned:
            freed += keeper.release(holding, min(blocks - freed, holding.resident), now)
    return _freed(scheduler, freed)
