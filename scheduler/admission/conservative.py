"""Admits as if every request decoded as many tokens as it may.

The conservative baseline of Past-Future (sections 2.4 and 5.3), as in TGI and DeepSpeed-MII:
nobody is ever evicted, and most of the memory stays empty.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from caesura.scheduler.admission.budget import Budget
from caesura.scheduler.admission.view import Batched, Gate


def tokens_at_most(one: Batched) -> int:
    """Return what a request holds when it has decoded as much as it may."""
    return one.held_tokens - one.generated_tokens + one.most_new_tokens


@dataclass(frozen=True, slots=True)
class Conservative:
    """Takes the capacity for `overcommit` times what it is; raises `ValueError` if not above 0."""

    overcommit: float = 1.0

    @property
    def name(self) -> str:
        """The name under which it is selected."""
        return "conservative"

    def __post_init__(self) -> None:
        if not 0 < self.overcommit < inf:
            raise ValueError(f"overcommit is a positive number, not {self.overcommit!r}")

    def begin(self, running: Sequence[Batched], capacity_tokens: int) -> Gate:
        """Return a gate that counts prompts and the most that is decoded."""
        return Budget(running, capacity_tokens * self.overcommit, tokens_at_most)

    def observe(self, kind: str, generated_tokens: int) -> None:
        """Nothing to learn."""
