"""What admitting and running requests takes in the coming step: vLLM's own questions, asked early.

vLLM's KV cache manager is asked what `schedule()` will ask it, so that the answers are its own,
whatever the cache's layout.
"""

from typing import Any

from vllm.utils.math_utils import cdiv
from vllm.v1.request import Request


def running_needs(scheduler: Any, free: int) -> tuple[int, int]:
    """Return the blocks and the query tokens that the running requests ask for in this step.

    The blocks are an upper bound where that fits into the free ones.
    """
    block_size = scheduler.block_size
    groups = len(scheduler.kv_cache_config.kv_cache_groups)
    new_tokens = [_new_tokens(scheduler, request) for request in scheduler.running]
    tokens = sum(new_tokens)
    bound = groups * sum(cdiv(count, block_size) + 1 for count in new_tokens)
    if bound <= free:
        return bound, tokens
    blocks = sum(
        _blocks_to_allocate(scheduler, request, request.num_computed_tokens + count)
        for request, count in zip(scheduler.running, new_tokens, strict=True)
    )
    return blocks, tokens


def _new_tokens(scheduler: Any, request: Request) -> int:
    wanted = (
        request.num_tokens_with_spec + request.num_output_placeholders - request.num_computed_tokens
    )
    return max(0, min(wanted, scheduler.max_num_scheduled_tokens)) + scheduler.num_lookahead_tokens


def admission_needs(scheduler: Any, request: Request, free: int) -> tuple[int, int]:
    """Return the blocks that admitting the request takes, and its tokens that need no computation.

    The prefix cache is only asked where the whole request might not fit.
    """
    watermark = scheduler.kv_cache_manager.watermark_blocks if scheduler.running else 0
    computed = request.num_computed_tokens
    tokens = min(request.num_tokens + scheduler.num_lookahead_tokens, scheduler.max_model_len)
    if computed:
        return _blocks_to_allocate(scheduler, request, tokens) + watermark, computed
    groups = len(scheduler.kv_cache_config.kv_cache_groups)
    reserved = _reserved_blocks(scheduler)
    bound = groups * cdiv(tokens, scheduler.block_size) + watermark
    if bound + reserved <= free:
        return bound, 0
    blocks, computed, _ = scheduler.kv_cache_manager.get_computed_blocks(request)
    needed = _blocks_to_allocate(scheduler, request, tokens, blocks.blocks, computed)
    if reserved and _loads_over_steps(scheduler, request, computed):
        watermark += reserved
    return needed + watermark, computed


def _reserved_blocks(scheduler: Any) -> int:
    """Return the blocks that a load over steps must leave to those whose prefill is under way.

    vLLM admits no load, which is not preemptible, where somebody who was let in before it might
    then not be able to complete its prompt.
    """
    if not scheduler._inflight_prefills:
        return 0
    return int(scheduler._inflight_prefill_reserved_blocks() + scheduler._spec_decode_step_blocks)


def _loads_over_steps(scheduler: Any, request: Request, computed: int) -> bool:
    """Whether the request would wait for KV from the host, with its blocks given to it already."""
    keeper = scheduler._keeper
    if keeper.planner is None or not keeper.planner.works:
        return False
    keys = keeper.keys_of(request, (request.num_tokens - 1) // scheduler.block_size)
    return bool(keeper.planner.loads.takes_steps(keys, computed))


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
