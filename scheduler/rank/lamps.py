"""LAMPS: least memory over time first, with the handling of the next call in it (arXiv 2410.18248).

A request is taken to its next call and through it (section 4.1: each segment is ranked anew). Its
memory grows with every decoded token; what it costs during the call depends on how its KV will be
handled, which is predicted by the least of InferCept's equations 1 to 3 (section 4.2). The area
under that curve (Fig. 4) is its rank (section 4.3).

Where the paper is open: in its worked example (Fig. 3) a longer request that is swapped goes before
a shorter one that is discarded, since the other's handling is worse for everybody else (section
3.2.2). The area of a request's own memory does not say so. Hence what others hold in vain while
somebody's context is recomputed or copied (second terms of the equations) counts, unless `others`
is off.
"""

from dataclasses import dataclass

from caesura.intercept.kv.costs import CostModel
from caesura.intercept.kv.handling.lamps import forward_seconds, least, wastes
from caesura.intercept.kv.views import Action
from caesura.intercept.kv.waste import waste_preserve, waste_swap
from caesura.scheduler.rank.view import Queued, QueueView, Score


@dataclass(frozen=True, slots=True)
class Lamps:
    """Orders by `memory_over_time`; those that starve go first, in the order of their arrival.

    The paper refreshes scores every `refresh_steps` = 10 steps on ToolBench (section 5) and lets a
    request starve after `starvation_steps` = 100 (section 4.4). `others` counts what others hold
    in vain. Raises `ValueError` for numbers below zero.
    """

    refresh_steps: int = 10
    starvation_steps: int = 100
    others: bool = True

    name = "lamps"

    def __post_init__(self) -> None:
        for key in ("refresh_steps", "starvation_steps"):
            if getattr(self, key) < 0:
                raise ValueError(f"{key} is a number of steps, not {getattr(self, key)!r}")

    def score(self, queued: Queued, view: QueueView) -> Score:
        """Return 0 and the arrival of a starved request, or 1 and the memory over time."""
        if queued.starved:
            return (0.0, queued.arrival)
        handling = predicted_handling(queued, view)
        return (1.0, memory_over_time(queued, view, handling, self.others))


def predicted_handling(queued: Queued, view: QueueView) -> Action:
    """Return what is expected to become of the request's KV at its next call (section 4.2).

    The least of InferCept's equations 1 to 3 for the predicted context at the call and the mean
    pause, beside the requests that run now.
    """
    seconds = queued.forecast.pause_seconds
    context = _context_at_call(queued)
    return least(wastes(context, seconds, view.batch_tokens, view.swap_pays, view.cost))


def memory_over_time(
    queued: Queued, view: QueueView, handling: Action, others: bool = True
) -> float:
    """Return the memory that a segment takes from here through its call, in token-seconds (Fig. 4).

    What is missing is loaded, or computed in one step while the memory fills; then every step adds
    a token. A segment that may end its session has a call only with the rest of the probability.
    With `others`, what they hold while they wait for this one's call is added.
    """
    forecast, context, cost = queued.forecast, queued.context_tokens, view.cost
    missing, hosted = queued.missing_tokens, queued.hosted_tokens
    memory = cost.swap_seconds(hosted, "in") * (context - missing)
    memory += forward_seconds(missing, context, cost) * (context - missing / 2)
    decode = forecast.decode_tokens
    memory += decode * view.step_seconds * (context + decode / 2)
    chance = 1 - forecast.ends[0] if forecast.ends else 0.0
    if chance > 0:
        other = view.batch_tokens if others else 0
        at_call, seconds = _context_at_call(queued), forecast.pause_seconds
        memory += chance * call_memory(handling, at_call, seconds, other, cost)
    return memory


def call_memory(
    handling: Action, context_tokens: int, pause_seconds: float, other_tokens: int, cost: CostModel
) -> float:
    """Return the memory that a call takes under its handling, in token-seconds.

    Fig. 4 (a): a plateau of C tokens for T_INT. (b): nothing, then a ramp up to C in T_fwd(C).
    (c): C while it is copied out, then nothing, and C while it is copied in. In (b) and (c) the
    `other_tokens` wait for as long as that takes (InferCept, equations 1 and 3).
    """
    if handling == "preserve":
        return waste_preserve(pause_seconds, context_tokens)
    if handling == "discard":
        seconds = forward_seconds(context_tokens, context_tokens, cost)
        return seconds * (context_tokens / 2 + other_tokens)
    out_seconds = cost.swap_seconds(context_tokens, "out")
    in_seconds = cost.swap_seconds(context_tokens, "in")
    return waste_swap(out_seconds, in_seconds, context_tokens + other_tokens)


def _context_at_call(queued: Queued) -> int:
    return round(queued.context_tokens + queued.forecast.decode_tokens)
