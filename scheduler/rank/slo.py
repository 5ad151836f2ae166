"""Goodput first: requests that can still meet their objective go before those that cannot.

Under overload not all requests meet their objective. Serving in order of arrival then makes almost
all of them late. A request that can no longer meet its objective gains little by going early, so
it goes behind (as in admission by goodput, e.g. DistServe, arXiv 2401.09670, and Past-Future).
The ranking orders the requests within each class. The rules against starvation bound how long a
late request waits (`caesura.scheduler.admission.step_rules`).
"""

from enum import IntEnum
from math import inf

from caesura.scheduler.rank.view import Queued, QueueView
from caesura.scheduler.slo import Slo


class Chance(IntEnum):
    """What a waiting request can still reach, best first.

    `MEETS`: its segment can meet the objective, as all earlier segments of its session did.
    `SPOILT`: its segment can meet it, but an earlier one did not. `MISSES`: it can no longer.
    """

    MEETS = 0
    SPOILT = 1
    MISSES = 2


def latest_start(queued: Queued, view: QueueView, slo: Slo) -> float:
    """Return the latest time of admission, in seconds, at which a request meets its objective.

    Before its first token, this is the deadline of that token less the time to load and to compute
    what is missing. A preempted request has decoded tokens already: its deadline is that of its
    last token, and the time to decode the expected rest counts too.
    """
    seconds = queued.missing_tokens * view.cost.prefill_seconds_per_token + view.step_seconds
    if queued.hosted_tokens and view.swap_pays:
        seconds += view.cost.swap_seconds(queued.hosted_tokens, "in")
    elif queued.hosted_tokens:
        seconds += queued.hosted_tokens * view.cost.prefill_seconds_per_token
    if not queued.decoded_tokens:
        return queued.queued_at + slo.ttft - seconds
    left = queued.forecast.decode_tokens
    tokens = queued.decoded_tokens + left
    if slo.tpot == inf:
        return inf
    return queued.queued_at + slo.ttft + slo.tpot * tokens - seconds - left * view.step_seconds


def chance(now: float, latest: float, spoilt: bool) -> Chance:
    """Return what a request can reach that must be admitted by `latest`.

    `spoilt`: an earlier segment of its session has missed the objective.
    """
    if now > latest:
        return Chance.MISSES
    return Chance.SPOILT if spoilt else Chance.MEETS
