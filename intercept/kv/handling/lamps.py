"""LAMPS' handling, a baseline: one answer for the whole pause, as if given before it (section 4.2).

It is the least of InferCept's equations 1 to 3 (the paper's numbering differs): a discarded
context is recomputed in one step, and a swap holds up the whole batch. T_INT is the mean of the
tool's pauses, however long this one has lasted.

The paper estimates the context of the batch beforehand. So that the answer stays the same through
the pause, the batch is taken to fill the memory here, which is when a handling matters.
"""

from collections.abc import Sequence
from math import inf

from caesura.intercept.kv.costs import CostModel
from caesura.intercept.kv.handling.taking import oldest_largest_first
from caesura.intercept.kv.views import Action, Decision, PausedKVView, Prices, StepView
from caesura.intercept.kv.waste import waste_discard, waste_preserve, waste_swap


def forward_seconds(tokens: int, context_tokens: int, cost: CostModel) -> float:
    """Return T_fwd, the time of one step that computes `tokens` of a context and nothing else."""
    return cost.step_seconds(tokens, context_tokens) if tokens > 0 else 0.0


def wastes(
    context_tokens: int, pause_seconds: float, other_tokens: int, swap_pays: bool, cost: CostModel
) -> Prices:
    """Return what each handling of a call would waste, in token-seconds.

    InferCept's equations 1 to 3 for a context of C tokens at the call, a pause of T_INT seconds
    and C_other tokens of other requests in the batch; C_batch is both together. A swap that does
    not pay wastes infinitely much.
    """
    context, other = context_tokens, other_tokens
    swap = inf
    if swap_pays:
        out_seconds = cost.swap_seconds(context, "out")
        swap = waste_swap(out_seconds, cost.swap_seconds(context, "in"), context + other)
    return Prices(
        preserve=waste_preserve(pause_seconds, context),
        discard=waste_discard(forward_seconds(context, context, cost), context, other),
        swap=swap,
    )


def least(prices: Prices) -> Action:
    """Return the handling that wastes least; at a tie, what needs least to be done."""
    if prices.preserve <= min(prices.discard, prices.swap):
        return "preserve"
    return "discard" if prices.discard <= prices.swap else "swap"


class Lamps:
    """Preserves, discards or swaps by the least expected waste of the whole pause."""

    name = "lamps"
    write_behind = False
    every_step = True

    def decide(self, paused: Sequence[PausedKVView], step: StepView) -> list[Decision]:
        """Decide for all that wait for a tool; those that are best preserved are left out."""
        decisions = []
        for one in paused:
            if one.resident and not one.returned:
                price = _whole_pause(one, step)
                action = least(price)
                if action != "preserve":
                    decisions.append(Decision(one.key, action, price))
        return decisions

    def victims(
        self, paused: Sequence[PausedKVView], step: StepView, needed: int, forced: bool
    ) -> list[tuple[str, int]]:
        """Choose by elapsed time x context, most first.

        To admit somebody only what is copied: what is preserved was found worth its memory.
        """
        return oldest_largest_first(paused, needed, forced, only_copied=True)


def _whole_pause(paused: PausedKVView, step: StepView) -> Prices:
    """Return the block-seconds that each handling wastes, by what a pause does not change."""
    context, memory = paused.context_tokens, step.total_blocks * step.block_size
    other = max(0, memory - context)
    waste = wastes(context, paused.durations.mean, other, step.swap_pays, step.cost)
    size = step.block_size
    return Prices(waste.preserve / size, waste.discard / size, waste.swap / size)
