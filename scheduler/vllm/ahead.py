"""Loading KV ahead of a tool's return, into blocks that nobody needs: prefetch, an option.

What is on the host behind a holding's resident blocks is loaded when the tool is expected back
soon and the pool has room to spare. The loaded blocks join the resident ones and are found in the
prefix cache from then on. If the tool is back before, its request loads for itself as ever.
"""

from collections.abc import Iterable
from typing import Any

from caesura.scheduler.vllm.holding import Holding
from caesura.scheduler.vllm.sight import Sight
from caesura.scheduler.vllm.swap.planner import SwapPlanner

ROOM = 0.4
"""Share of free blocks that must be left: prefetching into scarce memory would only move it."""


class Prefetch:
    """Loads ahead for tools that are expected within `seconds`."""

    def __init__(self, scheduler: Any, planner: SwapPlanner, sight: Sight, seconds: float) -> None:
        self._pool = scheduler.kv_cache_manager.block_pool
        self._block_size = scheduler.block_size
        self._planner = planner
        self._sight = sight
        self._seconds = seconds
        self._under_way: set[str] = set()

    def load(self, holdings: Iterable[Holding], most: int, now: float) -> int:
        """Start loads of at most so many blocks; return how many are left."""
        if self._seconds <= 0 or not self._sight.findable:
            return most
        for holding in holdings:
            spare = self._pool.get_num_free_blocks() - ROOM * self._pool.num_gpu_blocks
            if min(most, spare) < 1:
                break
            if self._wanted(holding, now):
                most -= self._fetch(holding, min(most, int(spare)))
        return most

    def _wanted(self, holding: Holding, now: float) -> bool:
        if holding.detached is None or holding.returned or holding.key in self._under_way:
            return False
        return holding.remaining(now) <= self._seconds

    def _fetch(self, holding: Holding, most: int) -> int:
        assert holding.detached is not None
        first, store = len(holding.detached), self._planner.store
        keys = []
        for key in holding.keys[first : first + most]:
            if store.slot_of(key) is None:
                break
            keys.append(key)
        if not keys:
            return 0
        blocks = self._pool.get_new_blocks(len(keys))
        self._under_way.add(holding.key)
        self._planner.fetch(blocks, keys, lambda ok: self._done(holding, first, blocks, ok))
        return len(keys)

    def _done(self, holding: Holding, first: int, blocks: list[Any], loaded: bool) -> None:
        """Let the blocks join those that are resident, if these are still what they were."""
        self._under_way.discard(holding.key)
        kept = holding.detached
        if not loaded or not holding.keys or kept is None or len(kept) != first:
            self._pool.free_blocks(reversed(blocks))
            return
        kept += blocks
        self._pool.cache_full_blocks(
            request=holding.request,
            blocks=kept,
            num_cached_blocks=first,
            num_full_blocks=len(kept),
            block_size=self._block_size,
            kv_cache_group_id=0,
        )
        holding.stale = True
        self._sight.freshen(holding)
