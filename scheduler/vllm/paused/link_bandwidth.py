"""The bandwidth of the link to the host, learned from copies; it decides if swapping pays."""

import logging

from caesura.intercept.kv.costs import CostTracker
from caesura.scheduler.vllm.engine_state import EngineState
from caesura.scheduler.vllm.swap.planner import SwapPlanner

logger = logging.getLogger(__name__)

PROBE_SECONDS = 5.0
"""Interval between the copies that measure a link over which nothing is swapped."""

ALONE = 4.0
"""How much faster the link must be for a request that is alone: by default, as recomputation."""


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
