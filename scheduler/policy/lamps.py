"""LAMPS: least memory over time first, including the next call's handling (arXiv 2410.18248).

The rank covers a request up to the end of its next call, since each segment is ranked separately
(section 4.1). Its memory grows with every decoded token. Its memory during the call depends on the
handling, which is predicted by the least of InferCept's equations 1 to 3 (section 4.2). The area
under that curve (Fig. 4) is the rank (section 4.3).

The paper leaves one point open. In its worked example (Fig. 3) a longer request that is swapped
goes before a shorter one that is discarded, since discarding costs other requests more (section
3.2.2). The area of a request's own memory does not show that cost. So the memory that other
requests hold while they wait for a recomputation or a copy is added, unless `others` is off. These
are the second terms of the equations.
"""

from dataclasses import dataclass

from caesura.intercept.kv.costs import CostModel
from caesura.intercept.kv.handling import forward_seconds, least, wastes
from caesura.intercept.kv.views import Action
from caesura.intercept.kv.waste import waste_preserve, waste_swap
from caesura.scheduler.policy.ranking import Queued, QueueView, Score


@dataclass(frozen=True, slots=True)
class Lamps:
    """Orders by `memory_over_time`; starved requests go first, in order of arrival.

    The paper refreshes scores every `refresh_steps` = 10 steps on ToolBench (section 5). A request
    starves after `starvation_steps` = 100 steps (section 4.4). `others` adds the memory that other
    requests hold while they wait. Raises `ValueError` for a negative number.
    """

    refresh_steps: int = 10
    starvation_steps: int = 100
    others: bool = True

    name = "lamps"

    def __post_init__(self) -> None:
        for key in ("refresh_steps", "starvation_steps"):
            if getattr(self, key) < 0:
                raise ValueError(
                    f"{key} must be a number of steps >= 0, got {getattr(self, key)!r}"
                )

    def score(self, queued: Queued, view: QueueView) -> Score:
        """Return 0 and the arrival of a starved request, or 1 and the memory over time."""
        if queued.starved:
            return (0.0, queued.arrival)
        handling = predicted_handling(queued, view)
        return (1.0, memory_over_time(queued, view, handling, self.others))


def predicted_handling(queued: Queued, view: QueueView) -> Action:
    """Return the predicted action for the request's KV at its next call (section 4.2).

    It is the least of InferCept's equations 1 to 3 for the predicted context at the call, the mean
    pause, and the requests that run now.
    """
    seconds = queued.forecast.pause_seconds
    context, fixed = _context_at_call(queued), queued.fixed_tokens
    return least(wastes(context, seconds, view.batch_tokens, view.swap_pays, view.cost, fixed))


def memory_over_time(
    queued: Queued, view: QueueView, handling: Action, others: bool = True
) -> float:
    """Return the memory over time of a segment through its call, in token-seconds (Fig. 4).

    Missing context is loaded, or computed in one step while the memory fills. Then every step adds
    a token. The call's memory counts with the probability that the session does not end before it.
    With `others`, the memory of the requests that wait for this call's handling is added.
    """
    forecast, context, cost = queued.forecast, queued.context_tokens, view.cost
    missing, hosted = queued.missing_tokens, queued.hosted_tokens
    held = queued.held_tokens
    memory = cost.swap_seconds(hosted, "in") * (held - missing)
    memory += forward_seconds(missing, context, cost) * (held - missing / 2)
    decode = forecast.decode_tokens
    memory += decode * view.step_seconds * (held + decode / 2)
    chance = 1 - forecast.ends[0] if forecast.ends else 0.0
    if chance > 0:
        other = view.batch_tokens if others else 0
        at_call, seconds = _context_at_call(queued), forecast.pause_seconds
        fixed = queued.fixed_tokens
        memory += chance * call_memory(handling, at_call, seconds, other, cost, fixed)
    return memory


def call_memory(
    handling: Action,
    context_tokens: int,
    pause_seconds: float,
    other_tokens: int,
    cost: CostModel,
    fixed_tokens: float = 0.0,
) -> float:
    """Return the memory over time of a call under its handling, in token-seconds.

    Fig. 4 (a): a plateau of C tokens for T_INT. (b): nothing, then a ramp up to C in T_fwd(C).
    (c): C during the copy out, then nothing, then C during the copy in. In (b) and (c) the
    `other_tokens` wait for the ramp or the copies (InferCept, equations 1 and 3). The
    `fixed_tokens` of windows and states are held and copied too, and they do not ramp.
    """
    held = context_tokens + fixed_tokens
    if handling == "preserve":
        return waste_preserve(pause_seconds, held)
    if handling == "discard":
        seconds = forward_seconds(context_tokens, context_tokens, cost)
        return seconds * (context_tokens / 2 + fixed_tokens + other_tokens)
    out_seconds, in_seconds = cost.swap_seconds(held, "out"), cost.swap_seconds(held, "in")
    return waste_swap(out_seconds, in_seconds, held + other_tokens)


def _context_at_call(queued: Queued) -> int:
    return round(queued.context_tokens + queued.forecast.decode_tokens)
