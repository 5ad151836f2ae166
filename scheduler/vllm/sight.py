"""What the handling is shown: the paused KV caches and the engine, in numbers."""

from collections.abc import Iterable
from dataclasses import replace

from caesura.intercept.kv.costs import CostTracker
from caesura.intercept.kv.views import PausedKV, StepView
from caesura.scheduler.vllm.engine_state import EngineState
from caesura.scheduler.vllm.holding import Holding, Holdings, can_lose
from caesura.scheduler.vllm.swap.planner import SwapPlanner

IDLE_STEP_SECONDS = 0.05
"""How long a step counts for the link's budget while nobody runs: nothing is held up then."""


class Sight:
    """Translates the scheduler's state for a handling; the engine's part is made once per step."""

    def __init__(
        self,
        port: EngineState,
        mechanics: Holdings,
        costs: CostTracker,
        planner: SwapPlanner | None,
    ) -> None:
        """`planner`: there is a link to the host."""
        self._port = port
        self._mechanics = mechanics
        self._costs = costs
        self._planner = planner
        self._step: StepView | None = None
        self._recounted: dict[str, Holding] = {}

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
            self._recounted[holding.key] = holding

    def take_recounted(self) -> Iterable[Holding]:
        """Return what was counted anew since the last call, in the order in which it was first."""
        if not self._recounted:
            return ()
        recounted, self._recounted = self._recounted, {}
        return recounted.values()

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
        partial = in_place and holding.context_tokens % self._port.block_size > 0
        return min(holding.covered + partial, holding.resident)

    def step(self) -> StepView:
        """Show the engine before the coming step."""
        port, planner = self._port, self._planner
        free = port.blocks.free()
        if self._step is None:
            self._step = StepView(
                block_size=port.block_size,
                total_blocks=port.blocks.total,
                free_blocks=free,
                host_free=0 if planner is None else planner.store.available,
                running_tokens=len(port.running()),
                running_context=port.running_context(),
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
        model, running = self._costs.model, len(self._port.running())
        seconds = IDLE_STEP_SECONDS
        if running:
            seconds = model.step_seconds(running, self._port.running_context())
        return max(1, model.link_tokens(seconds) // self._port.block_size)
