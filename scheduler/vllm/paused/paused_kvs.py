"""All paused KV of one scheduler, with what must not be searched for in every step.

Ten thousand sessions may be paused, of which few return, hold blocks or lack copies. So each of
these is a collection of its own, which changes when the KV is counted.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from caesura.scheduler.vllm.paused.paused_kv import PausedKV


class PausedKVs(dict[str, PausedKV]):
    """Paused KV by the key of its request, in the order in which the pauses began."""

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
