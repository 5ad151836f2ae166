"""What a pause cost, and what each alternative would have cost, once it is over.

Block-seconds, as in `waste`, but memory counts only as far as others wanted it (`pressure`). Work
counts in full, since it delays requests whether memory is short or not: recomputing delays the
whole batch (InferCept, equation 4), and a load delays the request that waits for it.
"""

from dataclasses import dataclass
from math import inf

from caesura.intercept.kv.pressure import Charge
from caesura.intercept.kv.views import PausedKVView, Prices, StepView
from caesura.intercept.kv.waste import discard_price


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

    `regret` is the cost beyond the cheapest alternative. `hindsight` and `regret` are None where
    nobody wanted the memory, and nothing was loaded or recomputed: keeping the KV cost nothing.
    """

    cost: float
    hindsight: Prices | None
    regret: float | None


def account(view: PausedKVView, step: StepView, charge: Charge, came: Came) -> Account:
    """Return the account of a pause that began with these views."""
    cost = charge.cost + _load_delay(came.loaded_tokens, step) + _recomputed(view, step, came)
    worked = came.loaded_tokens > 0 or came.recomputed_tokens > 0
    if not worked and charge.wanted.wanted + charge.queued.wanted <= 0:
        return Account(cost, None, None)
    alternatives = Prices(
        preserve=_preserve(charge),
        discard=discard_price(view, step) if came.back else 0.0,
        swap=_swap(view, step, charge, came),
    )
    best = min(alternatives.preserve, alternatives.discard, alternatives.swap)
    return Account(cost, alternatives, max(0.0, cost - best))


def _recomputed(view: PausedKVView, step: StepView, came: Came) -> float:
    """Return the waste of what was recomputed: its share of recomputing the whole context."""
    if came.recomputed_tokens <= 0 or not view.resident:
        return 0.0
    part = min(1.0, came.recomputed_tokens / max(1, view.context_tokens))
    return discard_price(view, step) * part


def _load_delay(tokens: int, step: StepView) -> float:
    """Return the waste of a load: its blocks are of no use until the last one has come."""
    seconds = step.cost.swap_seconds(tokens, "in")
    return 0.0 if seconds == inf else seconds * tokens / step.block_size


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
    alone = step.cost.swap_seconds(blocks * step.block_size, "out")
    if step.link_blocks <= 0:
        return alone
    seconds = step.cost.step_seconds(step.running_tokens, step.running_context)
    return max(alone, blocks / step.link_blocks * seconds)
