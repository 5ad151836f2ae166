"""The bounds on requests: how many are under way, and how long they may wait for the engine.

The engine's records predict the wait. The unit is a second of the whole engine. A request takes the
time to compute what it misses, and its share of the engine for as long as it decodes. The share is
that of the KV cache, its memory-time, or that of the runner's slots where these are scarcer.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import Any, NamedTuple

from prometheus_client import Gauge

from caesura.intercept.kv.views import ONE_GROUP, Groups
from caesura.runtime.server.http.errors import ApiError
from caesura.runtime.server.keys.quota import Quotas
from caesura.runtime.server.keys.sender import Sender
from caesura.runtime.supervision import NotReady

_CODES = {"draining": "server_shutting_down"}
RECENT = 0.8
"""Weight of what was known before, at each record of steps and at each queued request."""
MAX_RETRY_SECONDS = 300
"""The longest `Retry-After`: predictions of far times are poor."""
MAX_UNTOLD_SECONDS = 5.0
"""How long an admitted request is counted while no record tells of it: it may never reach one."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The sizes of an engine: tokens of a block and of the KV cache, and slots of the runner.

    `groups` are those of its layers, of which a request's blocks are the sum.
    """

    block_size: int
    capacity_tokens: int
    slots: int
    groups: Groups = ONE_GROUP

    def held_tokens(self, tokens: float) -> float:
        """Return the memory of a context, in tokens of full attention."""
        return tokens + self.groups.fixed_tokens(tokens, self.block_size)

    def tokens_in(self, blocks: float) -> float:
        """Return the tokens of the context that so many blocks hold."""
        return self.groups.context(blocks, self.block_size)


class Waiting(NamedTuple):
    """A request in the queue: its context, how much of that has no KV, and what it will decode."""

    context_tokens: float
    missing_tokens: float
    decode_tokens: float


@dataclass(slots=True)
class Pace:
    """How long steps take, learned from records of steps."""

    step_seconds: float = 0.0
    """Mean duration of a step."""
    token_seconds: float = 0.0
    """Seconds per query token, in steps that compute prompts."""

    def learn(self, steps: Mapping[str, Sequence[float]]) -> None:
        """Take the columns of a record of steps."""
        seconds = steps["seconds"]
        if not seconds:
            return
        self.step_seconds = _mixed(self.step_seconds, sum(seconds) / len(seconds))
        spent = tokens = 0.0
        columns = (steps[f"{kind}_tokens"] for kind in ("prefill", "recompute", "decode"))
        for each, prefill, recompute, decode in zip(seconds, *columns, strict=True):
            if prefill + recompute > 0:
                spent += each
                tokens += prefill + recompute + decode
        if tokens:
            self.token_seconds = _mixed(self.token_seconds, spent / tokens)


class Backlog:
    """The queue of one engine, as its records tell it."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._pace = Pace()
        self._decode: dict[str, float] = {}
        """Tokens that each live request is expected to decode in its segment."""
        self._waiting: dict[str, Waiting] = {}
        self._mean = Waiting(0.0, 0.0, 0.0)
        """A request in the queue, on average of the last ones."""
        self._seconds: float | None = None
        """The sum for `_waiting`; None if it has to be computed."""
        self.told_until = 0.0
        """The time of the last change or step that was told, in Unix seconds."""

    def take(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Take records of the engine, oldest first; those of other kinds tell nothing."""
        for record in records:
            match record["kind"]:
                case "forecast":
                    self._forecast(record)
                case "lanes":
                    self._lanes(record)
                case "steps" if record["at"]:
                    self._pace.learn(record)
                    self._told(record["at"][-1])
                case _:
                    pass

    def forget(self) -> None:
        """Forget all requests: the engine has ended with them. What was learned stays."""
        self._decode.clear()
        self._waiting.clear()
        self._seconds = None

    @property
    def seconds(self) -> float:
        """The predicted work of the requests that wait, which a new one would wait for."""
        if self._seconds is None:
            self._seconds = sum(map(self._work, self._waiting.values()))
        return self._seconds

    @property
    def mean_seconds(self) -> float:
        """The predicted work of a request, on average of the last ones that were queued."""
        return self._work(self._mean)

    def _work(self, request: Waiting) -> float:
        machine, pace = self._machine, self._pace
        held_tokens = machine.held_tokens(request.context_tokens + request.decode_tokens / 2)
        share = min(1.0, max(held_tokens / machine.capacity_tokens, 1 / machine.slots))
        computing = request.missing_tokens * pace.token_seconds
        return computing + request.decode_tokens * pace.step_seconds * share

    def _forecast(self, record: Mapping[str, Any]) -> None:
        predictions = record["predictions"]
        # The first row is the predictor in use.
        if predictions and (tokens := predictions[0]["decode_tokens"]) is not None:
            self._decode[record["request"]] = tokens

    def _lanes(self, record: Mapping[str, Any]) -> None:
        columns = (record[name] for name in ("request", "state", "blocks", "host", "tokens"))
        for request, state, blocks, host, tokens in zip(*columns, strict=True):
            if state == "waiting":
                missing = max(0.0, tokens - self._machine.tokens_in(blocks + host))
                decode = self._decode.get(request, self._mean.decode_tokens)
                queued = self._waiting[request] = Waiting(tokens, missing, decode)
                pairs = zip(self._mean, queued, strict=True)
                self._mean = Waiting(*(_mixed(old, new) for old, new in pairs))
            else:
                self._waiting.pop(request, None)
                if state == "ended":
                    self._decode.pop(request, None)
        self._seconds = None
        if record["at"]:
            self._told(record["at"][-1])

    def _told(self, at: float) -> None:
        self._seconds = None  # the pace may have changed too
        self.told_until = max(self.told_until, at)


def _mixed(old: float, new: float) -> float:
    return RECENT * old + (1 - RECENT) * new if old else new


class Refusal(NamedTuple):
    """Why a request is refused, as an error's code and message, and the seconds to wait."""

    code: str
    message: str
    retry_seconds: int


def refusal(
    in_flight: int, most_in_flight: int, wait_seconds: float, most_wait_seconds: float
) -> Refusal | None:
    """Return why a request may not begin, or None if it may.

    `wait_seconds` is how long it is predicted to wait. With `most_wait_seconds` 0 it may wait for
    ever. Pure.
    """
    if in_flight >= most_in_flight:
        retry = _whole(wait_seconds)
        return Refusal(
            "too_many_requests",
            f"{most_in_flight} requests are in flight, the most that this server takes: retry "
            f"after {retry} s.",
            retry,
        )
    if most_wait_seconds and wait_seconds > most_wait_seconds:
        retry = _whole(wait_seconds - most_wait_seconds)
        return Refusal(
            "queue_too_long",
            f"The request would wait for about {wait_seconds:.0f} s, and this server lets none "
            f"wait for more than {most_wait_seconds:g} s (--max-queue-seconds): retry after "
            f"{retry} s.",
            retry,
        )
    return None


def _whole(seconds: float) -> int:
    return min(MAX_RETRY_SECONDS, max(1, ceil(seconds)))


class QueueBound:
    """The predicted wait of a new request, over all engines of a server, and the bound on it.

    Records come some tenths of a second late. A request that was admitted since counts as an
    average one. Without records the wait is 0, and only the number in flight is bounded.
    """

    def __init__(
        self,
        most_seconds: float = 0.0,
        machines: Sequence[Machine] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Create it; `machines` are the engines by rank, and `clock` returns Unix seconds.

        A request may wait for `most_seconds`, or for any time if that is 0.
        """
        self.most_seconds = most_seconds
        self._backlogs = [Backlog(machine) for machine in machines]
        self._clock = clock
        self._untold: deque[float] = deque()
        """When requests were admitted that no record tells of."""

    def take(self, rank: int, records: Sequence[Mapping[str, Any]]) -> None:
        """Take records of the engine of a rank."""
        if rank < len(self._backlogs):
            self._backlogs[rank].take(records)

    def forget(self) -> None:
        """Forget all requests in the engines, which have ended with them."""
        for backlog in self._backlogs:
            backlog.forget()

    def admitted(self) -> None:
        """Count a request that was admitted."""
        if self._backlogs:
            self._untold.append(self._clock())
            self._drop_told()

    @property
    def wait_seconds(self) -> float:
        """How long a new request is predicted to wait, in the engine with the least work."""
        if not self._backlogs:
            return 0.0
        self._drop_told()
        least = min(self._backlogs, key=lambda each: each.seconds)
        untold = len(self._untold) / len(self._backlogs)
        return least.seconds + untold * least.mean_seconds

    def _drop_told(self) -> None:
        told_until = max(each.told_until for each in self._backlogs)
        oldest = max(told_until, self._clock() - MAX_UNTOLD_SECONDS)
        while self._untold and self._untold[0] <= oldest:
            self._untold.popleft()

    def refusal(self, in_flight: int, most_in_flight: int) -> Refusal | None:
        """Return why a further request may not begin beside those in flight, or None."""
        if in_flight < most_in_flight and not self.most_seconds:
            return None  # the usual case, which predicts nothing
        return refusal(in_flight, most_in_flight, self.wait_seconds, self.most_seconds)


class Gate:
    """Admits up to `capacity` requests at once, and refuses more with a time to retry.

    It also refuses requests that would wait in the engine's queue for too long, and keeps each key
    within its own limits.
    """

    def __init__(
        self,
        capacity: int,
        in_flight: Gauge,
        quotas: Quotas,
        check: Callable[[], None] = lambda: None,
        queue: QueueBound | None = None,
    ) -> None:
        """Create it; `check` raises `ApiError` while the server takes no new work at all.

        `queue` predicts how long requests wait, and says how long they may.
        """
        self._queue = queue or QueueBound()
        self._check = check
        self._capacity = capacity
        self._in_flight = in_flight
        self.quotas = quotas
        """What is left to the keys with limits."""
        self._count = 0

    @contextmanager
    def enter(self, sender: Sender) -> Iterator[None]:
        """Hold one place while the context lasts; raise `ApiError` 429 if there is none.

        There is none if all are taken, if the request would wait for too long, or if a limit of its
        sender's key is reached. Raises `ApiError` 503 while the server takes no new work.
        """
        self._check()
        refused = self._queue.refusal(self._count, self._capacity)
        if refused is not None:
            again = {"Retry-After": str(refused.retry_seconds)}
            raise ApiError(429, refused.message, code=refused.code, headers=again)
        quota = self.quotas.begin(sender) if self.quotas else None
        self._queue.admitted()
        self._count += 1
        self._in_flight.set(self._count)
        try:
            yield
        finally:
            if quota is not None:
                quota.end()
            self._count -= 1
            self._in_flight.set(self._count)

    def __len__(self) -> int:
        """Return the number of requests under way."""
        return self._count


def unavailable(why: NotReady) -> ApiError:
    """Return the error of status 503 for work that the server does not take now."""
    seconds = why.retry_seconds
    return ApiError(
        503,
        f"This server takes no work at this moment, since {why.reason}: try again in {seconds} s.",
        code=_CODES.get(why.status, f"engine_{why.status}"),
        headers={"Retry-After": str(seconds)},
    )
