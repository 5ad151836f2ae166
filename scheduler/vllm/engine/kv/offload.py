"""Copies of paused KV to the host, for swaps and for write-behind, and the link's bandwidth.

Swaps use the link's budget first, in the order of their decisions. The rest copies KV that stays
resident, so that a later eviction costs nothing (write-behind). Write-behind begins only when few
blocks are free. The bandwidth is learned from copies, and decides if swapping pays.
"""

import logging
from collections.abc import Sequence

from caesura.intercept.kv.costs import COPY_TOKENS, CostTracker
from caesura.intercept.kv.step_budget import copy_order, writes_behind
from caesura.intercept.kv.views import Decision
from caesura.scheduler.vllm.engine.kv.paused_kvs import PausedKVs, can_lose
from caesura.scheduler.vllm.engine.kv.views import PolicyViews
from caesura.scheduler.vllm.engine.port import Block, EngineState
from caesura.scheduler.vllm.engine.sessions.paused_kv import PausedKV
from caesura.scheduler.vllm.engine.swap.host import Key
from caesura.scheduler.vllm.engine.swap.planner import SwapPlanner

logger = logging.getLogger(__name__)


PROBE_SECONDS = 5.0
"""Interval between the copies that measure a link over which nothing is swapped."""


ALONE = 4.0
"""How much faster the link must be for a request that is alone: by default, as recomputation."""


class Offload:
    """Chooses the blocks that the planner copies in the next step."""

    def __init__(
        self,
        planner: SwapPlanner,
        paused_kvs: PausedKVs,
        views: PolicyViews,
        write_behind_free_share: float,
    ) -> None:
        """Create it; write-behind begins below `write_behind_free_share` of free blocks."""
        self._free_share = write_behind_free_share
        self._planner = planner
        self._paused_kvs = paused_kvs
        self._views = views

    def swap(self, decisions: Sequence[Decision]) -> int:
        """Request the copies of decided swaps; return the rest of the budget, in blocks."""
        left = self._planner.budget
        for decision in decisions:
            kv = self._paused_kvs.get(decision.key)
            if decision.action == "swap" and left > 0 and kv is not None:
                left -= self._wish(kv, left)
        return left

    def behind(self, left: int, now: float) -> None:
        """Use the rest of the budget for copies that make a later eviction free."""
        step = self._views.step()
        if left <= 0 or not writes_behind(step, self._free_share):
            return
        views = self._views.paused(self._uncopied(), now)
        for view in copy_order(views, step):
            if left <= 0:
                return
            left -= self._wish(self._paused_kvs[view.key], left)

    def probe(self) -> None:
        """Request one copy that is just large enough to measure the link."""
        most = -(-COPY_TOKENS // self._views.step().block_size)
        self._planner.budget = max(self._planner.budget, most)
        for kv in self._uncopied():
            if self._wish(kv, most):
                return

    def _uncopied(self) -> list[PausedKV]:
        """Return the KV that may lose blocks of which some lack a copy."""
        found = []
        for kv in self._paused_kvs.to_copy():
            self._paused_kvs.freshen(kv)
            if kv.uncopied and can_lose(kv):
                found.append(kv)
        return found

    def _wish(self, kv: PausedKV, most: int) -> int:
        """Request copies of up to `most` full blocks, and return their number.

        The last blocks go first, since they are released first.
        """
        if not can_lose(kv):
            return 0
        store, blocks = self._planner.store, self._paused_kvs.blocks.of(kv)
        wanted: list[tuple[Block, Key]] = []
        for index in range(min(len(blocks), len(kv.keys)) - 1, -1, -1):
            if len(wanted) >= most:
                break
            if not store.known(kv.keys[index]):
                wanted.append((blocks[index], kv.keys[index]))
        self._planner.wish(wanted)
        self._paused_kvs.outdate(kv)
        return len(wanted)


class LinkBandwidth:
    """Corrects the cost model's link rates with the copies that workers measured.

    A load over a link that is slower than recomputation spares the engine's time, at the price of
    the request's own. That pays while other requests need the engine. A request that is alone
    recomputes, although the host has its KV.

    Where swapping does not pay, no KV is loaded, and no KV is copied but for probes. Without them,
    a link that others have slowed for a while would never be used again.
    """

    def __init__(
        self, planner: SwapPlanner, costs: CostTracker, port: EngineState, min_link_share: float
    ) -> None:
        """Create it; swapping pays from `min_link_share` of the rate of recomputation.

        For a request that is alone, loads pay from `ALONE` times that share.
        """
        self._planner = planner
        self._costs = costs
        self._port = port
        self._min_share = min_link_share
        self._measured = 0
        self._paid = True
        self._probe_at = 0.0

    def learn(self) -> None:
        """Correct the rates, decide on loads, and log each change of whether swapping pays."""
        planner, costs = self._planner, self._costs
        while self._measured < planner.copies_measured:
            way = planner.copied[self._measured - planner.copies_measured]
            costs.observe_copy(way.direction, way.tokens, way.seconds)
            if not self._paid and way.direction == "out":
                # Probes go one way only. The link is shared, so they stand for both.
                costs.observe_copy("in", way.tokens, way.seconds)
            self._measured += 1
        pays = costs.model.link_pays(self._min_share)
        planner.pays = pays and (
            costs.model.link_pays(ALONE * self._min_share) or not self._alone()
        )
        if self._measured and pays != self._paid:
            self._paid = pays
            if not pays:
                costs.doubt_link()
            logger.warning(
                "swapping %s: KV comes from the host at %.0f tokens/s and is recomputed at %.0f",
                "pays again" if pays else "is off, since it does not pay here",
                costs.model.in_rate,
                1 / costs.model.prefill_seconds_per_token,
            )

    def _alone(self) -> bool:
        """Return whether at most one request wants to run, and none runs."""
        return not self._port.running() and len(self._port.ready()) <= 1

    def probes(self, now: float) -> bool:
        """Return whether to measure the link by a copy now, since nothing else does."""
        if self._paid or not self._planner.works or now < self._probe_at:
            return False
        self._probe_at = now + PROBE_SECONDS
        return True
