"""Memory-time ranking: order by arrival, delayed by the memory-time that a session still needs.

A resumed session is ordered by its first arrival, since a pause neither ends a session nor begins
a new one. Among sessions with near arrivals, the one with the least remaining memory-time goes
first, as with a Gittins index. That index is the expected work until a later point, divided by the
gain of reaching it, at the best such point.
"""

from dataclasses import dataclass
from math import inf, isfinite

from caesura.scheduler.policy.ranking import Queued, QueueView, Score

UNLIKELY = 1e-3
"""Segments that a session reaches with a smaller probability are ignored."""

HELD_SHARE = 0.5
"""The longest that a pause is assumed to hold its KV, as a share of recomputing all KV."""


@dataclass(frozen=True, slots=True)
class Caesura:
    """Orders by arrival + min(beta x K, most_delay), where K is `remaining_work`.

    `beta` is the number of seconds of arrival that a second of remaining work is worth. A small
    beta favours the tail, a large one the mean, and 0 is first come, first served. No session
    goes behind one that arrived more than `most_delay` seconds later, whatever its work. The work
    counts at most `most_calls` further calls. Loading a token from the host costs `restore_weight`
    times recomputing it. Raises `ValueError` for a negative number.
    """

    beta: float = 15.0
    most_calls: int = 80
    restore_weight: float = 0.3
    most_delay: float = 10.0

    name = "caesura"
    refresh_steps = 0
    starvation_steps = 0

    def __post_init__(self) -> None:
        for key in ("beta", "most_calls", "restore_weight", "most_delay"):
            value = getattr(self, key)
            if not (isfinite(value) and value >= 0):
                raise ValueError(f"{key} must be a finite number >= 0, got {value!r}")

    def score(self, queued: Queued, view: QueueView) -> Score:
        """Return the session's arrival in seconds, plus its delay for its remaining work."""
        work = remaining_work(queued, view, self.most_calls, self.restore_weight)
        return (queued.arrival + min(self.beta * work, self.most_delay),)


def remaining_work(
    queued: Queued, view: QueueView, most_calls: int = 80, restore_weight: float = 0.3
) -> float:
    """Return K, the expected work of a session until it ends or pauses, in engine seconds.

    One second is a second of the whole engine. Decoding and short pauses count the share of the
    memory that they hold times the time that they hold it. Computation counts its time. w_k is the
    expected work up to the end of the k-th segment from here. At that point the session has ended
    with probability F_k. Otherwise it pauses for T, which is worth rho = E[1 - exp(-T/H)] of an
    end. K is the least w_k / (F_k + (1 - F_k) rho).

    Both the context and the work of a segment grow by a constant from each segment to the next.
    w never shrinks and no denominator exceeds 1, so the search stops once w alone exceeds the best
    K. The early stop matters, since this runs for every request that is queued.
    """
    forecast, capacity = queued.forecast, max(1, view.capacity_tokens)
    seconds_per_token = view.cost.prefill_seconds_per_token
    missing = queued.missing_tokens + restore_weight * queued.hosted_tokens
    context, decode = queued.held_tokens, forecast.decode_tokens
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
    # A session ends surely after the last entry, so w itself is a candidate, unless the search
    # stopped earlier because of `most_calls`.
    return min(best, work) if len(forecast.ends) <= most_calls or best == inf else best
