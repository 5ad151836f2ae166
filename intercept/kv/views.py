"""The input and output of a handling: plain numbers, no engine.

Sizes are in blocks of KV cache, times in seconds, rates per second. The KV cache of a paused
request is a row of blocks, front to back. The resident blocks are always at the front, since an
engine can only use a prefix. So blocks are released from the back.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal, Protocol

from caesura.intercept.kv.costs import CostModel
from caesura.intercept.kv.pause_durations import Durations

Action = Literal["preserve", "discard", "swap"]


@dataclass(frozen=True, slots=True)
class Groups:
    """How the KV of a request divides among the groups of layers of a model.

    All groups take blocks from one pool, so that a block has as many bytes in every group. Each
    of the `growing` groups (full attention) has a block for every `block_size` tokens. Each group
    of layers with a window has at most so many blocks as `windows` says. The groups of recurrent
    layers have `states` blocks together, whatever the length of the context. A model without full
    attention has no `growing` groups; bytes are told in tokens as if it had one.
    """

    growing: int = 1
    windows: tuple[int, ...] = ()
    states: int = 0

    def told(self) -> str:
        """Return the groups in words."""
        kinds = {"full attention": self.growing, "a window": len(self.windows)}
        kinds["recurrent state"] = self.states
        return ", ".join(f"{count} of {kind}" for kind, count in kinds.items() if count)

    def fixed(self, rows: float) -> float:
        """Return the blocks beside the growing ones, of a context of `rows` x block_size tokens."""
        return sum(min(rows, most) for most in self.windows) + self.states

    def blocks(self, tokens: float, block_size: int, requests: int = 1) -> float:
        """Return the blocks of `requests` requests, whose contexts have `tokens` tokens together.

        They are a·C + b·min(C, w) + s of one request with a context of C tokens, in blocks.
        """
        rows = tokens / block_size
        if requests < 1:
            return self.growing * rows
        return self.growing * rows + requests * self.fixed(rows / requests)

    def tokens(self, blocks: float, block_size: int) -> float:
        """Return the tokens whose KV in growing groups fills so many blocks."""
        return blocks * block_size / max(1, self.growing)

    def of_tokens(self, tokens: float, block_size: int) -> float:
        """Return the blocks that the KV of so many tokens fills in growing groups."""
        return tokens * max(1, self.growing) / block_size

    def fixed_tokens(self, tokens: float, block_size: int) -> float:
        """Return what a context of so many tokens holds beside what grows, in tokens too.

        In a model without growing groups that is all, and the tokens themselves take nothing.
        """
        if not (self.windows or self.states):
            return 0.0
        fixed = self.tokens(self.fixed(tokens / block_size), block_size)
        return fixed if self.growing else fixed - tokens

    def context(self, blocks: float, block_size: int) -> float:
        """Return the longest context whose KV fits into so many blocks, in tokens.

        It is infinite where no group grows, and these blocks hold all that the others need.
        """
        left, rows = blocks - self.states, 0.0
        slope = self.growing + len(self.windows)
        if left < 0:
            return 0.0
        for most in sorted(self.windows):
            if left < slope * (most - rows):
                break
            left -= slope * (most - rows)
            rows, slope = most, slope - 1
        return (rows + left / slope) * block_size if slope else inf


ONE_GROUP = Groups()
"""All layers have full attention: Llama and its kind, and MLA."""


@dataclass(frozen=True, slots=True)
class PausedKVView:
    """The KV cache of one paused request, or of a finished one whose follow-up is awaited.

    `key` identifies it. `tool` is the tool that it waits for, None if unknown, and `durations`
    are that tool's pauses. `elapsed` is how long this pause has lasted. `remaining` is how long it
    is expected to last further: conditional on `elapsed`, with the floor of an overdue tool.
    `context_tokens` is C, the tokens of its context when it paused.

    `resident` blocks would become free if it were discarded; shared blocks do not count.
    `free_to_release` of them, from the back, have a confirmed copy on the host, so that releasing
    them loses nothing. `uncopied` resident blocks are neither copied nor being copied. `hosted`
    blocks of its context have a confirmed copy, resident or not. `missing` blocks are neither
    resident nor on the host: a resume recomputes them unless the prefix cache still has them.

    `returned`: the tool has returned and the request waits in the queue. `ends_next` is the
    probability that the session ends with its next segment. `recomputed` are the tokens that a
    resume would compute again after a discard: those behind the last place up to which the prefix
    cache or the host keeps what every group needs. None: nothing is known to be kept.
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
    ends_next: float = 0.0
    recomputed: int | None = None


@dataclass(frozen=True, slots=True)
class StepView:
    """The engine before a step.

    `running_tokens` are the query tokens that the running requests will take. `running_context`
    are the tokens of their contexts together (C_other, C_batch). `free_blocks` of `total_blocks`
    are unreferenced. `host_free` blocks of host memory are free or reusable. `link_blocks` is the
    number of blocks that the link can copy beside this step, in both directions together, after
    the loads of resuming requests. `swap_pays` is false without host memory, and where
    measurements show that swapping does not pay. `groups` are those of the model's layers.
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
    groups: Groups = ONE_GROUP

    @property
    def other_blocks(self) -> float:
        """Return C_other·M, the blocks of the running requests."""
        return self.groups.blocks(self.running_context, self.block_size, self.running_tokens)

    def tokens(self, blocks: float) -> float:
        """Return the tokens of full attention with as many bytes as so many blocks."""
        return self.groups.tokens(blocks, self.block_size)


@dataclass(frozen=True, slots=True)
class Prices:
    """The expected waste of each alternative from now on, in block-seconds.

    `swap` is infinite if swapping is impossible.
    """

    preserve: float
    discard: float
    swap: float


@dataclass(frozen=True, slots=True)
class Decision:
    """The action for one paused KV cache now.

    `discard` releases all blocks at once. `swap` copies blocks without a copy, within the link's
    budget, and releases copied blocks. `preserve` keeps all blocks. Earlier decisions have first
    claim on the link's budget.
    """

    key: str
    action: Action


class Handling(Protocol):
    """Decides what happens to paused KV caches. It is pure: the same views, the same answer."""

    @property
    def name(self) -> str:
        """Return the name under which the handling is selected."""
        ...

    @property
    def write_behind(self) -> bool:
        """Return whether idle link time copies resident KV, so that a later eviction is free."""
        ...

    @property
    def every_step(self) -> bool:
        """Return whether `decide` must run at every step; false if it never decides anything."""
        ...

    def decide(self, paused: Sequence[PausedKVView], step: StepView) -> list[Decision]:
        """Return decisions for `paused`; requests without a decision are preserved."""
        ...

    def victims(
        self, paused: Sequence[PausedKVView], step: StepView, needed: int, forced: bool
    ) -> list[tuple[str, int]]:
        """Return how many blocks to release from the back of each key, `needed` in all.

        `forced`: a running request needs the blocks, so that every resident block is eligible.
        Otherwise the blocks would admit a waiting request, and a handling may protect blocks that
        are worth more than that. If it cannot reach `needed`, it then returns an empty list.
        """
        ...
