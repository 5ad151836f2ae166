"""The bandwidth of the link to the host, learned from copies; it decides if swapping pays."""

import logging

from caesura.intercept.kv.costs import CostTracker
from caesura.scheduler.vllm.swap.planner import SwapPlanner

logger = logging.getLogger(__name__)


class LinkBandwidth:
    """Corrects the cost model's link rates with the copies that workers measured."""

    def __init__(self, planner: SwapPlanner, costs: CostTracker) -> None:
        self._planner = planner
        self._costs = costs
        self._measured = 0
        self._paid = True

    def learn(self) -> None:
        """Correct the rates, and log each change of whether swapping pays."""
        planner, costs = self._planner, self._costs
        while self._measured < planner.copies_measured:
            way = planner.copied[self._measured - planner.copies_measured]
            costs.observe_copy(way.direction, way.tokens, way.seconds)
            self._measured += 1
        pays = costs.model.swap_pays
        if self._measured and pays != self._paid:
            self._paid = pays
            logger.warning(
                "swapping %s: KV comes from the host at %.0f tokens/s and is recomputed at %.0f",
                "pays again" if pays else "is off, since it does not pay here",
                costs.model.in_rate,
                1 / costs.model.prefill_seconds_per_token,
            )
