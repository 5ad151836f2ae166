"""LAMPS' handling, a baseline: one action per pause, as if chosen before it (section 4.2).

The action is the least of InferCept's equations 1 to 3 (the paper's numbering differs). A discarded
context is recomputed in one step, and a swap makes the whole batch wait. T_INT is the mean of the
tool's pauses, however long this pause has lasted.

The paper estimates the context of the batch beforehand. Here the batch is assumed to fill the
memory, so that the action stays the same through the pause. Only then does a handling matter.
"""

from collections.abc import Sequence
from math import inf

from caesura.intercept.kv.costs import CostModel
from caesura.intercept.kv.handling.taking import oldest_largest_first
from caesura.intercept.kv.views import Action, Decision, PausedKVView, Prices, StepView
from caesura.intercept.kv.waste import waste_discard, waste_preserve, waste_swap


def forward_seconds(tokens: int, context_tokens: int, cost: CostModel) -> float:
    """Return T_fwd, the seconds of a step that computes only `tokens` of one context."""
    return cost.step_seconds(tokens, context_tokens) if tokens > 0 else 0.0


def wastes(
    context_tokens: int, pause_seconds: float, other_tokens: int, swap_pays: bool, cost: CostModel
) -> Prices:
    """Return the waste of each action at a call, in token-seconds (InferCept, equations 1 to 3).

    The context has C tokens at the call and the pause lasts T_INT seconds. Other requests in the
    batch have C_other tokens, and C_batch is both together. A swap that does not pay has infinite
    waste.
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
    """Return the action of least waste; a tie goes to preserve, then to discard."""
    if prices.preserve <= min(prices.discard, prices.swap):
        return "preserve"
    return "discard" if prices.discard <= prices.swap else "swap"


class Lamps:
    """Preserves, discards or swaps by the least expected waste over the whole pause."""

    name = "lamps"
    write_behind = False
    every_step = True

    def decide(self, paused: Sequence[PausedKVView], step: StepView) -> list[Decision]:
        """Return decisions for requests that wait for a tool; preserved ones are left out."""
        decisions = []
        for one in paused:
            if one.resident and not one.returned:
                price = _whole_pause(one, step)
                action = least(price)
                if action != "preserve":
                    decisions.append(Decision(one.key, action))
        return decisions

    def victims(
        self, paused: Sequence[PausedKVView], step: StepView, needed: int, forced: bool
    ) -> list[tuple[str, int]]:
        """Return the blocks to release, by elapsed time x context, largest first.

        Admission may take only copied blocks, since `decide` found the others worth their memory.
        """
        return oldest_largest_first(paused, needed, forced, only_copied=True)


def _whole_pause(paused: PausedKVView, step: StepView) -> Prices:
    """Return the waste of each action in block-seconds, from values constant through a pause."""
    context, memory = paused.context_tokens, step.total_blocks * step.block_size
    other = max(0, memory - context)
    waste = wastes(context, paused.durations.mean, other, step.swap_pays, step.cost)
    size = step.block_size
    return Prices(waste.preserve / size, waste.discard / size, waste.swap / size)
