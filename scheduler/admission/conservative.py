"""Admission as if every request decoded as many tokens as it may.

This is the conservative baseline of Past-Future (sections 2.4 and 5.3), as in TGI and
DeepSpeed-MII: no request is ever evicted, and most of the memory stays empty.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from caesura.scheduler.admission.budget import Budget
from caesura.scheduler.admission.view import Batched, Gate


def tokens_at_most(one: Batched) -> int:
    """Return the tokens that a request holds once it has decoded as many as it may."""
    return one.held_tokens - one.generated_tokens + one.most_new_tokens


@dataclass(frozen=True, slots=True)
class Conservative:
    """Admits up to `overcommit` times the capacity; raises `ValueError` if that is not above 0."""

    overcommit: float = 1.0

    @property
    def name(self) -> str:
        """Return the name under which the policy is selected."""
        return "conservative"

    def __post_init__(self) -> None:
        if not 0 < self.overcommit < inf:
            raise ValueError(f"overcommit must be a positive number, got {self.overcommit!r}")

    def begin(self, running: Sequence[Batched], capacity_tokens: int) -> Gate:
        """Return a gate that counts the prompt and the most tokens that may be decoded."""
        return Budget(running, capacity_tokens * self.overcommit, tokens_at_most)

    def observe(self, kind: str, generated_tokens: int) -> None:
        """Do nothing: this policy does not learn."""
