"""The KV cache of paused requests, and its release block by block.

A paused request at first keeps its blocks in vLLM, so it resumes without any computation. When
some blocks are released, its full blocks are *detached*: vLLM treats the request as one that has
computed nothing. The remaining front blocks are referenced here, and the prefix cache finds them
when the request is admitted. The same class retains the blocks of a request that finished with a
call, until its follow-up arrives. Without prefix caching, blocks cannot be found again, so a
request keeps all of its blocks or none.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from vllm.v1.request import Request

from caesura.intercept.kv.pause_durations import Durations, PauseForecast
from caesura.intercept.kv.pressure import Charge
from caesura.intercept.kv.states import Pause, State, Step
from caesura.intercept.kv.views import PausedKVView, Prices, StepView
from caesura.scheduler.records import OpeningRecord
from caesura.scheduler.vllm.engine.port import Block, EngineState
from caesura.scheduler.vllm.engine.port.blocks import owned_alone, referenced_once
from caesura.scheduler.vllm.engine.port.requests import is_loading
from caesura.scheduler.vllm.engine.sessions.session import SegmentFields, SessionState
from caesura.scheduler.vllm.engine.swap.host import HostStore, Key


class Release(NamedTuple):
    """A release of blocks: its time, its action, the number of blocks and the reason.

    `prices` are those of all alternatives just before, in block-seconds; None without records.
    """

    at: float
    action: str
    blocks: int
    why: str
    prices: Prices | None


@dataclass(frozen=True, slots=True)
class Opening:
    """The state of a paused request and of the engine when the pause began, and its charge."""

    view: PausedKVView
    step: StepView
    segment: SegmentFields
    record: OpeningRecord
    charge: Charge


@dataclass(slots=True, eq=False)
class PausedKV:
    """The KV cache of a paused request, or of a finished one (`pause` is None).

    `keys` identify the content of its full blocks. `detached` are the front blocks referenced here;
    it is None while the request itself holds them. `resident`, `uncopied` and `missing` have the
    meaning of `PausedKVView`. `present` includes shared blocks. `copied` is the number of confirmed
    copies among `keys`. `covered` is the number of last resident full blocks with copies, without a
    gap. `ends_next` is the probability that the session ends with its next segment. The counts are
    out of date while `stale`. `releases` are in order of time. `opening` is the state that was
    recorded when the pause began. `forecast` is the first one that was given for this pause.
    `lost_tokens` are tokens of its context that its follow-up computes again. `number` counts the
    pauses before it.
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
    ends_next: float = 0.0
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
    opening: Opening | None = None
    forecast: PauseForecast | None = None
    lost_tokens: int = 0
    number: int = 0

    @property
    def loading(self) -> bool:
        """Whether the KV is being loaded into blocks of vLLM's, which cannot be released."""
        return self.pause is not None and is_loading(self.request)

    @property
    def hosted_only(self) -> int:
        """Number of full blocks on the host only, which a resume loads."""
        return max(0, len(self.keys) - self.present - self.missing)

    def shared_blocks(self, follow_up: Request) -> int:
        """Return how many of the full blocks a follow-up's context has as well."""
        pairs = zip(self.keys, follow_up.block_hashes, strict=False)
        return sum(ours == theirs for ours, theirs in pairs)

    def remaining(self, now: float) -> float:
        """Return the expected remaining seconds of the pause."""
        elapsed = max(0.0, now - self.since)
        remaining = self.durations.remaining(elapsed)
        deadline = None if self.pause is None else self.pause.deadline_seconds
        if deadline is None or elapsed >= deadline:
            return remaining  # after its deadline the hint says nothing more
        return min(remaining, deadline - elapsed)


class PausedKVs(dict[str, PausedKV]):
    """Paused KV by the key of its request, in the order in which the pauses began.

    Ten thousand sessions may be paused, of which few return, hold blocks or lack copies. What must
    not be searched for in every step is a collection of its own, which changes when KV is counted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.holding: dict[str, PausedKV] = {}
        """Those that have blocks, in the order in which the pauses began."""
        self.returned: dict[str, PausedKV] = {}
        """Those whose tools have returned."""
        self.retained: dict[str, PausedKV] = {}
        """Those of finished requests."""
        self.resident = 0
        """The blocks that paused KV alone holds, as they were last counted."""
        self.partial = 0
        """The paused requests that hold a block which is partly filled."""
        self._deadlines: OrderedDict[str, PausedKV] = OrderedDict()
        self._uncopied: dict[str, PausedKV] = {}
        self._counted: dict[str, tuple[int, int]] = {}
        self._numbers = 0

    def add(self, kv: PausedKV) -> None:
        """Add KV at the begin of its pause."""
        self._numbers += 1
        kv.number = self._numbers
        self[kv.key] = self.holding[kv.key] = self._uncopied[kv.key] = kv
        self._counted[kv.key] = (0, 0)
        if kv.pause is None:
            self.retained[kv.key] = kv

    def remove(self, kv: PausedKV) -> None:
        """Remove KV at the end of its pause."""
        del self[kv.key]
        resident, partial = self._counted.pop(kv.key)
        self.resident -= resident
        self.partial -= partial
        for some in (self.holding, self.returned, self.retained, self._deadlines, self._uncopied):
            some.pop(kv.key, None)

    def has_returned(self, kv: PausedKV) -> None:
        """Note that the tool of KV has returned."""
        self.returned[kv.key] = kv

    def has_deadline(self, kv: PausedKV) -> None:
        """Note that a pause, the latest of all, has a deadline."""
        self._deadlines[kv.key] = kv

    def older_than(self, begin: float) -> Iterator[PausedKV]:
        """Yield once each pause with a deadline that began before the second `begin`."""
        while self._deadlines:
            kv = next(iter(self._deadlines.values()))
            if kv.since >= begin:
                return
            del self._deadlines[kv.key]
            yield kv

    def is_retained(self, kv: PausedKV) -> None:
        """Note that the request of KV has finished."""
        self.retained[kv.key] = kv

    def outdated(self, kv: PausedKV) -> None:
        """Note that the counts of KV do not hold any more, so that it is counted again."""
        self._uncopied[kv.key] = kv

    def counted(self, kv: PausedKV, block_size: int) -> None:
        """Note that the blocks of KV were counted.

        KV without blocks gets none before its request runs again. Its copies may still be lost,
        and then it is counted again.
        """
        if self.get(kv.key) is not kv:
            return
        resident, partial = self._counted[kv.key]
        in_place = kv.detached is None and kv.present > 0
        now = (kv.resident, int(in_place and kv.context_tokens % block_size > 0))
        self.resident += now[0] - resident
        self.partial += now[1] - partial
        self._counted[kv.key] = now
        if not (kv.present or kv.stale):
            self.holding.pop(kv.key, None)
        if kv.uncopied or kv.stale:
            self._uncopied[kv.key] = kv
        else:
            self._uncopied.pop(kv.key, None)

    def to_copy(self) -> Iterable[PausedKV]:
        """Return the KV that may hold blocks without a copy, in the order of the pauses."""
        return sorted(self._uncopied.values(), key=lambda kv: kv.number)


class PausedBlocks:
    """Counts and releases the blocks of paused KV."""

    def __init__(self, port: EngineState) -> None:
        self._port = port
        self.findable = port.single_blocks_findable
        """Whether single blocks can be released and the others found again."""

    def of(self, kv: PausedKV) -> Sequence[Block]:
        """Return the resident blocks, from the first to the last."""
        if kv.detached is not None:
            return kv.detached
        if kv.pause is None or not kv.pause.held:
            return ()
        return self._port.blocks_of(kv.key)

    def refresh(self, kv: PausedKV, store: HostStore | None) -> None:
        """Count the resident and the copied blocks again."""
        blocks = self.of(kv)
        kv.present, full = len(blocks), min(len(blocks), len(kv.keys))
        kv.resident = owned_alone(blocks)
        # A request that has just finished may hold the blocks until the steps in flight end.
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
        """Release up to `blocks` blocks from the back; return how many became free.

        They are free at once, unless a step in flight may still use them.
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
        """Release the detached blocks, which the request now holds or no request will use."""
        if kv.detached:
            blocks, kv.detached = kv.detached, []
            kv.stale = True
            self._port.give_back(None, blocks)

    def _detach(self, kv: PausedKV, keep_any: bool) -> int:
        """Reset the request's computed tokens, and reference its full blocks here.

        Return how many blocks became free: a partial last one, or all of them.
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
    """Return whether blocks may be released from the KV now."""
    if kv.resident <= 0 or kv.loading:
        return False
    return kv.pause is None or kv.pause.state in (State.PAUSED, State.RESUMING)
