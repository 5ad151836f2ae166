"""Records why a request waited: for how long, what it lacked, and how often it was overtaken.

The scheduler examines only the front of the queue in a step. All requests behind it lack the same:
slots, tokens, or the right to overtake. They share one count per step, and a wait is the difference
of two such counts. Only examined requests have counts of their own, so a step costs O(examined).
"""

from collections import deque
from typing import NamedTuple

from caesura.scheduler.records import LackedSteps, WaitRecord
from caesura.scheduler.vllm.queue.sessions import SessionState

MIN_STEPS = 2
"""Waits of fewer steps are not recorded."""

FRONTS = 16
"""How many requests that stood before others are remembered."""


class Lack(NamedTuple):
    """What an examined request lacked; for blocks also the `needed` and the `free` number.

    For admission, `batch` is the number of requests that ran. `what` is empty if the request should
    fit; vLLM may still leave it waiting.
    """

    request_id: str
    what: str
    needed: int | None = None
    free: int | None = None
    batch: int | None = None


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
