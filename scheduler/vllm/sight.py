"""What the handling is shown: the paused KV caches and the engine, in numbers."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from caesura.intercept.cost import CostTracker
from caesura.intercept.view import PausedKV, StepView
from caesura.scheduler.vllm.holding import Holding, Holdings, can_lose
from caesura.scheduler.vllm.ledger import Ledger
from caesura.scheduler.vllm.swap.planner import SwapPlanner

IDLE_STEP_SECONDS = 0.05
"""How long a step counts for the link's budget while nobody runs: nothing is held up then."""


class Sight:
    """Translates the scheduler's state for a handling; the engine's part is made once per step."""

    def __init__(
        self,
        scheduler: Any,
        mechanics: Holdings,
        costs: CostTracker,
        planner: SwapPlanner | None,
        ledger: Ledger,
    ) -> None:
        self._scheduler = scheduler
        self._mechanics = mechanics
        self._costs = costs
        self._planner = planner
        self._ledger = ledger
        self._step: StepView | None = None

    def new_step(self) -> None:
        """Forget what was seen in the last step."""
        self._step = None

    def paused(self, holdings: Iterable[Holding], now: float) -> list[PausedKV]:
        """Show those of the holdings that have blocks to give."""
        views = []
        for holding in holdings:
            if holding.stale:
                self.freshen(holding)
            if can_lose(holding):
                views.append(self.of(holding, now))
        return views

    def of(self, holding: Holding, now: float) -> PausedKV:
        """Show one of them."""
        elapsed = max(0.0, now - holding.since)
        return PausedKV(
            key=holding.key,
            tool=holding.tool,
            durations=holding.durations,
            elapsed=elapsed,
            remaining=0.0 if holding.returned else holding.remaining(now),
            context_tokens=holding.context_tokens,
            resident=holding.resident,
            free_to_release=self.free_to_release(holding),
            uncopied=holding.uncopied,
            hosted=holding.copied,
            missing=holding.missing,
            returned=holding.returned,
        )

    def freshen(self, holding: Holding) -> None:
        """Count anew what has changed since it was counted."""
        if holding.stale:
            store = None if self._planner is None else self._planner.store
            self._mechanics.refresh(holding, store)
            if (lanes := self._ledger.lanes) is not None:
                lanes.held(holding)

    def recount(self, holdings: Iterable[Holding]) -> None:
        """Count all of them anew."""
        for holding in holdings:
            holding.stale = True
            self.freshen(holding)

    def free_to_release(self, holding: Holding) -> int:
        """Count blocks from the back that have a copy, with a last one that is not full.

        Such a one is never copied; it is recomputed, with the result that comes behind it. Where
        nothing can be found again, all of it goes at once: none before every block has a copy.
        """
        if not holding.covered or (
            not self._mechanics.findable and holding.covered < len(holding.keys)
        ):
            return 0
        in_place = holding.detached is None and holding.pause is not None
        partial = in_place and holding.context_tokens % self._scheduler.block_size > 0
        return min(holding.covered + partial, holding.resident)

    def step(self) -> StepView:
        """Show the engine before the coming step."""
        pool = self._scheduler.kv_cache_manager.block_pool
        free = pool.get_num_free_blocks()
        if self._step is None:
            running = self._scheduler.running
            planner = self._planner
            self._step = StepView(
                block_size=self._scheduler.block_size,
                total_blocks=pool.num_gpu_blocks - 1,
                free_blocks=free,
                host_free=0 if planner is None else planner.store.available,
                running_tokens=len(running),
                running_context=sum(request.num_computed_tokens for request in running),
                link_blocks=0 if planner is None else planner.budget,
                swap_pays=self.swap_pays,
                cost=self._costs.model,
            )
        elif self._step.free_blocks != free:
            self._step = replace(self._step, free_blocks=free)
        return self._step

    @property
    def findable(self) -> bool:
        """Whether single blocks can be given up and found again."""
        return self._mechanics.findable

    @property
    def swap_pays(self) -> bool:
        """Whether copies to the host are worth making at all."""
        planner = self._planner
        return planner is not None and planner.works and self._costs.model.swap_pays

    def link_blocks(self) -> int:
        """Blocks that hide behind the coming step: N with T_swap(N) = T_fwd(B) (InferCept 4.1)."""
        model, running = self._costs.model, self._scheduler.running
        seconds = IDLE_STEP_SECONDS
        if running:
            context = sum(request.num_computed_tokens for request in running)
            seconds = model.step_seconds(len(running), context)
        return max(1, model.link_tokens(seconds) // self._scheduler.block_size)
