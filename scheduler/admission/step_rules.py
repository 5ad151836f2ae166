"""Rules of admission to a step that hold under every ranking: overtaking, and whose KV goes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepRules:
    """When a request goes before others that came first, and takes KV from others that came back.

    With `backfill` a request that fits goes before one that does not; a step passes over at most
    `max_misfits` requests that do not fit. A request is overtaken in at most `max_overtaken_steps`
    steps of one wait: then nothing goes before it. What it lacked is asked again after
    `misfit_steps` steps.

    Sessions that all come back at once form a convoy: each holds blocks, none can get the rest. So
    one that came back and lacks at most `max_convoy_blocks` blocks takes them from the last in the
    queue. `max_extra_requests` may be tried beyond the step's tokens, since the prefix cache may
    hold more of them than is known.
    """

    backfill: bool = True
    max_misfits: int = 64
    max_overtaken_steps: int = 512
    max_convoy_blocks: int = 8
    max_extra_requests: int = 8
    misfit_steps: int = 16

    def is_overdue(self, overtaken_steps: int) -> bool:
        """Return whether a request was overtaken so often that nothing may go before it now."""
        return overtaken_steps >= self.max_overtaken_steps

    def look_further(self, misfits: int, overtaken_steps: int) -> bool:
        """Return whether to try requests behind one that does not fit, the `misfits`th of a step.

        It was overtaken in `overtaken_steps` steps before this one.
        """
        allowed = self.backfill and misfits <= self.max_misfits
        return allowed and not self.is_overdue(overtaken_steps)

    def misfit_holds(self, steps: int) -> bool:
        """Return whether what a request lacked so many steps ago need not be asked again."""
        return steps < self.misfit_steps

    def takes_from_returned(self, short_blocks: int, came_back: bool, forced: bool) -> bool:
        """Return whether a request that lacks so many blocks takes those of others that came back.

        `came_back`: it holds paused KV itself. `forced`: nothing runs, or it is overdue.
        """
        return forced or (came_back and short_blocks <= self.max_convoy_blocks)
