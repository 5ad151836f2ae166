"""The order of write-behind copies, which use idle link time and make a later eviction free.

Requests that resume load first, since a user waits for them. Swaps come next, in the order of the
decisions. The rest of a step's link budget copies KV that stays on the device.
"""

from collections.abc import Iterable

from caesura.intercept.kv.costs import CostModel
from caesura.intercept.kv.views import PausedKVView, StepView

SHORT_PAUSE = 0.3

LIKELY_END = 0.5
"""A session that ends with its next segment with a higher probability is about to end."""

IDLE_STEP_SECONDS = 0.05
"""The assumed length of a step for the link's budget while no request runs, and none can wait."""


def link_blocks(cost: CostModel, running: int, context_tokens: int, block_size: int) -> int:
    """Return the blocks to copy during a step: N with T_swap(N) = T_fwd(B) (InferCept 4.1).

    `running` requests decode in the step, with `context_tokens` together. The result is at least 1.
    """
    seconds = cost.step_seconds(running, context_tokens) if running else IDLE_STEP_SECONDS
    return max(1, cost.link_tokens(seconds) // block_size)


def writes_behind(step: StepView, free_share: float) -> bool:
    """Return whether to copy KV that may never be evicted.

    It is true if swapping pays and less than `free_share` of all blocks are free.
    """
    return step.swap_pays and step.free_blocks < free_share * step.total_blocks


def turnover_seconds(step: StepView) -> float:
    """Return the seconds below which a pause is short: a share of the time to load all KV.

    Evicting for a shorter pause frees the blocks for hardly longer than their load takes.
    Infinite without a link.
    """
    capacity = step.total_blocks * step.block_size
    return SHORT_PAUSE * step.cost.swap_seconds(capacity, "in")


def copy_order(paused: Iterable[PausedKVView], step: StepView) -> list[PausedKVView]:
    """Return the paused requests whose KV to copy, most useful first.

    The longest pauses come first, since their KV will be evicted first. Requests that have
    returned and wait in the queue follow, in the order of `paused`. Short pauses are left out,
    since they are never evicted by choice. Sessions that are about to end come last of all: their
    copies serve at most one resume, and those of other sessions serve every later pause too.
    """
    short = turnover_seconds(step)
    uncopied = [one for one in paused if one.uncopied > 0]
    long = [one for one in uncopied if not one.returned and one.remaining > short]
    long.sort(key=lambda one: (-one.remaining, one.key))
    order = long + [one for one in uncopied if one.returned]
    return sorted(order, key=lambda one: one.ends_next > LIKELY_END)
