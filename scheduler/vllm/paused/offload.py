"""Requests for copies to the host, for swaps and for write-behind.

Swaps use the link's budget first, in the order of their decisions. The rest copies KV that stays
resident, so that a later eviction costs nothing (write-behind). Write-behind begins only when few
blocks are free.
"""

from collections.abc import Iterable, Mapping, Sequence

from caesura.intercept.kv.costs import COPY_TOKENS
from caesura.intercept.kv.step_budget import copy_order, writes_behind
from caesura.intercept.kv.views import Decision
from caesura.scheduler.vllm.engine_state import Block
from caesura.scheduler.vllm.paused.paused_kv import PausedBlocks, PausedKV, can_lose
from caesura.scheduler.vllm.paused.paused_kvs import PausedKVs
from caesura.scheduler.vllm.paused.views import PolicyViews
from caesura.scheduler.vllm.swap.host import Key
from caesura.scheduler.vllm.swap.planner import SwapPlanner


class Offload:
    """Chooses the blocks that the planner copies in the next step."""

    def __init__(
        self,
        planner: SwapPlanner,
        blocks: PausedBlocks,
        views: PolicyViews,
        write_behind_free_share: float,
    ) -> None:
        """Create it; write-behind begins below `write_behind_free_share` of free blocks."""
        self._free_share = write_behind_free_share
        self._planner = planner
        self._blocks = blocks
        self._views = views

    def swap(self, decisions: Sequence[Decision], paused_kvs: Mapping[str, PausedKV]) -> int:
        """Request the copies of decided swaps; return the rest of the budget, in blocks."""
        left = self._planner.budget
        for decision in decisions:
            kv = paused_kvs.get(decision.key)
            if decision.action == "swap" and left > 0 and kv is not None:
                left -= self._wish(kv, left)
        return left

    def behind(self, paused_kvs: PausedKVs, left: int, now: float) -> None:
        """Use the rest of the budget for copies that make a later eviction free."""
        step = self._views.step()
        if left <= 0 or not writes_behind(step, self._free_share):
            return
        views = self._views.paused(_uncopied(paused_kvs.to_copy(), self._views), now)
        for view in copy_order(views, step):
            if left <= 0:
                return
            left -= self._wish(paused_kvs[view.key], left)

    def probe(self, paused_kvs: PausedKVs) -> None:
        """Request one copy that is just large enough to measure the link."""
        most = -(-COPY_TOKENS // self._views.step().block_size)
        self._planner.budget = max(self._planner.budget, most)
        for kv in _uncopied(paused_kvs.to_copy(), self._views):
            if self._wish(kv, most):
                return

    def _wish(self, kv: PausedKV, most: int) -> int:
        """Request copies of up to `most` full blocks, and return their number.

        The last blocks go first, since they are released first.
        """
        if not can_lose(kv):
            return 0
        store, blocks = self._planner.store, self._blocks.of(kv)
        wanted: list[tuple[Block, Key]] = []
        for index in range(min(len(blocks), len(kv.keys)) - 1, -1, -1):
            if len(wanted) >= most:
                break
            if not store.known(kv.keys[index]):
                wanted.append((blocks[index], kv.keys[index]))
        self._planner.wish(wanted)
        kv.stale = True
        return len(wanted)


def _uncopied(paused_kvs: Iterable[PausedKV], views: PolicyViews) -> list[PausedKV]:
    found = []
    for kv in paused_kvs:
        if kv.stale:
            views.freshen(kv)
        if kv.uncopied and can_lose(kv):
            found.append(kv)
    return found
