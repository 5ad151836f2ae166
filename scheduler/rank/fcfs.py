"""First come, first served, by when a session first arrived: the default.

A request that comes back from a tool keeps the place of its session (InferCept, section 4.3): it
is not sent to the tail for having paused.
"""

from dataclasses import dataclass

from caesura.scheduler.rank.view import Queued, QueueView, Score


@dataclass(frozen=True, slots=True)
class Fcfs:
    """Orders by the session's arrival."""

    name = "fcfs"
    refresh_steps = 0
    starvation_steps = 0

    def score(self, queued: Queued, view: QueueView) -> Score:
        """Return the second at which the session arrived."""
        return (queued.arrival,)
