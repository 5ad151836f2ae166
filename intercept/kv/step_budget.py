"""What one step may take: copies over the link, and query tokens beside requests that decode.

Requests that resume load first, since a user waits for them. Swaps come next, in the order of the
decisions. The rest of a step's link budget is for write-behind copies: of KV that stays on the
device, while the link is idle, so that a later eviction is free (InferCept, section 4.1).

Beyond saturation of the device, every query token makes a step longer, and all decoding requests
wait for it (section 4.2).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from caesura.intercept.kv.costs import SMALLEST_CHUNK, CostModel
from caesura.intercept.kv.views import ONE_GROUP, Groups, PausedKVView, StepView

SHORT_PAUSE = 0.3
"""The share of the time to load all KV below which a pause is short."""

LIKELY_END = 0.5
"""A session that ends with its next segment with a higher probability is about to end."""

USED_COPIES = 0.25
"""The assumed share of the copies made ahead whose KV is evicted and loaded again."""

IDLE_STEP_SECONDS = 0.05
"""The assumed length of a step for the link's budget while no request runs, and none can wait."""


def link_blocks(
    cost: CostModel,
    running: int,
    context_tokens: int,
    block_size: int,
    groups: Groups = ONE_GROUP,
) -> int:
    """Return the blocks to copy during a step: N with T_swap(N) = T_fwd(B) (InferCept 4.1).

    `running` requests decode in the step, with `context_tokens` together. The result is at least 1.
    """
    seconds = cost.step_seconds(running, context_tokens) if running else IDLE_STEP_SECONDS
    return max(1, int(groups.of_tokens(cost.link_tokens(seconds), block_size)))


def writes_behind(step: StepView, free_share: float) -> bool:
    """Return whether to copy KV that may never be evicted.

    It is true if swapping pays, less than `free_share` of all blocks are free, and copies cost the
    steps beside them less than the part of them that is needed will spare.
    """
    if not step.swap_pays or step.free_blocks >= free_share * step.total_blocks:
        return False
    return step.cost.copies_ahead_pay(USED_COPIES)


def turnover_seconds(step: StepView) -> float:
    """Return the seconds below which a pause is short: a share of the time to load all KV.

    Evicting for a shorter pause frees the blocks for hardly longer than their load takes.
    Infinite without a link.
    """
    return SHORT_PAUSE * step.cost.swap_seconds(step.tokens(step.total_blocks), "in")


def copy_order(paused: Iterable[PausedKVView], step: StepView) -> list[PausedKVView]:
    """Return the paused requests whose KV to copy, most useful first.

    The longest pauses come first, since their KV will be evicted first. Requests that have
    returned and wait in the queue follow, in the order of `paused`. Short pauses are left out,
    since they are never evicted by choice. Sessions that are about to end come last of all: their
    copies serve at most one resume, and those of other sessions serve every later pause too.
    """
    short = turnover_seconds(step)
    uncopied = [one for one in paused if one.uncopied > 0]
    long = [one for one in uncopied if not one.returned and one.remaining > short]
    long.sort(key=lambda one: (-one.remaining, one.key))
    order = long + [one for one in uncopied if one.returned]
    return sorted(order, key=lambda one: one.ends_next > LIKELY_END)


@dataclass(frozen=True, slots=True)
class StepTokens:
    """The limit on query tokens of steps in which requests decode.

    `chunk` is the limit in tokens; `vllm` means vLLM's own limit, and `auto` uses the saturation. A
    measured saturation is multiplied by `saturations`: at saturation, a step computes five sixths
    of the tokens per second of long steps, and at twice saturation nearly as many. A guessed
    saturation limits a step only while discarded KV is recomputed, since a guess that is too low
    would make every prefill slower than vLLM's.

    At low load the cut costs more than it saves. If at most `few_decodes` requests decode, and one
    step can compute all that waits, nothing is cut: each of the few waits once for that step, and
    no first token waits for the steps of others.
    """

    chunk: int | str = "auto"
    saturations: int = 2
    few_decodes: int = 8

    def limit(
        self,
        most: int,
        saturation: int,
        measured: bool,
        recomputes: Callable[[], bool],
        decoding: Callable[[], int],
        waiting: Callable[[], int],
    ) -> int:
        """Return the limit on query tokens of the coming step; `most` if no request decodes.

        `recomputes` returns whether discarded KV is being recomputed, `decoding` the number of
        decoding requests, and `waiting` the tokens to compute for all requests that wait for their
        next token. Each is called only if its answer matters.
        """
        chunk = self._chunk_tokens(saturation, measured, recomputes)
        if chunk is None or chunk >= most:
            return most
        decodes = decoding()
        if not decodes:
            return most
        few = self.chunk == "auto" and measured and decodes <= self.few_decodes
        if few and decodes + waiting() <= most:
            return most
        return min(most, max(chunk, decodes + SMALLEST_CHUNK))

    def _chunk_tokens(
        self, saturation: int, measured: bool, recomputes: Callable[[], bool]
    ) -> int | None:
        if isinstance(self.chunk, int):
            return self.chunk
        if self.chunk == "vllm":
            return None
        if measured:
            return self.saturations * saturation
        return saturation if recomputes() else None
