"""What idle time of the link to the host is used for: copies that make a later eviction free.

Requests that are coming back load first, since somebody waits for them. Then swaps, in the order
of the decisions. What is left of a step's budget copies KV that stays where it is.
"""

from collections.abc import Iterable

from caesura.intercept.kv.views import PausedKVView, StepView

SHORT_PAUSE = 0.3


def turnover_seconds(step: StepView) -> float:
    """Return the length of a short pause: part of the time in which all KV could be loaded.

    A pause that is shorter frees its blocks for hardly longer than their way back takes. Infinite
    without a link.
    """
    capacity = step.total_blocks * step.block_size
    return SHORT_PAUSE * step.cost.swap_seconds(capacity, "in")


def copy_order(paused: Iterable[PausedKVView], step: StepView) -> list[PausedKVView]:
    """Return whose KV to copy behind, most useful first.

    The longest pauses first, since theirs will be evicted first; then requests that have returned
    and queue, in the order of `paused`. Short pauses are never evicted by choice: no copy of them.
    """
    short = turnover_seconds(step)
    uncopied = [one for one in paused if one.uncopied > 0]
    long = [one for one in uncopied if not one.returned and one.remaining > short]
    long.sort(key=lambda one: (-one.remaining, one.key))
    return long + [one for one in uncopied if one.returned]
