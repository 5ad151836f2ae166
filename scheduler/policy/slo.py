"""Goodput first: requests that can still meet their objective go before those that cannot.

Under overload not all requests meet their objective. Serving in order of arrival then makes almost
all of them late. A request that can no longer meet its objective gains little by going early, so
it goes behind (as in admission by goodput, e.g. DistServe, arXiv 2401.09670, and Past-Future).
The ranking orders the requests within each class. The rules against starvation bound how long a
late request waits (`caesura.scheduler.policy.admission`).
"""

from dataclasses import dataclass
from enum import IntEnum
from math import inf

from caesura.scheduler.policy.names import make_named
from caesura.scheduler.policy.ranking import Queued, QueueView

EXAMPLE = "ttft=2,tpot=0.1"
MICROSECOND = 1e-6
"""The precision of times that were saved."""


@dataclass(frozen=True, slots=True)
class Slo:
    """The objective of a segment, the part of a session between two tool calls.

    `ttft` is the most seconds to the first token. They count from the session's arrival, and in
    later segments from the return of the tool. `tpot` is the most seconds per token after the
    first one, as the mean of the segment. A session meets the objective if all its segments do.
    Raises `ValueError` if a limit is not above 0, or if there is none.
    """

    ttft: float = inf
    tpot: float = inf

    def __post_init__(self) -> None:
        for name, seconds in (("ttft", self.ttft), ("tpot", self.tpot)):
            if not seconds > 0:
                raise ValueError(f"{name} must be seconds above 0, got {seconds!r}")
        if self.ttft == self.tpot == inf:
            raise ValueError(f"an objective needs ttft, tpot or both, such as {EXAMPLE}")

    @classmethod
    def parse(cls, text: str) -> "Slo":
        """Return the objective of a text such as `ttft=2,tpot=0.1`; raises `ValueError`."""
        return make_named(f"slo:{text}", {"slo": cls}, "objective")

    def met(self, sent: float, first: float, ended: float, tokens: int) -> bool:
        """Return whether a segment met the objective.

        It was `sent` at that time, its `first` token came and its last of `tokens` was decoded
        then. Times are seconds of one clock.
        """
        return first - sent <= self.ttft and ended - first <= self.tpot * (tokens - 1) + MICROSECOND

    def __str__(self) -> str:
        limits = (("ttft", self.ttft), ("tpot", self.tpot))
        return ",".join(f"{name}={seconds:g}" for name, seconds in limits if seconds < inf)


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
