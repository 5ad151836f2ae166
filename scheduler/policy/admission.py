"""How many requests run together: what an admission sees and answers, and the simple policies.

`past_future` has a module of its own. `StepRules` hold under every ranking and admission.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
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


class Stock:
    """Admits every request."""

    name = "vllm"

    def begin(self, running: Sequence[Batched], capacity_tokens: int) -> Gate:
        """Return the policy itself, which is its own gate since it counts nothing."""
        return self

    def admits(self, candidate: Batched) -> bool:
        """Return True."""
        return True

    def observe(self, kind: str, generated_tokens: int) -> None:
        """Do nothing: this policy does not learn."""


class Budget:
    """Admits requests while the sum of `tokens_of` each stays within `limit_tokens`.

    An empty batch admits any request, which would otherwise wait for ever.
    """

    def __init__(
        self,
        running: Sequence[Batched],
        limit_tokens: float,
        tokens_of: Callable[[Batched], int],
    ) -> None:
        self._empty = not running
        self._left = limit_tokens - sum(map(tokens_of, running))
        self._tokens_of = tokens_of

    def admits(self, candidate: Batched) -> bool:
        """Return whether the candidate fits; an admitted request counts from then on."""
        tokens = self._tokens_of(candidate)
        if tokens > self._left and not self._empty:
            return False
        self._left -= tokens
        self._empty = False
        return True


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


def tokens_at_most(one: Batched) -> int:
    """Return the tokens that a request holds once it has decoded as many as it may."""
    return one.held_tokens - one.generated_tokens + one.most_new_tokens


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


def tokens_held(one: Batched) -> int:
    """Return the tokens that a request holds now."""
    return one.held_tokens


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
