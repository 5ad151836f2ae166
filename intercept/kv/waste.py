"""The waste of a pause: equations 1 to 5 of InferCept, in block-seconds, before it and after it.

The paper counts bytes; a block is M times the tokens of a block. Where layers differ, the KV of a
context of C tokens is no longer C·M but a·C + b·min(C, w) + s, with a window of w tokens and states
of constant size s; `Groups.blocks` has it in blocks. Memory is wasted while it is held
and no request computes with it: through a pause, while it fills again, and while all other
requests wait for a copy or for a recomputation.

Once a pause is over, `account` says what it cost and what each alternative would have cost. Memory
then counts only as far as others wanted it (`pressure`). Work counts in full, since it delays
requests whether memory is short or not: recomputing delays the whole batch (equation 4), and a
load delays the request that waits for it.
"""

from dataclasses import dataclass
from math import inf

from caesura.intercept.kv.costs import Recompute
from caesura.intercept.kv.pressure import Charge
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
    recompute: Recompute, missing_blocks: float, other_blocks: float, at_once: float = 0.0
) -> float:
    """Return the waste of recomputing in chunks after a discard (InferCept, equation 4).

    T_fwd(C)·C·M/2 + n·T_chunk·C_other·M: the memory fills evenly, so that half of it is held on
    average. Each of the n chunks makes the other requests' step T_chunk longer. C are the tokens
    missing at the resume, and T_fwd(C) is the time of the n steps. `at_once` of the missing blocks
    are held from the first step on: states, and what is found again. M(C)/2 becomes
    (M(C) + M(at once))/2.
    """
    held = recompute.seconds * (missing_blocks + at_once) / 2
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

    A load holds its blocks until it is done; no other request waits for it. The blocks that do not
    grow with the recomputed tokens are held from the first step on.
    """
    lost, copied = paused.uncopied, paused.resident - paused.uncopied
    waste = 0.0
    if copied > 0:
        load = step.cost.swap_seconds(step.tokens(copied), "in")
        if load == inf:  # without a link no block has a copy; a partial last block never needs one
            lost = paused.resident
        else:
            waste = load * copied
    if lost > 0:
        tokens = _tokens_lost(paused, step, lost)
        recompute = step.cost.recompute(tokens, step.running_tokens, step.running_context)
        grown = step.groups.growing * tokens / step.block_size
        waste += waste_chunked_discard(
            recompute, lost, step.other_blocks, at_once=max(0.0, lost - grown)
        )
    return waste


def _tokens_lost(paused: PausedKVView, step: StepView, blocks: int) -> int:
    """Return the tokens to recompute after `blocks` blocks were lost.

    A lost state brings the whole context with it, unless an earlier one is kept.
    """
    if paused.recomputed is not None:
        return paused.recomputed
    if step.groups.states:
        return paused.context_tokens
    tokens = int(step.tokens(blocks))
    return min(tokens, paused.context_tokens) if step.groups.windows else tokens


def swap_price(paused: PausedKVView, step: StepView) -> float:
    """Return the waste of copies that do not overlap with steps (equation 3).

    Infinite if swapping does not pay, or if the host has no room.
    """
    if not step.swap_pays or paused.uncopied > step.host_free:
        return inf
    excess = paused.uncopied - step.link_blocks
    if excess <= 0:
        return 0.0
    tokens = step.tokens(excess)
    out, into = step.cost.swap_seconds(tokens, "out"), step.cost.swap_seconds(tokens, "in")
    if out == inf or into == inf:
        return inf
    return waste_swap(out, into, step.other_blocks)


NOTHING = Prices(preserve=0.0, discard=0.0, swap=0.0)
"""The prices of a request without resident blocks."""


@dataclass(frozen=True, slots=True)
class Came:
    """How a pause ended: `seconds` until its result, and the tokens loaded and recomputed then.

    `back` is false if nobody came back, so that its KV was of no use any more.
    """

    seconds: float
    back: bool
    loaded_tokens: int = 0
    recomputed_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Account:
    """The `cost` of a pause in block-seconds, and the price of each alternative in `hindsight`.

    `queued` is the part of `cost` between the result and the run, and `worked` that of loading and
    recomputing; the rest is memory that was held until the result. `regret` is the cost beyond the
    cheapest alternative. `hindsight` and `regret` are None where nobody wanted the memory, and
    nothing was loaded or recomputed: keeping the KV cost nothing.
    """

    cost: float
    hindsight: Prices | None
    regret: float | None
    queued: float = 0.0
    worked: float = 0.0


def account(view: PausedKVView, step: StepView, charge: Charge, came: Came) -> Account:
    """Return the account of a pause that began with these views."""
    work = _load_delay(came.loaded_tokens, step) + _recomputed(view, step, came)
    cost = charge.cost + work
    worked = came.loaded_tokens > 0 or came.recomputed_tokens > 0
    if not worked and charge.wanted.wanted + charge.queued.wanted <= 0:
        return Account(cost, None, None)
    alternatives = Prices(
        preserve=_preserve(charge),
        discard=discard_price(view, step) if came.back else 0.0,
        swap=_swap(view, step, charge, came),
    )
    best = min(alternatives.preserve, alternatives.discard, alternatives.swap)
    return Account(cost, alternatives, max(0.0, cost - best), charge.queued_cost, work)


def _recomputed(view: PausedKVView, step: StepView, came: Came) -> float:
    """Return the waste of what was recomputed: its share of recomputing the whole context."""
    if came.recomputed_tokens <= 0 or not view.resident:
        return 0.0
    part = min(1.0, came.recomputed_tokens / max(1, view.context_tokens))
    return discard_price(view, step) * part


def _load_delay(tokens: int, step: StepView) -> float:
    """Return the waste of a load: its blocks are of no use until the last one has come."""
    if tokens <= 0:
        return 0.0
    fixed = step.groups.fixed(tokens / step.block_size)
    seconds = step.cost.swap_seconds(tokens + step.tokens(fixed), "in")
    if seconds == inf:
        return 0.0
    return seconds * tokens * step.groups.growing / step.block_size + seconds * fixed


def _preserve(charge: Charge) -> float:
    """Return what keeping all blocks up to the result would have cost.

    Behind the result count only the blocks that it held then: had it kept others, it would have
    queued less, and nobody knows how long.
    """
    if not charge.gave_up:
        return charge.cost
    return charge.blocks * charge.wanted.kept + charge.with_result * charge.queued.kept


def _swap(view: PausedKVView, step: StepView, charge: Charge, came: Came) -> float:
    """Return what swapping at once would have cost: memory until the copies, and the load.

    Infinite where swapping does not pay, or where the host had no room. Copies go beside steps, so
    nobody waits for them (InferCept, section 4.1).
    """
    if not step.swap_pays or view.uncopied > step.host_free:
        return inf
    copying = min(came.seconds, _copy_seconds(view.uncopied, step))
    mean = charge.wanted.kept / came.seconds if came.seconds > 0 else 0.0
    price = view.uncopied / 2 * copying * mean
    if came.back:
        full = min(view.resident, view.context_tokens // step.block_size)
        price += _load_delay(full * step.block_size, step)
    return price


def _copy_seconds(blocks: int, step: StepView) -> float:
    """Return how long the link takes to copy `blocks` blocks to the host beside steps."""
    alone = step.cost.swap_seconds(step.tokens(blocks), "out")
    if step.link_blocks <= 0:
        return alone
    seconds = step.cost.step_seconds(step.running_tokens, step.running_context)
    return max(alone, blocks / step.link_blocks * seconds)
