"""Who lacked free KV blocks and when, and how much they wanted those of paused requests.

Only examined requests are known to lack blocks. The cost of a step is that of the examined ones.
"""

from collections import deque
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from caesura.intercept.kv.pressure import Charge, Pressure
from caesura.scheduler.records import WantedRow
from caesura.scheduler.vllm.records.queue_delays import Lack

MOST_INTERVALS = 4096
"""The intervals of lacking that are kept for open pauses; the oldest are forgotten first."""

MOST_ROWS = 5


class Wanted(NamedTuple):
    """How many requests lacked blocks in a stretch of time, and those that did so longest."""

    requests: int
    rows: tuple[WantedRow, ...]


def lacked_blocks(lacks: Sequence[Lack], stop: str, queued: int, slots: int) -> float:
    """Return the blocks that waiting requests lack, 0 where the examined ones lack none.

    Those behind the last examined one stand in line for what it lacks. They count with the mean
    of the examined ones, as far as there are `slots` to run them.
    """
    misfits = [lack for lack in lacks if lack.what == "blocks"]
    if not misfits:
        return 0.0
    needed = sum(lack.needed or 0 for lack in misfits)
    waiting = len(misfits)
    if stop == "line":
        waiting = max(waiting, min(waiting + queued - len(lacks), slots))
    return max(0.0, needed / len(misfits) * waiting - (misfits[-1].free or 0))


class BlockDemand:
    """The demand for one engine's blocks over time, and the charges of its pauses."""

    def __init__(self) -> None:
        self._pressure = Pressure()
        self._lacks: list[Lack] = []
        self._stop = ""
        self._lacking: dict[str, float] = {}
        self._past: deque[tuple[float, float, str]] = deque(maxlen=MOST_INTERVALS)
        self._since: dict[Charge, float] = {}

    def looked(self, lacks: list[Lack], stop: str) -> None:
        """Note what the examined requests lacked in the step that is being scheduled."""
        self._lacks, self._stop = lacks, stop

    def stepped(self, now: float, free: int, queued: int, slots: int) -> None:
        """Settle a scheduled step, which left `free` blocks, `slots` and `queued` requests."""
        lacks, self._lacks = self._lacks, []
        self._pressure.lack(now, lacked_blocks(lacks, self._stop, queued, slots), free)
        self._note(now, [lack.request_id for lack in lacks if lack.what == "blocks"])

    def _note(self, now: float, lacking: Sequence[str]) -> None:
        if not (lacking or self._lacking):
            return
        still = {request_id: self._lacking.pop(request_id, now) for request_id in lacking}
        if self._since:
            self._past.extend((now, since, request) for request, since in self._lacking.items())
        self._lacking = still

    # -- pauses ----------------------------------------------------------------------------------

    def begin(self, now: float, blocks: int) -> Charge:
        """Return the charge of a pause that begins with `blocks` blocks."""
        charge = self._pressure.begin(now, blocks)
        self._since[charge] = now
        return charge

    def change(self, charge: Charge, now: float, held: int) -> None:
        """Let a pause hold `held` blocks from now on."""
        self._pressure.change(charge, now, held)

    def result(self, charge: Charge, now: float) -> None:
        """Note that the result of a pause has come."""
        self._pressure.result(charge, now)

    def end(self, charge: Charge, now: float) -> None:
        """Close the charge of a pause, and forget who lacked blocks before all open ones."""
        self._pressure.end(charge, now)
        self._since.pop(charge, None)
        oldest = next(iter(self._since.values()), None)
        while self._past and (oldest is None or self._past[0][0] <= oldest):
            self._past.popleft()

    def wanted(self, begin: float, end: float) -> Wanted:
        """Return who lacked blocks from `begin`, when a pause still open began, to `end`."""
        seconds: dict[str, float] = {}
        lacking = [(end, since, request) for request, since in self._lacking.items()]
        for until, since, request in chain(lacking, reversed(self._past)):
            if until <= begin:
                break
            lacked = min(until, end) - max(since, begin)
            if lacked > 0:
                seconds[request] = seconds.get(request, 0.0) + lacked
        longest = sorted(seconds.items(), key=lambda item: (-item[1], item[0]))[:MOST_ROWS]
        return Wanted(len(seconds), tuple(WantedRow(who, round(s, 6)) for who, s in longest))
