"""What a handling sees when it decides, and what it answers: plain numbers, no engine.

Sizes are in blocks of KV cache, times in seconds, rates per second. The KV cache of a paused
request is a row of blocks, front to back. What stays resident is always a front part of it: a
prefix is all that an engine can use, so blocks are released from the back.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from caesura.intercept.kv.costs import CostModel
from caesura.intercept.kv.pause_durations import Durations

Action = Literal["preserve", "discard", "swap"]


@dataclass(frozen=True, slots=True)
class PausedKVView:
    """The KV cache of one paused request, or of a finished one whose follow-up is awaited.

    `key` names it. `tool` is the tool that it waits for, if known, `durations` what is known of
    that tool's pauses, `elapsed` how long this one has lasted, and `remaining` how long it is
    expected to last on: conditional on `elapsed`, with the floor of an overdue tool.
    `context_tokens` is C, the tokens of its context when it paused.

    `resident` blocks would become free if it were discarded; blocks shared with others do not
    count. `free_to_release` of them, from the back, lose nothing when they are released: their
    copies on the host are confirmed. `uncopied` resident blocks are neither copied nor being
    copied. `hosted` blocks of its context have a confirmed copy, resident or not. `missing` blocks
    are neither resident nor on the host: a resume recomputes them, except for what the prefix
    cache still has.

    `returned` tells that the tool has returned and the request queues.
    """

    key: str
    tool: str | None
    durations: Durations
    elapsed: float
    remaining: float
    context_tokens: int
    resident: int
    free_to_release: int
    uncopied: int
    hosted: int
    missing: int
    returned: bool = False


@dataclass(frozen=True, slots=True)
class StepView:
    """The engine before a step.

    `running_tokens` are the query tokens that the running requests will take, `running_context`
    the tokens of context that they hold together (C_other, C_batch). `free_blocks` of
    `total_blocks` are unreferenced. `host_free` blocks of host memory are free or reusable.
    `link_blocks` is what the link to the host can carry beside this step, in both directions
    together, after copies for requests that are coming back have taken their share. `swap_pays`
    is false where there is no host memory, or swapping has been measured not to pay.
    """

    block_size: int
    total_blocks: int
    free_blocks: int
    host_free: int
    running_tokens: int
    running_context: int
    link_blocks: int
    swap_pays: bool
    cost: CostModel


@dataclass(frozen=True, slots=True)
class Prices:
    """What each alternative is expected to waste from now on, in block-seconds.

    `swap` is infinite where it is no alternative.
    """

    preserve: float
    discard: float
    swap: float


@dataclass(frozen=True, slots=True)
class Decision:
    """What happens to one paused KV cache now, and what the alternatives would have cost.

    `discard` releases all of it at once. `swap` copies what has no copy yet, as far as the link's
    budget goes, and releases what is copied. `preserve` keeps it. The order of decisions is the
    order in which the link's budget is given out.
    """

    key: str
    action: Action
    prices: Prices


class Handling(Protocol):
    """Decides what happens to paused KV caches. Pure: the same view, the same answer."""

    @property
    def name(self) -> str:
        """The name under which it is selected."""
        ...

    @property
    def write_behind(self) -> bool:
        """Whether idle link time copies KV that stays, so that a later eviction is free."""
        ...

    @property
    def every_step(self) -> bool:
        """Whether `decide` has anything to say; false where blocks are only taken on demand."""
        ...

    def decide(self, paused: Sequence[PausedKVView], step: StepView) -> list[Decision]:
        """Decide for every one of `paused`; those that are left out are preserved."""
        ...

    def victims(
        self, paused: Sequence[PausedKVView], step: StepView, needed: int, forced: bool
    ) -> list[tuple[str, int]]:
        """Choose blocks to release, from the back of each, until `needed` are free.

        `forced`: a running request needs them, and pressure from running requests always wins:
        everything that is resident is eligible. Otherwise the blocks would admit a waiting
        request, and a handling may protect what is worth more where it is; then it returns
        nothing at all rather than too little.
        """
        ...
