"""Asking for copies to the host: for what is to be swapped, and behind what stays.

The link's budget goes to swaps in the order of their decisions; what is left of it copies KV that
stays where it is, so that a later eviction costs nothing (write-behind). Without any shortage in
sight nothing is copied.
"""

from collections.abc import Iterable, Mapping, Sequence

from caesura.intercept.kv.offload_order import copy_order
from caesura.intercept.kv.views import Decision
from caesura.scheduler.vllm.engine_state import Block
from caesura.scheduler.vllm.holding import Holding, Holdings, can_lose
from caesura.scheduler.vllm.sight import Sight
from caesura.scheduler.vllm.swap.host import Key
from caesura.scheduler.vllm.swap.planner import SwapPlanner

SHORTAGE = 0.4
"""Share of free blocks below which copies are made that may never be needed."""


class Copying:
    """Tells the planner what to copy in the coming step."""

    def __init__(self, planner: SwapPlanner, mechanics: Holdings, sight: Sight) -> None:
        self._planner = planner
        self._mechanics = mechanics
        self._sight = sight

    def swap(self, decisions: Sequence[Decision], holdings: Mapping[str, Holding]) -> int:
        """Ask for copies of what is to be swapped; return what is left of the budget."""
        left = self._planner.budget
        for decision in decisions:
            holding = holdings.get(decision.key)
            if decision.action == "swap" and left > 0 and holding is not None:
                left -= self._wish(holding, left)
        return left

    def behind(self, holdings: Mapping[str, Holding], left: int, now: float) -> None:
        """Use the rest of the budget for copies that make a later eviction free."""
        step = self._sight.step()
        if left <= 0 or not step.swap_pays or step.free_blocks >= SHORTAGE * step.total_blocks:
            return
        views = self._sight.paused(_uncopied(holdings.values(), self._sight), now)
        for view in copy_order(views, step):
            if left <= 0:
                return
            left -= self._wish(holdings[view.key], left)

    def _wish(self, holding: Holding, most: int) -> int:
        """Ask for copies of a holding's full blocks, from the back; return of how many.

        From the back, since blocks are released from there.
        """
        if not can_lose(holding):
            return 0
        store, blocks = self._planner.store, self._mechanics.blocks(holding)
        wanted: list[tuple[Block, Key]] = []
        for index in range(min(len(blocks), len(holding.keys)) - 1, -1, -1):
            if len(wanted) >= most:
                break
            if not store.known(holding.keys[index]):
                wanted.append((blocks[index], holding.keys[index]))
        self._planner.wish(wanted)
        holding.stale = True
        return len(wanted)


def _uncopied(holdings: Iterable[Holding], sight: Sight) -> list[Holding]:
    found = []
    for holding in holdings:
        if holding.stale:
            sight.freshen(holding)
        if holding.uncopied and can_lose(holding):
            found.append(holding)
    return found
