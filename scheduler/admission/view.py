"""What an admission policy sees of the batch and of a request that would join it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Batched:
    """A request that runs, or would.

    `held_tokens` is its context so far, prompt and decoded: what it needs in the KV cache now.
    `generated_tokens` were decoded in this segment, `most_new_tokens` is how many it may decode in
    it at most. A segment ends with the request or with a tool call: the KV of a paused request is
    reclaimable, so that to the batch's future both are the same.
    """

    key: str
    kind: str
    held_tokens: int
    generated_tokens: int
    most_new_tokens: int


class Gate(Protocol):
    """One step's admission; it counts whom it lets in."""

    def admits(self, candidate: Batched) -> bool:
        """Whether the candidate may join now; if so it belongs to the batch from here on."""
        ...


class Admission(Protocol):
    """Decides how many requests run together, beyond what blocks are free for right now.

    Pure but for the outputs that it is shown: whoever makes one that draws samples hands in the
    generator.
    """

    @property
    def name(self) -> str:
        """The name under which it is selected."""
        ...

    def begin(self, running: Sequence[Batched], capacity_tokens: int) -> Gate:
        """Look at the batch before a step; `capacity_tokens` is what the KV cache holds."""
        ...

    def observe(self, kind: str, generated_tokens: int) -> None:
        """A segment has ended after so many decoded tokens."""
        ...
