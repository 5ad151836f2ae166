"""The handling's input: views of paused KV and of the engine, in numbers."""

from collections.abc import Iterable
from dataclasses import replace

from caesura.intercept.kv.costs import MIN_LINK_SHARE, CostModel, CostTracker
from caesura.intercept.kv.step_budget import link_blocks
from caesura.intercept.kv.views import PausedKVView, StepView
from caesura.scheduler.vllm.engine.kv.paused_kvs import PausedKVs, can_lose
from caesura.scheduler.vllm.engine.port import EngineState
from caesura.scheduler.vllm.engine.sessions.served import PausedKV
from caesura.scheduler.vllm.engine.swap.planner import SwapPlanner


class PolicyViews:
    """Builds the views of a handling; the engine's view is built once per step."""

    def __init__(
        self,
        port: EngineState,
        paused_kvs: PausedKVs,
        costs: CostTracker,
        planner: SwapPlanner | None,
        min_link_share: float = MIN_LINK_SHARE,
    ) -> None:
        """Create it; `planner` is None without a link to the host.

        Swapping pays from `min_link_share` of the rate of recomputation.
        """
        self._min_link_share = min_link_share
        self._port = port
        self._costs = costs
        self._planner = planner
        self._paused_kvs = paused_kvs
        self._step: StepView | None = None

    def new_step(self) -> None:
        """Discard the view of the last step."""
        self._step = None

    def paused(self, paused_kvs: Iterable[PausedKV], now: float) -> list[PausedKVView]:
        """Return the views of the KV that has blocks to release."""
        views = []
        for kv in tuple(paused_kvs):
            self._paused_kvs.freshen(kv)
            if can_lose(kv):
                views.append(self.of(kv, now))
        return views

    def of(self, kv: PausedKV, now: float) -> PausedKVView:
        """Return the view of one paused KV."""
        elapsed = max(0.0, now - kv.since)
        uncopied, recomputed = kv.uncopied, None
        if not self._port.layout.plain:
            recomputed = self._recomputed(kv)
            if kv.whole is None:  # without a host, states and windows have no keys of their own
                uncopied = max(uncopied, kv.resident - kv.copied)
        return PausedKVView(
            key=kv.key,
            tool=kv.tool,
            durations=kv.durations,
            elapsed=elapsed,
            remaining=0.0 if kv.returned else kv.remaining(now),
            context_tokens=kv.context_tokens,
            resident=kv.resident,
            free_to_release=self.free_to_release(kv),
            uncopied=uncopied,
            hosted=kv.copied,
            missing=kv.missing,
            ends_next=kv.ends_next,
            returned=kv.returned,
            recomputed=recomputed,
        )

    def _recomputed(self, kv: PausedKV) -> int | None:
        """Return the tokens that a resume would compute again if KV were discarded now.

        The prefix cache is searched once, and again when others have taken what was found.
        """
        if not kv.resident:
            return None
        if kv.checkpoint is None or not kv.checkpoint.stands():
            kv.checkpoint = self._port.cache.search(kv.request, kv.context_tokens)
        return kv.context_tokens - kv.checkpoint.tokens

    def free_to_release(self, kv: PausedKV) -> int:
        """Return how many blocks at the back can go without recomputation, as they have copies.

        The number includes a partial last block. With one group of full attention it is never
        copied, since the next prefill recomputes it with the tool's result. Where single blocks
        cannot be found again, the number is 0 until every block has a copy.
        """
        if not kv.covered or (not self._paused_kvs.blocks.findable and kv.covered < len(kv.keys)):
            return 0
        return min(kv.covered + kv.partial, kv.resident)

    def step(self) -> StepView:
        """Return the view of the engine before the next step."""
        port, planner = self._port, self._planner
        free = port.blocks.free()
        if self._step is None:
            self._step = StepView(
                block_size=port.attention_tokens,
                total_blocks=port.blocks.total,
                free_blocks=free,
                host_free=0 if planner is None else planner.store.available,
                running_tokens=len(port.running()),
                running_context=port.running_context(),
                link_blocks=0 if planner is None else planner.budget,
                swap_pays=self.swap_pays,
                cost=self._costs.model,
                groups=port.groups,
            )
        elif self._step.free_blocks != free:
            self._step = replace(self._step, free_blocks=free)
        return self._step

    @property
    def cost(self) -> CostModel:
        """Return the present cost model."""
        return self._costs.model

    @property
    def findable(self) -> bool:
        """Whether single blocks can be released and the others found again."""
        return self._paused_kvs.blocks.findable

    @property
    def swap_pays(self) -> bool:
        """Whether the link works and is fast enough for swapping."""
        planner = self._planner
        if planner is None or not planner.works:
            return False
        return self._costs.model.link_pays(self._min_link_share)

    def link_blocks(self) -> int:
        """Return how many blocks the link can copy during the next step."""
        port = self._port
        running = len(port.running())
        context = port.running_context() if running else 0
        return link_blocks(self._costs.model, running, context, port.attention_tokens, port.groups)
