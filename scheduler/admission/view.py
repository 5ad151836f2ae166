"""The input of an admission policy: the batch, and a request that would join it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Batched:
    """A running request, or a candidate.

    `held_tokens` is its context so far, prompt and decoded tokens, which the KV cache must hold.
    `generated_tokens` were decoded in this segment. `most_new_tokens` is the most that it may
    decode in this segment. A segment ends with the request or with a tool call. Both are the same
    to the batch's future, since the KV of a paused request is reclaimable.
    """

    key: str
    kind: str
    held_tokens: int
    generated_tokens: int
    most_new_tokens: int


class Gate(Protocol):
    """The admission of one step; it counts the requests that it admits."""

    def admits(self, candidate: Batched) -> bool:
        """Return whether the candidate may join now; an admitted one belongs to the batch."""
        ...


class Admission(Protocol):
    """Decides how many requests run together, beyond the check for free blocks.

    It depends only on its inputs and observations. A policy that draws samples gets its random
    generator from the constructor.
    """

    @property
    def name(self) -> str:
        """Return the name under which the policy is selected."""
        ...

    def begin(self, running: Sequence[Batched], capacity_tokens: int) -> Gate:
        """Return the gate of a step for this batch; `capacity_tokens` is the KV cache's size."""
        ...

    def observe(self, kind: str, generated_tokens: int) -> None:
        """Learn that a segment ended after `generated_tokens` decoded tokens."""
        ...
