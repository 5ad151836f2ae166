"""Why a request waits: how long, what it lacked when it was looked at, and who went before it.

A waiting request is not looked at in every step, and nothing here does so either. What holds for
all requests behind a certain place of the queue is counted once a step: there are no slots left, no
tokens, or none may overtake. A wait is the difference of two such counts. Only requests that were
looked at have counts of their own.
"""

from typing import NamedTuple

from caesura.scheduler.records import LackedSteps, WaitRecord
from caesura.scheduler.vllm.queue.sessions import SessionState

LEAST_STEPS = 2
"""Shorter waits are not worth a record."""


class Lack(NamedTuple):
    """What a request lacked when it was looked at; `needed` blocks while so many were `free`.

    Empty: nothing, as far as we know, and yet vLLM may leave it waiting.
    """

    request_id: str
    what: str
    needed: int | None = None
    free: int | None = None


class _Delay:
    """A request that waits, since the wall time `since`."""

    __slots__ = ("after", "before", "lacked", "misfit", "overtaken", "session", "since", "step")

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

    def lack(self, what: str, stop: str) -> None:
        """Count a step in which it lacked something before the queue came to its `stop`."""
        self.lacked[what] = self.lacked.get(what, 0) + 1
        if stop:
            self.lacked[stop] = self.lacked.get(stop, 0) - 1


class QueueDelays:
    """The waits of one scheduler, and what the step that is being made has found out."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Delay] = {}
        self._steps = 0
        self._stops: dict[str, int] = {}
        self._looked = False
        self._lacks: list[Lack] = []
        self._stop = ""

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, request_id: str, after: str, at: float, session: SessionState) -> None:
        """It queues: new (`fresh`), `preempted`, or back from a `tool`."""
        before = dict(self._stops)
        if self._looked and self._stop:  # the step that is being made is not its own
            before[self._stop] = before.get(self._stop, 0) + 1
        self._waiting[request_id] = _Delay(after, at, self._steps + self._looked, before, session)

    def looked(self, lacks: list[Lack], stop: str) -> None:
        """A step is being made: who was looked at in vain, and why the rest was not (`stop`)."""
        self._looked, self._lacks, self._stop = True, lacks, stop

    def settle(self) -> None:
        """The step is made: count for those who still wait."""
        if not self._looked:
            return
        for lack in self._lacks:
            wait = self._waiting.get(lack.request_id)
            if wait is not None:
                wait.lack(lack.what, self._stop)
                if lack.needed is not None:
                    wait.misfit = (lack.needed, lack.free)
        if self._stop:
            self._stops[self._stop] = self._stops.get(self._stop, 0) + 1
        self._steps += 1
        self._looked, self._lacks, self._stop = False, [], ""

    def end(self, request_id: str, at: float) -> WaitRecord | None:
        """It waits no more; return the record, if it waited long enough for one."""
        wait = self._waiting.pop(request_id, None)
        if wait is None or self._steps - wait.step < LEAST_STEPS:
            return None
        needed, free = wait.misfit
        return WaitRecord(
            request=request_id,
            since=wait.since,
            until=at,
            steps=self._steps - wait.step,
            lacked=self._lacked(wait),
            needed_blocks=needed,
            free_blocks=free,
            overtaken=wait.session.overtaken - wait.overtaken,
            after=wait.after,
        )

    def _lacked(self, wait: _Delay) -> LackedSteps:
        steps = {
            what: wait.lacked.get(what, 0) + self._stops.get(what, 0) - wait.before.get(what, 0)
            for what in {*wait.lacked, *self._stops} - {""}
        }
        return LackedSteps(**{what: max(0, lacked) for what, lacked in steps.items()})
