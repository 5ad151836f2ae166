"""Admission by the tokens that requests hold now, up to a watermark.

This is the aggressive baseline of Past-Future (sections 2.4 and 5.3). It ignores further decoding:
the memory is full, and requests that grow cause evictions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from caesura.scheduler.admission.budget import Budget
from caesura.scheduler.admission.view import Batched, Gate


def tokens_held(one: Batched) -> int:
    """Return the tokens that a request holds now."""
    return one.held_tokens


@dataclass(frozen=True, slots=True)
class Aggressive:
    """Fills the share `watermark` of the capacity; raises `ValueError` if it is not in (0, 1]."""

    watermark: float = 0.95

    @property
    def name(self) -> str:
        """Return the name under which the policy is selected."""
        return "aggressive"

    def __post_init__(self) -> None:
        if not 0 < self.watermark <= 1:
            raise ValueError(f"watermark must be > 0 and <= 1, got {self.watermark!r}")

    def begin(self, running: Sequence[Batched], capacity_tokens: int) -> Gate:
        """Return a gate that counts the tokens of each context."""
        return Budget(running, capacity_tokens * self.watermark, tokens_held)

    def observe(self, kind: str, generated_tokens: int) -> None:
        """Do nothing: this policy does not learn."""
