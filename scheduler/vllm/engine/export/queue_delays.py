"""Why requests waited, and how much they wanted the blocks of paused requests meanwhile.

The scheduler examines only the front of the queue in a step. All requests behind it lack the same:
slots, tokens, or the right to overtake. They share one count per step, and a wait is the difference
of two such counts. Only examined requests have counts of their own, and only they are known to lack
blocks, so a step costs O(examined).
"""

from collections import deque
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from caesura.intercept.kv.pressure import Charge, Pressure
from caesura.scheduler.records import LackedSteps, WaitRecord, WantedRow
from caesura.scheduler.vllm.engine.sessions.recorder import Lack
from caesura.scheduler.vllm.engine.sessions.session import SessionState

MIN_STEPS = 2
"""Waits of fewer steps are not recorded."""


FRONTS = 16
"""How many requests that stood before others are remembered."""


MOST_INTERVALS = 4096
"""The intervals of lacking that are kept for open pauses; the oldest are forgotten first."""


MOST_ROWS = 5


class _Delay:
    """The wait of one request, which began at the wall time `since`."""

    __slots__ = (
        "after",
        "batch",
        "before",
        "examined",
        "lacked",
        "misfit",
        "overtaken",
        "session",
        "since",
        "step",
    )

    def __init__(
        self, after: str, since: float, step: int, before: dict[str, int], session: SessionState
    ) -> None:
        self.after = after
        self.since = since
        self.step = step
        self.before = before
        self.session = session
        self.overtaken = session.overtaken
        self.lacked: dict[str, int] = {}
        self.misfit: tuple[int | None, int | None] = (None, None)
        self.batch: int | None = None
        self.examined = -1

    def lack(self, what: str, stop: str) -> None:
        """Count a step in which the request lacked `what`; do not count `stop` for it."""
        self.lacked[what] = self.lacked.get(what, 0) + 1
        if stop:
            self.lacked[stop] = self.lacked.get(stop, 0) - 1


class QueueDelays:
    """The waits of one scheduler's requests, and the findings of the step being scheduled."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Delay] = {}
        self._steps = 0
        self._stops: dict[str, int] = {}
        self._looked = False
        self._lacks: list[Lack] = []
        self._stop = ""
        self._front = ""
        self._fronts: deque[tuple[int, str]] = deque(maxlen=FRONTS)
        """The last requests that nobody was to overtake, each with its last such step."""

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, request_id: str, after: str, at: float, session: SessionState) -> None:
        """Begin a wait; `after` is `fresh` for a new request, else `preempted` or `tool`."""
        before = dict(self._stops)
        if self._looked and self._stop:  # the current step does not count for this request
            before[self._stop] = before.get(self._stop, 0) + 1
        self._waiting[request_id] = _Delay(after, at, self._steps + self._looked, before, session)

    def looked(self, lacks: list[Lack], stop: str, front: str = "") -> None:
        """Note what the examined requests lacked, and why the others were not examined (`stop`).

        `front` is the request that must not be overtaken, where that is why.
        """
        self._looked, self._lacks, self._stop, self._front = True, lacks, stop, front

    def settle(self) -> None:
        """Count the scheduled step for the requests that still wait."""
        if not self._looked:
            return
        for lack in self._lacks:
            wait = self._waiting.get(lack.request_id)
            if wait is not None:
                wait.lack(lack.what, self._stop)
                wait.examined = self._steps
                if lack.needed is not None:
                    wait.misfit = (lack.needed, lack.free)
                if lack.batch is not None:
                    wait.batch = lack.batch
        if self._stop:
            self._stops[self._stop] = self._stops.get(self._stop, 0) + 1
        if self._front:
            if self._fronts and self._fronts[-1][1] == self._front:
                self._fronts.pop()
            self._fronts.append((self._steps, self._front))
        self._steps += 1
        self._looked, self._lacks, self._stop, self._front = False, [], "", ""

    def end(self, request_id: str, at: float) -> WaitRecord | None:
        """End a wait; return its record, or None if it was shorter than `MIN_STEPS`."""
        wait = self._waiting.pop(request_id, None)
        if wait is None or self._steps - wait.step < MIN_STEPS:
            return None
        needed, free = wait.misfit
        lacked = self._lacked(wait)
        return WaitRecord(
            request=request_id,
            since=wait.since,
            until=at,
            steps=self._steps - wait.step,
            lacked=lacked,
            needed_blocks=needed,
            free_blocks=free,
            overtaken=wait.session.overtaken - wait.overtaken,
            behind=self._ahead_of(request_id, wait) if lacked.line else None,
            admitted_most=wait.batch,
            after=wait.after,
        )

    def _ahead_of(self, request_id: str, wait: _Delay) -> str | None:
        """Return the last request that this one stood behind without being examined."""
        for step, front in reversed(self._fronts):
            if step >= wait.step and step != wait.examined and front != request_id:
                return front
        return None

    def _lacked(self, wait: _Delay) -> LackedSteps:
        steps = {
            what: wait.lacked.get(what, 0) + self._stops.get(what, 0) - wait.before.get(what, 0)
            for what in {*wait.lacked, *self._stops} - {""}
        }
        return LackedSteps(**{what: max(0, lacked) for what, lacked in steps.items()})


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
