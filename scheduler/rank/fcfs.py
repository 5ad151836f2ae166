"""First come, first served, by the session's first arrival: the default.

A resumed request keeps its session's place (InferCept, section 4.3): a pause does not send it to
the tail of the queue.
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
        """Return the session's arrival in seconds."""
        return (queued.arrival,)
