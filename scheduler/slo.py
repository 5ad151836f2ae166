"""Service level objectives: how soon a segment's first token comes, and how fast the others."""

from dataclasses import dataclass
from math import inf

from caesura.scheduler.named import make_named

EXAMPLE = "ttft=2,tpot=0.1"


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


MICROSECOND = 1e-6
"""The precision of times that were saved."""
