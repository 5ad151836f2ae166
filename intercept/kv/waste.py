"""The waste of a pause: equations 1 to 5 of InferCept, in block-seconds.

The paper counts bytes; a block is M times the tokens of a block. Memory is wasted while it is held
and no request computes with it: through a pause, while it fills again, and while all other
requests wait for a copy or for a recomputation.
"""

from math import inf

from caesura.intercept.kv.costs import Recompute
from caesura.intercept.kv.views import PausedKVView, Prices, StepView


def waste_discard(forward_seconds: float, blocks: float, other_blocks: float) -> float:
    """Return the waste of recomputing in one step after a discard (InferCept, equation 1).

    T_fwd(C)·C·M + T_fwd(C)·C_other·M: no recomputed block is of use before the last one, and all
    other requests wait for that step.
    """
    return forward_seconds * blocks + forward_seconds * other_blocks


def waste_preserve(pause_seconds: float, blocks: float) -> float:
    """Return the waste of keeping the blocks (InferCept, equation 2): T_INT·C·M."""
    return pause_seconds * blocks


def waste_swap(out_seconds: float, in_seconds: float, batch_blocks: float) -> float:
    """Return the waste of copying out and in while the batch waits (InferCept, equation 3).

    2·T_swap(C)·C_batch·M, with a rate for each direction. Copies that overlap with steps waste
    nothing (section 4.1): pass only the seconds of copies that do not overlap.
    """
    return (out_seconds + in_seconds) * batch_blocks


def waste_chunked_discard(
    recompute: Recompute, missing_blocks: float, other_blocks: float
) -> float:
    """Return the waste of recomputing in chunks after a discard (InferCept, equation 4).

    T_fwd(C)·C·M/2 + n·T_chunk·C_other·M: the memory fills evenly, so that half of it is held on
    average. Each of the n chunks makes the other requests' step T_chunk longer. C are the tokens
    missing at the resume, and T_fwd(C) is the time of the n steps.
    """
    held = recompute.seconds * missing_blocks / 2
    return held + recompute.chunks * recompute.seconds_per_chunk * other_blocks


def least_waste(preserve: float, discard: float) -> float:
    """Return the least waste of a pause without swapping (InferCept, equation 5)."""
    return min(preserve, discard)


def prices(paused: PausedKVView, step: StepView) -> Prices:
    """Return the expected waste of each alternative from now on, in block-seconds.

    Costs that all alternatives share are left out: blocks that are missing already are recomputed
    in any case. A block with a copy on the host is loaded and not recomputed.
    """
    return prices_for(paused, step, paused.remaining)


def prices_for(paused: PausedKVView, step: StepView, pause_seconds: float) -> Prices:
    """Return `prices` for a pause with `pause_seconds` (T_INT) expected to remain."""
    if not paused.resident:
        return NOTHING
    return Prices(
        preserve=waste_preserve(pause_seconds, paused.resident),
        discard=discard_price(paused, step),
        swap=swap_price(paused, step),
    )


def discard_price(paused: PausedKVView, step: StepView) -> float:
    """Return the waste of recomputing uncopied blocks (equation 4) and of loading copied ones.

    A load holds its blocks until it is done; no other request waits for it.
    """
    lost, copied = paused.uncopied, paused.resident - paused.uncopied
    waste = 0.0
    if copied > 0:
        load = step.cost.swap_seconds(copied * step.block_size, "in")
        if load == inf:  # without a link no block has a copy; a partial last block never needs one
            lost = paused.resident
        else:
            waste = load * copied
    if lost > 0:
        recompute = step.cost.recompute(
            lost * step.block_size, step.running_tokens, step.running_context
        )
        waste += waste_chunked_discard(recompute, lost, step.running_context / step.block_size)
    return waste


def swap_price(paused: PausedKVView, step: StepView) -> float:
    """Return the waste of copies that do not overlap with steps (equation 3).

    Infinite if swapping does not pay, or if the host has no room.
    """
    if not step.swap_pays or paused.uncopied > step.host_free:
        return inf
    excess = paused.uncopied - step.link_blocks
    if excess <= 0:
        return 0.0
    tokens = excess * step.block_size
    out, into = step.cost.swap_seconds(tokens, "out"), step.cost.swap_seconds(tokens, "in")
    if out == inf or into == inf:
        return inf
    return waste_swap(out, into, step.running_context / step.block_size)


NOTHING = Prices(preserve=0.0, discard=0.0, swap=0.0)
"""The prices of a request without resident blocks."""
