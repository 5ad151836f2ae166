"""Admits by what requests hold now, up to a watermark, as if nobody decoded any further.

The aggressive baseline of Past-Future (sections 2.4 and 5.3): the memory is full, and what grows
in it is evicted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from caesura.scheduler.admission.budget import Budget
from caesura.scheduler.admission.view import Batched, Gate


def tokens_held(one: Batched) -> int:
    """Return what a request holds now."""
    return one.held_tokens


@dataclass(frozen=True, slots=True)
class Aggressive:
    """Fills `watermark` of the capacity; raises `ValueError` if that is not in (0, 1]."""

    watermark: float = 0.95

    @property
    def name(self) -> str:
        """The name under which it is selected."""
        return "aggressive"

    def __post_init__(self) -> None:
        if not 0 < self.watermark <= 1:
            raise ValueError(f"a watermark is between 0 and 1, not {self.watermark!r}")

    def begin(self, running: Sequence[Batched], capacity_tokens: int) -> Gate:
        """Return a gate that counts contexts as they are."""
        return Budget(running, capacity_tokens * self.watermark, tokens_held)

    def observe(self, kind: str, generated_tokens: int) -> None:
        """Nothing to learn."""
