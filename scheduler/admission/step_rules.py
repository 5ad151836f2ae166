"""Rules of admission that hold under every ranking: overtaking, and taking KV from others."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepRules:
    """When a request may overtake earlier ones, and may take KV from other returned requests.

    With `backfill`, a request that fits may overtake requests that do not fit (misfits). A step
    passes over at most `max_misfits` of them. In one wait a request is overtaken in at most
    `max_overtaken_steps` steps, and in none once it has waited `max_overtaken_seconds`. After that
    it is overdue, and no request goes before it. The bound in seconds is for engines with long
    steps. A misfit is checked again after `misfit_steps` steps.

    Sessions that all return at once form a convoy: each holds blocks, and none can get the rest.
    So a returned request that lacks at most `max_convoy_blocks` blocks takes them from the last in
    the queue. Up to `max_extra_requests` are tried beyond the step's tokens, since the prefix cache
    may hold more of their tokens than is known.
    """

    backfill: bool = True
    max_misfits: int = 64
    max_overtaken_steps: int = 512
    max_overtaken_seconds: float = 60.0
    max_convoy_blocks: int = 8
    max_extra_requests: int = 8
    misfit_steps: int = 16

    def is_overdue(self, overtaken_steps: int, waited_seconds: float) -> bool:
        """Return whether a request was overtaken so often that no request may go before it.

        A request that no other has overtaken is never overdue, however long it has waited.
        """
        too_long = overtaken_steps > 0 and waited_seconds >= self.max_overtaken_seconds
        return too_long or overtaken_steps >= self.max_overtaken_steps

    def look_further(self, misfits: int, overdue: bool) -> bool:
        """Return whether to try requests behind the `misfits`th misfit of a step.

        `overdue`: no request may go before that misfit.
        """
        return self.backfill and misfits <= self.max_misfits and not overdue

    def misfit_holds(self, steps: int) -> bool:
        """Return whether a misfit checked `steps` steps ago need not be checked again."""
        return steps < self.misfit_steps

    def takes_from_returned(self, short_blocks: int, came_back: bool, forced: bool) -> bool:
        """Return whether a request that lacks `short_blocks` takes blocks of returned requests.

        `came_back`: it holds paused KV itself. `forced`: no request runs, or it is overdue.
        """
        return forced or (came_back and short_blocks <= self.max_convoy_blocks)
