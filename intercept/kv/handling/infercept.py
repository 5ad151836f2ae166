"""InferCept: the action of least waste, chosen at every step (sections 4.1 to 4.4).

Paused requests are sorted by their waste without swapping, min(equation 2, equation 4). The link's
budget goes to those with the largest waste, since swaps within it are free. The others preserve or
discard, whichever wastes less.
"""

from collections.abc import Sequence

from caesura.intercept.kv.handling.taking import oldest_largest_first
from caesura.intercept.kv.views import Decision, PausedKVView, Prices, StepView
from caesura.intercept.kv.waste import least_waste, prices_for


def pause_seconds(paused: PausedKVView) -> float:
    """Return T_INT, the expected remaining pause: as long as it has lasted so far.

    That is the paper's estimate for tools that are unknown or vary (section 4.4). Here it serves
    all tools. A profile that predicts a long pause from the start would discard at once what
    exceeds the first step's link budget, although the next step could copy it.
    """
    return paused.elapsed


class InferCept:
    """Swaps within the link's budget; beyond it, preserves or discards by the smaller waste."""

    name = "infercept"
    write_behind = False
    every_step = True

    def decide(self, paused: Sequence[PausedKVView], step: StepView) -> list[Decision]:
        """Return decisions for requests that wait for a tool; preserved ones are left out."""
        ranked: list[tuple[float, str, PausedKVView, Prices, float]] = []
        for one in paused:
            seconds = pause_seconds(one)
            if one.resident and not one.returned and seconds > 0:
                price = prices_for(one, step, seconds)
                waste = least_waste(price.preserve, price.discard)
                ranked.append((-waste, one.key, one, price, seconds))
        ranked.sort(key=lambda entry: entry[:2])
        decisions = []
        link, host = step.link_blocks, step.host_free
        for _, key, one, price, seconds in ranked:
            share = min(one.uncopied, link, host)
            if (share or not one.uncopied) and _worth_a_swap(one, step, seconds):
                decisions.append(Decision(key, "swap"))
                link -= share
                host -= share
            elif price.discard < price.preserve:
                decisions.append(Decision(key, "discard"))
        return decisions

    def victims(
        self, paused: Sequence[PausedKVView], step: StepView, needed: int, forced: bool
    ) -> list[tuple[str, int]]:
        """Return the blocks to release, by elapsed time x context, largest first.

        Admission may take only copied blocks, since `decide` found the others worth their memory.
        """
        return oldest_largest_first(paused, needed, forced, only_copied=True)


def _worth_a_swap(paused: PausedKVView, step: StepView, seconds: float) -> bool:
    """Return whether the pause outlasts the copies out and in; otherwise no memory is gained."""
    if not step.swap_pays:
        return False
    out_seconds = step.cost.swap_seconds(paused.uncopied * step.block_size, "out")
    in_seconds = step.cost.swap_seconds(paused.resident * step.block_size, "in")
    return seconds > out_seconds + in_seconds
