"""Handlings with one action for every pause: preserve, discard or swap.

They are baselines, and the best choice for some traffic.
"""

from collections.abc import Sequence

from caesura.intercept.kv.handling.taking import oldest_largest_first
from caesura.intercept.kv.views import Action, Decision, PausedKVView, StepView


class _Fixed:
    """Applies `action` to every pause; kept KV is evicted on demand, oldest and largest first."""

    action: Action = "preserve"
    write_behind = False
    every_step = True

    @property
    def name(self) -> str:
        """Return the action's name."""
        return self.action

    def decide(self, paused: Sequence[PausedKVView], step: StepView) -> list[Decision]:
        """Return `action` for all requests that hold blocks and still wait for their tool."""
        if self.action == "preserve" or (self.action == "swap" and not step.swap_pays):
            return []
        return [
            Decision(one.key, self.action) for one in paused if one.resident and not one.returned
        ]

    def victims(
        self, paused: Sequence[PausedKVView], step: StepView, needed: int, forced: bool
    ) -> list[tuple[str, int]]:
        """Return the blocks to release, by elapsed time x context, largest first."""
        return oldest_largest_first(paused, needed, forced)


class Preserve(_Fixed):
    """Keeps all KV until a request needs the blocks."""

    action: Action = "preserve"
    every_step = False


class Discard(_Fixed):
    """Releases all KV at once; a resume recomputes what the prefix cache has lost."""

    action: Action = "discard"


class Swap(_Fixed):
    """Copies all KV to the host and releases it; preserves if swapping does not pay."""

    action: Action = "swap"
