"""Replicas of several models, which serve requests that wait for each other."""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from caesura.planning.costs.engine import EngineCosts
from caesura.planning.costs.simulation.replica import Replica


@dataclass(slots=True)
class Pool:
    """The replicas of a model, and its requests without one.

    A request goes to the loaded replica with the fewest in flight once one has fewer than its
    engine runs at a time, in the order in which requests become ready. `shares` names devices that
    other pools use as well. Each replica's KV cache holds `kv_tokens`. `sent` is when each request
    went to a replica, and to which one.
    """

    model: str
    engine: EngineCosts
    kv_tokens: int
    replicas: tuple[Replica, ...]
    shares: str = ""
    queue: deque[int] = field(default_factory=deque)
    sent: dict[int, tuple[float, Replica]] = field(default_factory=dict)

    @property
    def ready(self) -> float:
        """Return the second at which the first replica is loaded."""
        return min(replica.ready for replica in self.replicas)

    def take(self, at: float) -> Replica | None:
        """Give the first request in the queue to a replica, and return it; None without room."""
        if not self.queue:
            return None
        replica: Replica | None = None
        for other in self.replicas:
            if other.ready <= at and (replica is None or other.in_flight < replica.in_flight):
                replica = other
        if replica is None or replica.in_flight >= self.engine.most_running:
            return None
        request = self.queue.popleft()
        replica.add(request)
        self.sent[request] = (at, replica)
        return replica


class Cluster:
    """Simulates pools until no request is left that can run.

    `pool_of` is the pool of each request, and `arrivals` the second before which it cannot begin:
    infinite if it never can. `needs` is how many others a request waits for, and `needed_by` are
    the requests that wait for it. A request waits for its model too. `finished` are the ends.
    """

    def __init__(
        self,
        pools: Sequence[Pool],
        pool_of: Mapping[int, Pool],
        arrivals: Mapping[int, float],
        needs: dict[int, int],
        needed_by: Mapping[int, Sequence[int]],
    ) -> None:
        self.finished: dict[int, float] = {}
        self._pools = pools
        self._pool_of = pool_of
        self._needs, self._needed_by = needs, needed_by
        self._not_before = arrivals
        self._arrivals: list[tuple[float, float, int]] = []
        for request, at in arrivals.items():
            if request not in needs:
                self._expect(request, at)
        self._ends: list[tuple[float, int]] = []
        self._replicas = [replica for pool in pools for replica in pool.replicas]
        self._number = {id(replica): number for number, replica in enumerate(self._replicas)}
        self._owner = [pool for pool in pools for _ in pool.replicas]
        later = [(each.ready, n) for n, each in enumerate(self._replicas)]
        self._joins = sorted(one for one in later if one[0] > self._owner[one[1]].ready)
        self._joins.reverse()

    def run(self) -> None:
        """Simulate to the end."""
        while self._arrivals or self._ends:
            ends = self._ends[0][0] if self._ends else math.inf
            arrives = self._arrivals[0][0] if self._arrivals else math.inf
            if self._joins and self._joins[-1][0] <= min(ends, arrives):
                at, number = self._joins.pop()
                self._joined(self._owner[number], at)
            elif ends < arrives:
                at, number = heappop(self._ends)
                replica = self._replicas[number]
                if replica.end == at:
                    self._complete(replica, self._owner[number], at)
            else:
                self._arrive(arrives)

    def _joined(self, pool: Pool, at: float) -> None:
        """Send queued requests to a replica that is loaded now."""
        self._send(pool, at)
        if pool.shares:
            self._share(pool.shares, at)

    def _expect(self, request: int, at: float) -> None:
        """Let a request arrive at a second, or as soon as its model is loaded."""
        if at < math.inf:
            ready = max(0.0, at, self._pool_of[request].ready)
            heappush(self._arrivals, (ready, at, request))

    def _complete(self, replica: Replica, pool: Pool, at: float) -> None:
        for request in replica.complete():
            self.finished[request] = at
            for other in self._needed_by.get(request, ()):
                self._needs[other] -= 1
                if not self._needs[other]:
                    self._expect(other, max(at, self._not_before[other]))
        self._arrive(at)
        self._send(pool, at)
        if replica.idle:
            self._plan(replica, at)
        if pool.shares:
            self._share(pool.shares, at)

    def _arrive(self, at: float) -> None:
        """Queue the requests that have arrived by now, and send them."""
        reached: dict[int, Pool] = {}
        while self._arrivals and self._arrivals[0][0] <= at:
            _, _, request = heappop(self._arrivals)
            pool = self._pool_of[request]
            pool.queue.append(request)
            reached[id(pool)] = pool
        for pool in reached.values():
            self._send(pool, at)
            if pool.shares:
                self._share(pool.shares, at)

    def _send(self, pool: Pool, at: float) -> None:
        """Send queued requests; an engine sees them behind the step that is under way."""
        told: dict[int, Replica] = {}
        while (replica := pool.take(at)) is not None:
            told[id(replica)] = replica
        for replica in told.values():
            if replica.idle:
                self._plan(replica, at)
            else:
                replica.cut(at)
                self._note(replica)

    def _plan(self, replica: Replica, at: float) -> None:
        replica.plan(at)
        if not replica.idle:
            self._note(replica)

    def _note(self, replica: Replica) -> None:
        heappush(self._ends, (replica.end, self._number[id(replica)]))

    def _share(self, name: str, at: float) -> None:
        """Slow the engines of shared devices down by the number of models that work there."""
        group = [pool for pool in self._pools if pool.shares == name]
        busy = sum(any(not each.idle for each in pool.replicas) for pool in group)
        for pool in group:
            for replica in pool.replicas:
                if replica.slowdown != max(1, busy):
                    if not replica.idle:
                        replica.cut(at)
                        self._note(replica)
                    replica.slowdown = float(max(1, busy))
