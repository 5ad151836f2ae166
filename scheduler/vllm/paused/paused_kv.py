"""The KV cache of one paused request, and giving it up block by block.

A paused request first keeps its blocks where vLLM put them: it resumes without any computation.
As soon as some of them are given up, its full blocks are *detached*: vLLM takes the request for
one that has computed nothing, and the front blocks that are left are referenced from here, so that
the prefix cache finds them again when the request is admitted. The same record keeps the blocks of
a request that has finished with a call, until its follow-up comes. Without prefix caching nothing
could be found again: there a request keeps all or nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from vllm.v1.request import Request

from caesura.intercept.kv.pause_durations import Durations
from caesura.intercept.kv.states import Pause, State, Step
from caesura.intercept.kv.views import Prices
from caesura.scheduler.vllm.engine_state import Block, EngineState
from caesura.scheduler.vllm.engine_state.blocks import owned_alone, referenced_once
from caesura.scheduler.vllm.engine_state.requests import is_loading
from caesura.scheduler.vllm.queue.sessions import SessionState
from caesura.scheduler.vllm.swap.host import HostStore, Key

if TYPE_CHECKING:
    from caesura.scheduler.vllm.records.decisions import Opening


class Release(NamedTuple):
    """Blocks that were given up: when, how, how many and why.

    `prices` are those of all alternatives just before, in block-seconds; None without records.
    """

    at: float
    action: str
    blocks: int
    why: str
    prices: Prices | None


@dataclass(slots=True, eq=False)
class PausedKV:
    """KV cache of a paused request, or of a finished one (`pause` is None).

    `keys` name the content of its full blocks. `detached` are the front blocks that are
    referenced from here; None while the request itself still holds them. `resident`, `uncopied` and
    `missing` are those of `PausedKVView`; `present` counts shared blocks too, `copied` counts the
    confirmed copies among `keys`, `covered` those of resident full blocks from the back, without a
    gap. They are counted again when they are `stale`. `releases` are in order of time.
    `opening` is what was recorded when the pause began.
    """

    key: str
    request: Request
    session: SessionState
    pause: Pause | None
    since: float
    tool: str | None
    durations: Durations
    keys: list[Key]
    context_tokens: int
    detached: list[Block] | None = None
    returned: bool = False
    returned_at: float = 0.0
    follow_up: str | None = None
    resident: int = 0
    present: int = 0
    copied: int = 0
    covered: int = 0
    uncopied: int = 0
    missing: int = 0
    stale: bool = True
    releases: list[Release] = field(default_factory=list)
    held_block_seconds: float = 0.0
    counted_at: float = 0.0
    opening: "Opening | None" = None

    @property
    def loading(self) -> bool:
        """Whether its KV is being loaded: vLLM holds blocks for it that are not ours to take."""
        return self.pause is not None and is_loading(self.request)

    @property
    def hosted_only(self) -> int:
        """Full blocks that a resume loads, since they are on the host and not resident."""
        return max(0, len(self.keys) - self.present - self.missing)

    def remaining(self, now: float) -> float:
        """Return how many seconds its tool is expected to take on."""
        elapsed = max(0.0, now - self.since)
        remaining = self.durations.remaining(elapsed)
        deadline = None if self.pause is None else self.pause.deadline_seconds
        if deadline is None or elapsed >= deadline:
            return remaining  # behind its deadline it is overdue, as any other
        return min(remaining, deadline - elapsed)

    def count(self, now: float) -> None:
        """Add the blocks that were held up to now to the bill."""
        self.held_block_seconds += self.resident * (now - self.counted_at)
        self.counted_at = now


class PausedBlocks:
    """Counts, shrinks and drops paused KV: all of its block bookkeeping."""

    def __init__(self, port: EngineState) -> None:
        self._port = port
        self.findable = port.single_blocks_findable
        """Whether single blocks can be given up and found again."""

    def of(self, kv: PausedKV) -> Sequence[Block]:
        """Return the resident blocks, front to back."""
        if kv.detached is not None:
            return kv.detached
        if kv.pause is None or not kv.pause.held:
            return ()
        return self._port.blocks_of(kv.key)

    def refresh(self, kv: PausedKV, store: HostStore | None) -> None:
        """Count again what is resident and what is copied."""
        blocks = self.of(kv)
        kv.present, full = len(blocks), min(len(blocks), len(kv.keys))
        kv.resident = owned_alone(blocks)
        # The request that has just finished may hold them until the steps in flight are over.
        kv.stale = kv.pause is None and bool(self._port.blocks_given_back())
        kv.copied = kv.covered = 0
        kv.uncopied, kv.missing = full, len(kv.keys) - full
        if store is None or not store.used:
            return
        has_copy = [store.slot_of(key) is not None for key in kv.keys]
        kv.copied = sum(has_copy)
        kv.uncopied = sum(not store.known(key) for key in kv.keys[:full])
        gap = next((i for i in range(full, len(has_copy)) if not has_copy[i]), len(has_copy))
        kv.missing = len(has_copy) - gap
        while kv.covered < full and has_copy[full - 1 - kv.covered]:
            kv.covered += 1

    def release(self, kv: PausedKV, blocks: int) -> int:
        """Give up so many blocks from the back, or all that there are; return how many.

        They are free at once, unless a step in flight may still touch them.
        """
        freed = 0
        if kv.detached is None:
            freed = self._detach(kv, keep_any=blocks < kv.resident)
        kept = kv.detached
        assert kept is not None
        given: list[Block] = []
        while kept and freed < blocks:
            block = kept.pop()
            freed += referenced_once(block)
            given.append(block)
        if given:
            self._port.give_back(kv.request, given[::-1])
        kv.stale = True
        return freed

    def forget(self, kv: PausedKV) -> None:
        """Drop the references: the request found its blocks again, or no follow-up will come."""
        if kv.detached:
            blocks, kv.detached = kv.detached, []
            kv.stale = True
            self._port.give_back(None, blocks)

    def _detach(self, kv: PausedKV, keep_any: bool) -> int:
        """Make the request one that has computed nothing; keep its full blocks from here.

        Return how many blocks that freed: those that are not full, or all of them.
        """
        pause = kv.pause
        assert pause is not None, "blocks of a finished request are detached from the start"
        pause.take(Step.RECLAIM)
        keep = len(kv.keys) if self.findable and keep_any else None
        kv.detached, freed = self._port.detach(kv.request, keep)
        return freed if keep is not None else kv.resident

    def retain(self, kv: PausedKV) -> None:
        """Reference the blocks of a request that is about to be freed."""
        assert kv.detached is not None
        self._port.blocks.reference(kv.detached)


def can_lose(kv: PausedKV) -> bool:
    """Whether blocks may be taken from it at this moment."""
    if kv.resident <= 0 or kv.loading:
        return False
    return kv.pause is None or kv.pause.state in (State.PAUSED, State.RESUMING)
