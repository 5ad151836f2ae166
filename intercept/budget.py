"""How the link to the host is shared: whose blocks are copied beside a step.

Requests that are coming back load first, since somebody waits for them. Then swaps, in the order
of the decisions. What is left copies KV that stays where it is, so that a later eviction is free.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from caesura.intercept.view import PausedKV, StepView

SHORT_PAUSE = 0.3


class LinkShares(NamedTuple):
    """Blocks that each of the three may copy in this step, in the order in which they came."""

    loads: list[int]
    swaps: list[int]
    behind: list[int]


def share_link(
    link: int,
    loads: Sequence[int],
    swaps: Sequence[int],
    behind: Sequence[int],
    *,
    host_free: int,
    device_free: int,
    new_blocks: int = 0,
    moves: bool = False,
) -> LinkShares:
    """Divide `link` blocks (N_i) by the conditions of InferCept, section 4.1.

    With `out` the swaps and copies behind, `in` the loads, and `new_blocks` those that newly
    scheduled tokens take, which go before any load:

        (a) in + out   <= link
        (b) out        <= host_free (+ in)
        (c) in + new   <= device_free (+ out)

    The terms in brackets count only where a block `moves`, as it does in the paper: a load frees
    its place on the host and a swap its place on the device within the step. Where a load leaves
    the copy valid and a swap is confirmed a step later, they are zero. Copies behind free nothing.
    """
    wanted_in, wanted_out = sum(loads), sum(swaps)
    link, host_free = max(0, link), max(0, host_free)
    room = device_free - new_blocks
    total_in = min(link, room)
    if moves and host_free + room >= 0:
        # A load beyond the room costs the link two blocks: its own, and a swap's before it.
        total_in = max(total_in, min(link, room + wanted_out, (link + room) // 2))
    total_in = max(0, min(wanted_in, total_in))
    host_room = host_free + (total_in if moves else 0)
    total_out = min(wanted_out, link - total_in, host_room)
    total_behind = min(link - total_in - total_out, host_room - total_out)
    return LinkShares(_give(total_in, loads), _give(total_out, swaps), _give(total_behind, behind))


def _give(budget: int, wishes: Sequence[int]) -> list[int]:
    given = []
    for wish in wishes:
        given.append(min(max(0, wish), budget))
        budget -= given[-1]
    return given


def turnover_seconds(step: StepView) -> float:
    """Return the length of a short pause: part of the time in which all KV could be loaded.

    A pause that is shorter frees its blocks for hardly longer than their way back takes. Infinite
    without a link.
    """
    capacity = step.total_blocks * step.block_size
    return SHORT_PAUSE * step.cost.swap_seconds(capacity, "in")


def copy_order(paused: Iterable[PausedKV], step: StepView) -> list[PausedKV]:
    """Return whose KV to copy behind, most useful first.

    The longest pauses first, since theirs will be evicted first; then requests that have returned
    and queue, in the order of `paused`. Short pauses are never evicted by choice: no copy of them.
    """
    short = turnover_seconds(step)
    uncopied = [one for one in paused if one.uncopied > 0]
    long = [one for one in uncopied if not one.returned and one.remaining > short]
    long.sort(key=lambda one: (-one.remaining, one.key))
    return long + [one for one in uncopied if one.returned]
