"""One session as rankings and predictors see it, whatever requests it is made of."""

from dataclasses import dataclass, field
from typing import Any

from caesura.scheduler.rank.view import Score


@dataclass(slots=True, eq=False)
class Life:
    """One session.

    `session` names it, by its first request, and `arrival` is when that came. `kind` is the tool
    that it called last, before that the tools that it is offered; `kinds` are all that it has had.
    Its last segment was given `given_tokens` and has decoded `decoded_tokens`; with them its
    context was `context_tokens` long. `queued_at` is when its present wait began, `passes` counts
    the steps in which others ran and it was left waiting, `overtaken` those of its present wait in
    which a request was admitted whose wait began later. `score` was made in the step `scored_in`,
    from the KV that `scored_for` names. `misfit` is what it needed in the step `misfit_in`, when
    there was no room: blocks, and tokens that need no computation.
    """

    session: str
    arrival: float
    kind: str
    queued_at: float
    kinds: set[str] = field(default_factory=set)
    calls: int = 0
    context_tokens: int = 0
    given_tokens: int = 0
    decoded_tokens: int = 0
    passes: int = 0
    overtaken: int = 0
    starved: bool = False
    started: bool = False
    score: Score | None = None
    scored_in: int = 0
    scored_for: Any = None
    misfit: tuple[int, int] | None = None
    misfit_in: int = 0

    def queue(self, now: float) -> None:
        """It begins to wait, or waits on with other KV than before."""
        self.queued_at = now
        self.passes = self.overtaken = 0
        self.score = self.misfit = None
