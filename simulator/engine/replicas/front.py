"""The front of several replicas: it routes sessions, epoch by epoch.

Replicas run side by side for an epoch, and tell then what has happened. So a router knows the
requests that ended up to the last epoch, and all that it has sent itself. A tool that returns in
the epoch in which it was called is routed at the end of that epoch. All else comes at its time.
A router that looks at nothing and lets sessions stay is exact, whatever the epoch.
"""

import heapq
from collections.abc import Iterator, Sequence
from math import floor, sqrt

from caesura.scheduler.policy.routing import Asked, Load, Router
from caesura.simulator.engine.replicas.messages import News, Orders, Progress, Send
from caesura.simulator.results import SessionResult
from caesura.simulator.session import Session, Workload


class Front:
    """Routes the sessions of a workload to replicas."""

    def __init__(
        self, workload: Workload, router: Router, loads: Sequence[Load], epoch_seconds: float
    ) -> None:
        """Create it; `loads` are those of empty replicas."""
        self._sessions = workload.sessions
        self._router = router
        self._loads = loads
        self._seconds = epoch_seconds
        self._next_new = 0
        self._returning: list[tuple[float, int, int]] = []
        self._returns = 0
        self._queue: list[tuple[int, float]] = []
        self._progress: dict[int, Progress] = {}
        self._holders: dict[int, int] = {}
        self._next_steps: list[float] = []
        self.results: dict[int, SessionResult] = {}
        self.begin = 0.0
        self.spreading = Spreading()

    @property
    def done(self) -> bool:
        """Return whether all sessions have ended."""
        return len(self.results) == len(self._sessions)

    def epoch(self) -> tuple[dict[int, Orders], float]:
        """Return the orders of the next epoch in which something happens, and its end."""
        soon = list(self._next_steps)
        if self._next_new < len(self._sessions):
            soon.append(self._sessions[self._next_new].arrival)
        if self._returning:
            soon.append(self._returning[0][0])
        if self._queue:
            soon.append(self.begin)
        if soon:
            self.begin = max(self.begin, floor(min(soon) / self._seconds) * self._seconds)
        end = self.begin + self._seconds
        orders: dict[int, Orders] = {}
        waiting, self._queue = self._queue, []
        for place, sent in sorted(waiting):
            self._route(orders, place, sent)
        while (event := self._next_event(end)) is not None:
            self._route(orders, event[1], event[0])
        return orders, end

    def _next_event(self, end: float) -> tuple[float, int] | None:
        """Take the next session that arrives or returns before the second `end`."""
        place = self._next_new
        new = self._sessions[place].arrival if place < len(self._sessions) else end
        if self._returning and self._returning[0][0] <= new:
            if self._returning[0][0] >= end:
                return None
            at, _, place = heapq.heappop(self._returning)
            return at, place
        if new >= end:
            return None
        self._next_new += 1
        return new, place

    def _route(self, orders: dict[int, Orders], place: int, sent: float) -> None:
        session = self._sessions[place]
        holder, progress = self._holders.get(place), self._progress.get(place)
        asked = asked_of(session, progress, holder)
        # Nobody overtakes in the one queue.
        number = None if self._queue else self._router.choose(asked, self._loads)
        if number is None:
            self._queue.append((place, sent))
            return
        load, at = self._loads[number], max(sent, self.begin)
        self._router.served(asked, load.name)
        load.requests += 1
        load.tokens += asked.tokens
        given = session.segments[asked.turn].given_tokens
        load.prefill_tokens += given if number == holder else asked.tokens
        told = orders.setdefault(number, Orders())
        self._progress.pop(place, None)
        if number == holder:
            told.sends.append(Send(place, at, sent))
            return
        if holder is not None:
            orders.setdefault(holder, Orders()).leaves.append(place)
        progress = progress or Progress(_result_of(session))
        told.sends.append(Send(place, at, sent, session, progress))
        self._holders[place] = number

    def learn(self, news: Sequence[News], end: float) -> None:
        """Take the news of all replicas at the end of an epoch."""
        self._next_steps = [one.next_at for one in news if one.next_at is not None]
        for load, one in zip(self._loads, news, strict=True):
            load.requests, load.tokens = one.requests, one.tokens
            load.prefill_tokens = one.prefill_tokens
            for returned in one.returned:
                segments = self._sessions[returned.place].segments
                self._router.ended(segments[returned.progress.index].decode_tokens)
                self._progress[returned.place] = returned.progress
                # Calls that return at the same time keep the order in which they were made.
                heapq.heappush(self._returning, (returned.at, self._returns, returned.place))
                self._returns += 1
            for ended in one.ended:
                self._router.ended(self._sessions[ended.place].segments[-1].decode_tokens)
                self.results[ended.place] = ended.result
                del self._holders[ended.place]
        if self._next_new < len(self._sessions):
            # Afterwards the replicas run empty, one after the other.
            self.spreading.look([load.requests for load in self._loads], end - self.begin)
        self.begin = end

    def unsent(self) -> Iterator[tuple[int, SessionResult]]:
        """Yield the results of sessions that still wait for their first replica, by place."""
        for place, sent in self._queue:
            if place not in self._holders:
                result = _result_of(self._sessions[place])
                result.segments.append((sent, 0.0, 0.0))
                result.segment_tokens.append(self._sessions[place].segments[0].decode_tokens)
                yield place, result


def asked_of(session: Session, progress: Progress | None, holder: int | None) -> Asked:
    """Return what a router is asked for the next segment of a session."""
    turn, before = 0, 0
    if progress is not None and progress.index >= 0:
        turn = progress.index + 1
        before = progress.context + session.segments[progress.index].decode_tokens
    prefixes: list[tuple[str, int]] = []
    if session.shared_tokens:
        prefixes.append((f"shared {session.shared_name}", session.shared_tokens))
    if before:
        # Only a session that went on from turn to turn has this prefix.
        prefixes.append((session.key, before))
    else:
        prefixes.append((session.key, session.segments[0].given_tokens))
    tokens = before + session.segments[turn].given_tokens
    return Asked(session.key, turn, tokens, tuple(prefixes), holder)


def _result_of(session: Session) -> SessionResult:
    return SessionResult(session.key, session.kind, session.arrival, session.decode_tokens)


class Spreading:
    """The mean over time of the coefficient of variation of the replicas' requests.

    0: all replicas have the same number of requests at every moment. Moments without a request do
    not count.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._sum = 0.0

    def look(self, requests: Sequence[float], seconds: float) -> None:
        """Count `requests` by replica for so many seconds."""
        total = sum(requests)
        if not total:
            return
        mean = total / len(requests)
        variance = sum((one - mean) ** 2 for one in requests) / len(requests)
        self._seconds += seconds
        self._sum += seconds * sqrt(variance) / mean

    @property
    def variation(self) -> float:
        """Return the mean coefficient of variation; 0.0 if there was no request."""
        return self._sum / self._seconds if self._seconds else 0.0
