"""Memory-time: a session's place in the line, moved back by the memory that it still needs.

A pause neither ends a session nor makes a new one, so that a session that comes back is ordered by
when it first arrived. Among those that are near each other in that line, whoever will be done for
the least memory-time goes first, in the manner of a Gittins index: the expected work until some
later point, divided by what is gained by getting there, at the best such point.
"""

from dataclasses import dataclass
from math import inf, isfinite

from caesura.scheduler.rank.view import Queued, QueueView, Score

UNLIKELY = 1e-3
"""Sessions that go on with less than this chance are not followed further."""

HELD_SHARE = 0.5
"""Of the time in which all memory is recomputed: for so long a pause keeps its KV, at most."""


@dataclass(frozen=True, slots=True)
class Caesura:
    """Orders by arrival + beta x K, K being `remaining_work`.

    `beta` trades the tail (small) for the mean (large): it is how many seconds of arrival a second
    of remaining work is worth; 0 is first come, first served. The session is followed for
    `most_calls` more calls at most. A token that is loaded from the host costs `restore_weight` of
    one that is recomputed. Raises `ValueError` for numbers below zero.
    """

    beta: float = 100.0
    most_calls: int = 80
    restore_weight: float = 0.3

    name = "caesura"
    refresh_steps = 0
    starvation_steps = 0

    def __post_init__(self) -> None:
        for key in ("beta", "most_calls", "restore_weight"):
            value = getattr(self, key)
            if not (isfinite(value) and value >= 0):
                raise ValueError(f"{key} is a number, 0 or more, not {value!r}")

    def score(self, queued: Queued, view: QueueView) -> Score:
        """Return the second at which it arrived, plus `beta` times what it still needs."""
        work = remaining_work(queued, view, self.most_calls, self.restore_weight)
        return (queued.arrival + self.beta * work,)


def remaining_work(
    queued: Queued, view: QueueView, most_calls: int = 80, restore_weight: float = 0.3
) -> float:
    """Return K, what a session is expected to take until it ends or pauses, in seconds.

    A second is one of the whole engine: for decoding and for short pauses, the share of the memory
    that is held times how long; for what is computed, its share of the engine's time. Stopping
    behind the segment k from here, w_k is expected to have been spent; the session has ended with
    probability F_k, and else it is away for a pause T that is worth rho = E[1 - exp(-T/H)] of an
    end. K is the least w_k / (F_k + (1 - F_k) rho).

    Both the work of a segment and the context grow by the same amount from one segment to the
    next, and w never shrinks while no denominator exceeds 1, so that the search is over once w
    alone is above the best: this runs whenever somebody is queued.
    """
    forecast, capacity = queued.forecast, max(1, view.capacity_tokens)
    seconds_per_token = view.cost.prefill_seconds_per_token
    missing = queued.missing_tokens + restore_weight * queued.hosted_tokens
    context, decode = queued.context_tokens, forecast.decode_tokens
    work = missing * seconds_per_token
    work += decode * view.step_seconds * (context + decode / 2) / capacity
    # From the end of one segment to the end of the next: the pause, its result, decoding.
    decode_seconds = forecast.segment_tokens * view.step_seconds
    held_seconds = min(forecast.pause_seconds, HELD_SHARE * seconds_per_token * capacity)
    per_context = (held_seconds + decode_seconds) / capacity
    segment = per_context * (context + decode)
    segment += forecast.result_tokens * seconds_per_token
    segment += decode_seconds * (forecast.result_tokens + forecast.segment_tokens / 2) / capacity
    growth = per_context * (forecast.result_tokens + forecast.segment_tokens)

    best, alive, not_worth = inf, 1.0, 1 - forecast.pause_discount
    for ends in forecast.ends[: most_calls + 1]:
        alive *= 1 - ends
        gained = 1 - alive * not_worth
        if gained > 0 and work < best * gained:
            best = work / gained
        if alive < UNLIKELY or work >= best:
            return best
        work += alive * segment
        segment += growth
    # Behind the last entry it ends surely; a session that was followed far enough has an index.
    return min(best, work) if len(forecast.ends) <= most_calls or best == inf else best
