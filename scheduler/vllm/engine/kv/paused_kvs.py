"""All paused KV of one scheduler: its blocks, and what must not be searched for in every step.

When some blocks of a paused request are released, its full blocks are *detached*: vLLM treats the
request as one that has computed nothing. The remaining front blocks are referenced here, and the
prefix cache finds them when the request is admitted. Without prefix caching, blocks cannot be found
again, so a request keeps all of its blocks or none.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from vllm.v1.request import Request

from caesura.intercept.kv.states import State, Step
from caesura.scheduler.vllm.engine.port import Block, EngineState
from caesura.scheduler.vllm.engine.port.blocks import owned_alone, referenced_once
from caesura.scheduler.vllm.engine.sessions.recorder import Recorder
from caesura.scheduler.vllm.engine.sessions.served import PausedKV
from caesura.scheduler.vllm.engine.swap.host import HostStore


def can_lose(kv: PausedKV) -> bool:
    """Return whether blocks may be released from the KV now."""
    if kv.resident <= 0 or kv.loading:
        return False
    return kv.pause is None or kv.pause.state in (State.PAUSED, State.RESUMING)


class PausedBlocks:
    """Counts and releases the blocks of paused KV."""

    def __init__(self, port: EngineState, store: HostStore | None) -> None:
        """Create it; `store` is None without a link to the host."""
        self._port = port
        self._store = store
        self.findable = port.layout.findable
        """Whether single blocks can be released and the others found again."""

    def of(self, kv: PausedKV) -> Sequence[Block]:
        """Return the resident blocks, from the first to the last."""
        if kv.detached is not None or kv.kept_as is not None:
            return self.apart(kv)
        if kv.adopter is not None:
            return self._port.blocks_of(kv.adopter.request_id)
        if kv.pause is None or not kv.pause.held:
            return ()
        return self._port.blocks_of(kv.key)

    def to_copy(self, kv: PausedKV) -> Sequence[Block]:
        """Return the resident blocks that the keys of KV identify, from the first to the last."""
        if kv.whole is None:
            return self.of(kv)[: len(kv.keys)]
        if not self.of(kv):
            return ()
        holder = kv.key if kv.adopter is None else kv.adopter.request_id
        rows = self._port.rows_of(kv.kept_as or holder)
        return [rows[place.group][place.ordinal] for place in kv.whole.places]

    def apart(self, kv: PausedKV) -> Sequence[Block]:
        """Return the resident blocks that no request holds."""
        return kv.detached or (self._port.blocks_of(kv.kept_as) if kv.kept_as is not None else ())

    def tokens_of(self, kv: PausedKV) -> tuple[int, int]:
        """Return the tokens whose KV is resident, and on the host only, of KV that lost blocks."""
        if kv.whole is not None:
            return 0, kv.whole.tokens if kv.hosted_only else 0
        size = self._port.attention_tokens
        return len(kv.detached or ()) * size, kv.hosted_only * size

    def count(self, kv: PausedKV) -> None:
        """Count the resident and the copied blocks again."""
        blocks, store = self.of(kv), self._store
        kv.present = len(blocks)
        full = min(len(blocks), len(kv.keys))
        kv.resident = owned_alone(blocks)
        in_place = kv.detached is None and kv.present > 0
        partly = in_place and kv.whole is None
        kv.partial = self._port.sizes.partly_filled(kv.context_tokens) if partly else 0
        # A request that has just finished may hold the blocks until the steps in flight end.
        kv.stale = kv.pause is None and bool(self._port.blocks_given_back())
        kv.copied = kv.covered = 0
        kv.uncopied, kv.missing = full, len(kv.keys) - full
        if not self._port.layout.plain:  # all is there, or nothing
            all_blocks = self._port.groups.blocks(kv.context_tokens, self._port.attention_tokens)
            kv.missing = 0 if kv.present else ceil(all_blocks)
        if store is None or not store.used:
            return
        has_copy = [store.slot_of(key) is not None for key in kv.keys]
        kv.copied = sum(has_copy)
        kv.uncopied = sum(not store.known(key) for key in kv.keys[:full])
        gap = next((i for i in range(full, len(has_copy)) if not has_copy[i]), len(has_copy))
        if self._port.layout.plain:
            kv.missing = len(has_copy) - gap
        elif kv.swapped:
            kv.missing = 0
        while kv.covered < full and has_copy[full - 1 - kv.covered]:
            kv.covered += 1

    def release(self, kv: PausedKV, blocks: int) -> int:
        """Release up to `blocks` blocks from the back; return how many became free.

        They are free at once, unless a step in flight may still use them.
        """
        freed = 0
        if kv.kept_as is not None or kv.adopter is not None:
            return self._release_whole(kv)
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

    def _release_whole(self, kv: PausedKV) -> int:
        """Release all blocks of a finished request; return how many became free."""
        freed = kv.resident
        if kv.adopter is not None:
            self._port.detach(kv.adopter, None)
        self.give_up(kv)
        kv.detached, kv.stale = [], True
        return freed

    def give_up(self, kv: PausedKV) -> None:
        """Release the blocks held here, which the request now holds or no request will use."""
        kv.adopter = None
        if kv.kept_as is not None:
            name, kv.kept_as = kv.kept_as, None
            kv.stale = True
            self._port.give_back_kept(name, kv.request)
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

    def keep(self, kv: PausedKV) -> None:
        """Keep all blocks of a request that is about to be freed."""
        kv.kept_as, kv.stale = self._port.keep(kv.request), True

    def adopt(self, kv: PausedKV, follow_up: Request) -> None:
        """Give the kept blocks to a follow-up that is about to be added, which extends them."""
        assert kv.kept_as is not None
        name, kv.kept_as = kv.kept_as, None
        kv.adopter, kv.stale = follow_up, True
        self._port.adopt(name, follow_up, kv.context_tokens)

    def reference(self, kv: PausedKV) -> None:
        """Reference the blocks of a request that is about to be freed."""
        assert kv.detached is not None
        self._port.blocks.reference(kv.detached)


@dataclass(slots=True)
class PausedCounts:
    """How many requests are paused, and the blocks that they alone hold, as last counted.

    `partial` blocks of theirs are partly filled.
    """

    requests: int = 0
    resident: int = 0
    partial: int = 0


class PausedKVs:
    """Paused KV by the key of its request, in the order in which the pauses began.

    Ten thousand sessions may be paused, of which few return, hold blocks or lack copies. Those are
    indexed, so that no step searches for them. The recorder is told of each new count.
    """

    def __init__(self, blocks: PausedBlocks, recorder: Recorder, counts: PausedCounts) -> None:
        """Create it; `counts` is kept up to date."""
        self.blocks = blocks
        self._recorder = recorder
        self._all: dict[str, PausedKV] = {}
        self.counts = counts
        self.holding: dict[str, PausedKV] = {}
        """Those that have blocks, in the order in which the pauses began."""
        self.returned: dict[str, PausedKV] = {}
        """Those whose tools have returned."""
        self.retained: dict[str, PausedKV] = {}
        """Those of finished requests."""
        self._adopted: dict[str, PausedKV] = {}
        """Those whose blocks a waiting follow-up holds, by its id."""
        self._expiring: OrderedDict[str, PausedKV] = OrderedDict()
        self._uncopied: dict[str, PausedKV] = {}
        self._begun = 0

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, key: str) -> bool:
        return key in self._all

    def __getitem__(self, key: str) -> PausedKV:
        return self._all[key]

    def get(self, key: str) -> PausedKV | None:
        """Return the paused KV of a request, or None without one."""
        return self._all.get(key)

    def values(self) -> Collection[PausedKV]:
        """Return all paused KV."""
        return self._all.values()

    # -- from a pause to its end -----------------------------------------------------------------

    def add(self, kv: PausedKV) -> None:
        """Add KV at the begin of its pause."""
        self._begun += 1
        kv.number = self._begun
        self._all[kv.key] = self.holding[kv.key] = self._uncopied[kv.key] = kv
        self.counts.requests += 1
        if kv.pause is None:
            self.retained[kv.key] = kv

    def expire(self, kv: PausedKV) -> None:
        """Let a pause, the latest of all, be found by `older_than`."""
        self._expiring[kv.key] = kv

    def older_than(self, begin: float) -> Iterator[PausedKV]:
        """Yield once each pause given to `expire` that began before the second `begin`."""
        while self._expiring:
            kv = next(iter(self._expiring.values()))
            if kv.since >= begin:
                return
            del self._expiring[kv.key]
            yield kv

    def give_back(self, kv: PausedKV, now: float) -> None:
        """Mark that the tool of KV has returned."""
        kv.returned, kv.returned_at = True, now
        self.returned[kv.key] = kv

    def retain(self, kv: PausedKV) -> None:
        """Keep KV whose request has finished, for a follow-up."""
        kv.pause = None
        self.retained[kv.key] = kv
        self.outdate(kv)

    def adopt(self, kv: PausedKV, follow_up: Request) -> None:
        """Give the kept blocks of KV to its follow-up, which is about to be added."""
        self.blocks.adopt(kv, follow_up)
        self._adopted[follow_up.request_id] = kv
        self.outdate(kv)

    def held_by(self, request_id: str) -> PausedKV | None:
        """Return the KV that a waiting request holds, its own or that of the one it follows."""
        return self._all.get(request_id) or self._adopted.get(request_id)

    def remove(self, kv: PausedKV) -> None:
        """Remove KV at the end of its pause, and give up the blocks that are referenced here."""
        del self._all[kv.key]
        counts = self.counts
        counts.requests -= 1
        counts.resident -= kv.resident
        counts.partial -= kv.partial
        for some in (self.holding, self.returned, self.retained, self._expiring, self._uncopied):
            some.pop(kv.key, None)
        if kv.follow_up is not None:
            self._adopted.pop(kv.follow_up, None)
        self.blocks.give_up(kv)

    # -- counts ----------------------------------------------------------------------------------

    def outdate(self, kv: PausedKV) -> None:
        """Let KV be counted again: its blocks or copies have changed."""
        kv.stale = True
        self._uncopied[kv.key] = kv

    def freshen(self, kv: PausedKV) -> None:
        """Count the KV again if its counts are stale, and tell the recorder."""
        if not kv.stale:
            return
        known, counts = self._all.get(kv.key) is kv, self.counts
        if known:
            counts.resident -= kv.resident
            counts.partial -= kv.partial
        self.blocks.count(kv)
        if known:
            counts.resident += kv.resident
            counts.partial += kv.partial
            self._index(kv)
        self._recorder.kv_changed(kv)

    def _index(self, kv: PausedKV) -> None:
        """Note whether KV holds blocks, and whether some lack a copy.

        KV without blocks gets none before its request runs again. Its copies may still be lost,
        and then it is counted again.
        """
        if not (kv.present or kv.stale):
            self.holding.pop(kv.key, None)
        if kv.uncopied or kv.stale:
            self._uncopied[kv.key] = kv
        else:
            self._uncopied.pop(kv.key, None)

    def recount(self) -> None:
        """Count all again, after the host dropped its copies."""
        for kv in tuple(self._all.values()):
            kv.stale = True
            self.freshen(kv)

    def to_copy(self) -> list[PausedKV]:
        """Return the KV that may hold blocks without a copy, in the order of the pauses."""
        return sorted(self._uncopied.values(), key=lambda kv: kv.number)

    def release(self, kv: PausedKV, blocks: int) -> int:
        """Release up to `blocks` blocks from the back of KV; return how many became free."""
        freed = self.blocks.release(kv, blocks)
        self.freshen(kv)
        return freed
