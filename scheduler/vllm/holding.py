"""The KV cache that somebody may come back for: whose it is, and giving it up block by block.

A paused request first keeps its blocks where vLLM put them: it resumes without any computation.
As soon as some of them are given up, its full blocks are *detached*: vLLM takes the request for
one that has computed nothing, and the front blocks that are left are referenced from here, so that
the prefix cache finds them again when the request is admitted. The same record keeps the blocks of
a request that has finished with a call, until its follow-up comes. Without prefix caching nothing
could be found again: there a request keeps all or nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vllm.v1.request import Request

from caesura.intercept.kv.pause_durations import Durations
from caesura.intercept.kv.states import Pause, State, Step
from caesura.scheduler.vllm.engine_state import Block, EngineState
from caesura.scheduler.vllm.engine_state.blocks import owned_alone, referenced_once
from caesura.scheduler.vllm.engine_state.requests import is_loading
from caesura.scheduler.vllm.life import Life
from caesura.scheduler.vllm.swap.host import HostStore, Key


@dataclass(slots=True, eq=False)
class Holding:
    """KV cache of a paused request, or of a finished one (`pause` is None).

    `keys` name the content of its full blocks. `detached` are the front blocks that are
    referenced from here; None while the request itself still holds them. The counts are those of
    `PausedKV` (`resident`, `uncopied`, `missing`); `present` counts shared blocks too, `copied` the
    confirmed copies among `keys`, `covered` those of resident full blocks from the back, without a
    gap. They are counted anew when they are `stale`. `events` are what was released: when, how, how
    many blocks, and why; `opening` is what the ledger noted when the pause began, `life` is its
    session's.
    """

    key: str
    request: Request
    life: Life
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
    events: list[tuple[float, str, int, str]] = field(default_factory=list)
    held_block_seconds: float = 0.0
    counted_at: float = 0.0
    opening: Any = None

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


class Holdings:
    """Opens, shrinks and closes holdings; all block bookkeeping of paused KV is here."""

    def __init__(self, port: EngineState) -> None:
        self._port = port
        self.findable = port.single_blocks_findable
        """Whether single blocks can be given up and found again."""

    def blocks(self, holding: Holding) -> Sequence[Block]:
        """Return the resident blocks, front to back."""
        if holding.detached is not None:
            return holding.detached
        if holding.pause is None or not holding.pause.held:
            return ()
        return self._port.blocks_of(holding.key)

    def refresh(self, holding: Holding, store: HostStore | None) -> None:
        """Count what is resident and what is copied anew."""
        blocks = self.blocks(holding)
        holding.present, full = len(blocks), min(len(blocks), len(holding.keys))
        holding.resident = owned_alone(blocks)
        # The request that has just finished may hold them until the steps in flight are over.
        holding.stale = holding.pause is None and bool(self._port.blocks_given_back())
        holding.copied = holding.covered = 0
        holding.uncopied, holding.missing = full, len(holding.keys) - full
        if store is None or not store.used:
            return
        has_copy = [store.slot_of(key) is not None for key in holding.keys]
        holding.copied = sum(has_copy)
        holding.uncopied = sum(not store.known(key) for key in holding.keys[:full])
        gap = next((i for i in range(full, len(has_copy)) if not has_copy[i]), len(has_copy))
        holding.missing = len(has_copy) - gap
        while holding.covered < full and has_copy[full - 1 - holding.covered]:
            holding.covered += 1

    def release(self, holding: Holding, blocks: int) -> int:
        """Give up so many blocks from the back, or all that there are; return how many.

        They are free at once, unless a step in flight may still touch them.
        """
        freed = 0
        if holding.detached is None:
            freed = self._detach(holding, keep_any=blocks < holding.resident)
        kept = holding.detached
        assert kept is not None
        given: list[Block] = []
        while kept and freed < blocks:
            block = kept.pop()
            freed += referenced_once(block)
            given.append(block)
        if given:
            self._port.give_back(holding.request, given[::-1])
        holding.stale = True
        return freed

    def forget(self, holding: Holding) -> None:
        """Drop the references: the request found its blocks again, or nobody will come."""
        if holding.detached:
            blocks, holding.detached = holding.detached, []
            holding.stale = True
            self._port.give_back(None, blocks)

    def _detach(self, holding: Holding, keep_any: bool) -> int:
        """Make the request one that has computed nothing; keep its full blocks from here.

        Return how many blocks that freed: those that are not full, or all of them.
        """
        pause = holding.pause
        assert pause is not None, "blocks of a finished request are detached from the start"
        pause.take(Step.RECLAIM)
        keep = len(holding.keys) if self.findable and keep_any else None
        holding.detached, freed = self._port.detach(holding.request, keep)
        return freed if keep is not None else holding.resident

    def retain(self, holding: Holding) -> None:
        """Reference the blocks of a request that is about to be freed."""
        assert holding.detached is not None
        self._port.blocks.reference(holding.detached)


def can_lose(holding: Holding) -> bool:
    """Whether blocks may be taken from it at this moment."""
    if holding.resident <= 0 or holding.loading:
        return False
    return holding.pause is None or holding.pause.state in (State.PAUSED, State.RESUMING)
