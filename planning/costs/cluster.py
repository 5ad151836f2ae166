"""Replicas of several models, which serve requests that wait for each other.

A replica batches continuously, and is simulated in jumps of many steps. Requests are served in
their order. A step takes one token of each decoding request and prefills up to the chunk budget.
Between two events the batch stays the same, and a step's time is close to linear in the context: k
steps take k times the step in their middle.
"""

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np

from caesura.planning.costs.engine import EngineCosts
from caesura.planning.costs.work import Array, Indices, Run, Work
from caesura.simulator.machine import StepShape

Items = Sequence[int]


class Replica:
    """An engine with requests, numbered as in `prompts` and `outputs` (tokens of each).

    An action is one step that prefills, or some steps that only decode. `plan` begins it,
    `complete` ends it, and `cut` shortens it. `begun` are tokens that requests have decoded before,
    with their KV on the devices. It is loaded at the second `ready`. `slowdown` is how many engines
    share the devices' time.

    The KV cache holds `kv_tokens`. Every request wastes half of its last block on average, which
    counts as held. Without room for the next step the request that was admitted last is preempted
    and waits at the head; it is computed again from its prompt. `in_flight` is the number of its
    requests.
    """

    def __init__(
        self,
        engine: EngineCosts,
        kv_tokens: int,
        prompts: Items,
        outputs: Items,
        begun: dict[int, int] | None = None,
        ready: float = 0.0,
    ) -> None:
        self.ready = ready
        self.now = 0.0
        self.end = math.inf
        self.slowdown = 1.0
        self.first: dict[int, float] = {}
        self.preemptions = 0
        self.steps = 0
        self.in_flight = 0
        self._seconds = engine.latency.seconds
        self._most, self._chunk = engine.most_running, engine.chunk_tokens
        self._half = (engine.block_tokens - 1) / 2
        self._room = kv_tokens
        self._prompts, self._outputs = prompts, outputs
        self._resident = begun or {}
        self._decoded: dict[int, int] = {}
        self._waiting: deque[int] = deque()
        self._prefilling: deque[tuple[int, int, int]] = deque()  # request, computed, in all
        self._prefill_held = 0
        self._running: dict[int, int] = {}  # request -> context at step 0, extrapolated
        self._base = 0
        self._ends: list[tuple[int, int, int]] = []  # the step, the request, its base
        self._longest: list[tuple[int, int]] = []
        self._jump = 0
        self._prefilled: list[int] = []
        self._prefilled_held = 0.0

    @property
    def idle(self) -> bool:
        """Return whether no action is under way."""
        return self.end == math.inf

    def add(self, request: int) -> None:
        """Add a request behind the others; `plan` or `cut` must follow."""
        self._waiting.append(request)
        self.in_flight += 1

    def plan(self, at: float) -> None:
        """Begin the next action at the second `at`, if there is work."""
        self.now = at
        self.end = math.inf
        if self._resident:
            self._continue()
        if not self.in_flight:
            return
        self._make_room()
        if (self._waiting or self._prefilling) and self._prefill():
            return
        if not self._running:
            raise ValueError(
                f"a request of {self._prompts[self._waiting[0]]} tokens does not fit into a KV"
                f" cache of {self._room} tokens"
            )
        self._decode(self._next_end() - self.steps)

    def cut(self, at: float) -> None:
        """End a jump with the step that is under way at the second `at`."""
        if self._jump > 1 and at < self.end:
            share = (at - self.now) / (self.end - self.now)
            self._decode(max(1, min(self._jump, math.ceil(share * self._jump))))

    def complete(self) -> list[int]:
        """End the action, and return the requests that finished with it."""
        self.now, self.steps = self.end, self.steps + self._jump
        for request in self._prefilled:
            self._start(request, self._prompts[request] + self._decoded.get(request, 0))
        self._prefilled, self._prefilled_held = [], 0.0
        finished = []
        while self._ends and self._ends[0][0] <= self.steps:
            _, request, base = heappop(self._ends)
            if self._running.get(request) == base:
                del self._running[request]
                self._base -= base
                finished.append(request)
        self.in_flight -= len(finished)
        self.end = math.inf
        return finished

    def _continue(self) -> None:
        """Take up the waiting requests whose KV is on the devices already."""
        for request in [each for each in self._waiting if each in self._resident]:
            decoded = self._resident[request]
            self._decoded[request] = decoded - 1
            self._waiting.remove(request)
            self._start(request, self._prompts[request] + decoded - 1)
        self._resident = {}

    def _start(self, request: int, context: int) -> None:
        """Let a request decode that has sampled a token behind `context` computed tokens."""
        base = context - self.steps
        left = self._outputs[request] - self._decoded.get(request, 0) - 1
        self._running[request] = base
        self._base += base
        self.first.setdefault(request, self.now)
        heappush(self._ends, (self.steps + left, request, base))
        heappush(self._longest, (-base, request))

    def _next_end(self) -> int:
        while self._running.get(self._ends[0][1]) != self._ends[0][2]:
            heappop(self._ends)
        return self._ends[0][0]

    def _longest_context(self, step: float) -> float:
        longest = self._longest
        while longest and self._running.get(longest[0][1]) != -longest[0][0]:
            heappop(longest)
        return step - longest[0][0] if longest else 0.0

    def _context(self, step: float) -> float:
        return self._base + len(self._running) * step

    def _held(self) -> float:
        count = len(self._running) + len(self._prefilling)
        return self._context(self.steps) + self._prefill_held + count * self._half

    def _make_room(self) -> None:
        """Preempt requests until the others have room for the next step."""
        while len(self._running) > 1 and self._held() + len(self._running) > self._room:
            request, base = self._running.popitem()
            self._base -= base
            self._decoded[request] = self.steps + base - self._prompts[request] + 1
            self._waiting.appendleft(request)
            self.preemptions += 1

    def _prefill(self) -> bool:
        """Begin a step with prefills; return False if none has room."""
        decodes = len(self._running)
        budget = self._chunk - decodes
        tokens, sequences, pairs = decodes, decodes, 0.0
        context = self._context(self.steps + 1)
        longest = self._longest_context(self.steps + 1)
        while budget > 0 and (request := self._to_prefill(len(self._prefilled))) is not None:
            _, computed, total = request
            taken = min(budget, total - computed)
            budget -= taken
            tokens, sequences = tokens + taken, sequences + 1
            pairs += taken * computed + taken * (taken + 1) / 2
            context += computed + taken
            longest = max(longest, computed + taken)
            self._advance(request, taken)
        if tokens == decodes:
            return False
        shape = StepShape(tokens, sequences, decodes, int(context), int(longest), pairs)
        self._jump = 1
        self.end = self.now + self._seconds(shape) * self.slowdown
        return True

    def _to_prefill(self, done: int) -> tuple[int, int, int] | None:
        """Return the next request to prefill: one that has begun, or one that is admitted now."""
        if self._prefilling:
            return self._prefilling[0]
        count = len(self._running) + done
        if not self._waiting or count >= self._most:
            return None
        request = self._waiting[0]
        total = self._prompts[request] + self._decoded.get(request, 0)
        held = self._held() + len(self._running) + self._prefilled_held
        if held + total + self._half > self._room:
            return None
        self._waiting.popleft()
        self._prefilling.append((request, 0, total))
        self._prefill_held += total
        return self._prefilling[0]

    def _advance(self, prefill: tuple[int, int, int], taken: int) -> None:
        request, computed, total = prefill
        self._prefilling.popleft()
        if computed + taken < total:
            self._prefilling.appendleft((request, computed + taken, total))
        else:
            self._prefill_held -= total
            self._prefilled_held += total + self._half
            self._prefilled.append(request)

    def _decode(self, steps: int) -> None:
        """Begin a jump of at most `steps` steps, for which the KV cache has room."""
        count = len(self._running)
        room = int((self._room - self._held()) // count)
        self._jump = max(1, min(steps, room))
        middle = self.steps + (self._jump + 1) / 2
        context, longest = self._context(middle), self._longest_context(middle)
        shape = StepShape(count, count, count, int(context), int(longest), 0.0)
        self.end = self.now + self._jump * self._seconds(shape) * self.slowdown


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


Edges = tuple[Indices, Indices]
"""Who waits (the second) for whom (the first), both (m,)."""

Part = tuple[Indices, Array, Array]
"""The requests of a component (k,): numbers, seconds of arrival, tokens decoded before."""

Simulate = Callable[[Work, Sequence[Pool], Part, Edges], Run]
"""Returns the run of a component: its pools, its requests, and the needs among these."""


def run_component(work: Work, pools: Sequence[Pool], part: Part, edges: Edges) -> Run:
    """Return the run of a component, in jumps of many steps."""
    cluster = run_cluster(work, pools, part, edges)
    first: dict[int, float] = {}
    for pool in pools:
        for replica in pool.replicas:
            first |= replica.first
    return run_of(part, first, cluster.finished)


def run_cluster(work: Work, pools: Sequence[Pool], part: Part, edges: Edges) -> Cluster:
    """Return a cluster that has run; requests that have begun already go first."""
    numbers, arrivals, decoded = part
    by_model = {pool.model: pool for pool in pools}
    places = work.model_of[numbers].tolist()
    pool_of = {
        number: by_model[work.models[place]]
        for number, place in zip(numbers.tolist(), places, strict=True)
    }
    needs: dict[int, int] = {}
    needed_by: dict[int, list[int]] = {}
    for source, target in zip(*(each.tolist() for each in edges), strict=True):
        needs[target] = needs.get(target, 0) + 1
        needed_by.setdefault(source, []).append(target)
    there = dict(zip(numbers.tolist(), arrivals.tolist(), strict=True))
    for number in numbers[decoded > 0].tolist():
        there[number] = -1.0
    cluster = Cluster(pools, pool_of, there, needs, needed_by)
    cluster.run()
    return cluster


def run_of(part: Part, first: dict[int, float], ends: dict[int, float]) -> Run:
    """Return a run from the seconds of first tokens and ends; others never run."""
    numbers, _, decoded = part
    return Run(
        numbers,
        decoded,
        np.array([first.get(number, np.inf) for number in numbers.tolist()]),
        np.array([ends.get(number, np.inf) for number in numbers.tolist()]),
    )
