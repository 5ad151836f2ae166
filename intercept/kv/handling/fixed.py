"""One answer to every pause: preserve, discard or swap. Baselines, and right for some traffic."""

from collections.abc import Sequence

from caesura.intercept.kv.handling.taking import oldest_largest_first
from caesura.intercept.kv.views import Action, Decision, PausedKVView, StepView
from caesura.intercept.kv.waste import prices


class _Fixed:
    """Does `action` to everybody; what is kept gives way on demand, oldest and largest first."""

    action: Action = "preserve"
    write_behind = False
    every_step = True

    @property
    def name(self) -> str:
        """The action's name."""
        return self.action

    def decide(self, paused: Sequence[PausedKVView], step: StepView) -> list[Decision]:
        """Decide `action` for all that hold anything and still wait for their tool."""
        if self.action == "preserve" or (self.action == "swap" and not step.swap_pays):
            return []
        return [
            Decision(one.key, self.action, prices(one, step))
            for one in paused
            if one.resident and not one.returned
        ]

    def victims(
        self, paused: Sequence[PausedKVView], step: StepView, needed: int, forced: bool
    ) -> list[tuple[str, int]]:
        """Choose by elapsed time x context, most first."""
        return oldest_largest_first(paused, needed, forced)


class Preserve(_Fixed):
    """Keeps everything until somebody needs the blocks."""

    action: Action = "preserve"
    every_step = False


class Discard(_Fixed):
    """Releases everything at once; a resume recomputes what the prefix cache has lost."""

    action: Action = "discard"


class Swap(_Fixed):
    """Copies everything to the host and releases it; preserves where the host does not pay."""

    action: Action = "swap"
