"""Admissions for Past-Future's Table 1: one that knows all lengths, and one that keeps the table.

The authors' simulation of the table (WuSiYu/lightllm-ae, `behavior-analysis`) admits after every
tenth decode step, and ends when the last request has been admitted. `Watched` does so with any
admission and notes what the table lists; `Optimum` is its "theoretical optimum". Both are named by
their import path in `caesura.admission`, as a plugged-in one is, and are told the lengths by
`watching`, since an admission is shown no request's future.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

import numpy as np

from caesura.scheduler.policy.admission import Batched, Gate
from caesura.scheduler.policy.names import make_admission
from caesura.scheduler.policy.past_future import Peak
from caesura.simulator.machine import BLOCK_TOKENS

INTERVAL = 10
"""Decode steps between two admissions (`PREFILL_INTERVAL` of the artifact)."""

UNUSED = BLOCK_TOKENS - 1
"""Tokens of a request's last block that may be empty."""


@dataclass(slots=True)
class Log:
    """What a run adds up between its first counted request and its last.

    `memory` and `future` are sums of shares of the capacity: of what the batch holds before each
    of `steps`, and of its true M* behind each of `decisions` (Past-Future, section 3.3, equations
    3 and 4). `batched` sums up the requests of the batch over the steps, which is the tokens that
    they decode; `evicted` counts those that lost their KV.
    """

    steps: int = 0
    batched: int = 0
    memory: float = 0.0
    decisions: int = 0
    future: float = 0.0
    evicted: int = 0


@dataclass(slots=True)
class _Watch:
    lengths: Mapping[str, int]
    places: Mapping[str, int]
    log: Log


_watch: ContextVar[_Watch] = ContextVar("watch")


@contextmanager
def watching(lengths: Mapping[str, int]) -> Iterator[Log]:
    """Tell how many tokens every request decodes, in the order of arrival, and yield the log."""
    log = Log()
    token = _watch.set(_Watch(lengths, {key: at for at, key in enumerate(lengths)}, log))
    try:
        yield log
    finally:
        _watch.reset(token)


def as_record(log: Log) -> dict[str, Any]:
    """Return the log as one of a run's records."""
    return {"event": "table", **asdict(log)}


class Watched:
    """Lets the admission `inner`, with these parameters, decide after every `interval`-th step.

    What is noted begins when the first request behind the `skip` first ones runs, and ends when
    the last of all does.
    """

    name = "watched"

    def __init__(
        self, inner: str, interval: int = INTERVAL, skip: int = 0, **parameters: object
    ) -> None:
        given = ",".join(f"{name}={value}" for name, value in parameters.items())
        self._inner = make_admission(f"{inner}:{given}" if given else inner, Random(0))
        self._interval = interval
        self._skip = skip
        self._calls = 0
        self._decided = False
        self._before: set[str] = set()
        self._ended = 0

    def begin(self, running: Sequence[Batched], capacity_tokens: int) -> Gate:
        """Note the batch, and open the inner gate if it is time for that or no request runs."""
        watch = _watch.get(None)
        if watch is not None:
            self._note(watch, running, capacity_tokens)
        self._calls += 1
        self._decided = not running or self._calls % self._interval == 0
        return self._inner.begin(running, capacity_tokens) if self._decided else _Closed()

    def _note(self, watch: _Watch, running: Sequence[Batched], capacity_tokens: int) -> None:
        keys = {one.key for one in running}
        left, ended = len(self._before - keys), self._ended
        self._before, self._ended = keys, 0
        latest = max((watch.places[key] for key in keys), default=0)
        if not self._skip <= latest < len(watch.places) - 1:
            return
        log = watch.log
        log.evicted += left - ended
        log.steps += 1
        log.batched += len(running)
        log.memory += sum(one.held_tokens for one in running) / capacity_tokens
        if self._decided:
            # A step later: what was admitted by then is known, and M* does not move meanwhile.
            log.decisions += 1
            log.future += _future(watch, running).tokens / capacity_tokens

    def observe(self, kind: str, generated_tokens: int) -> None:
        """Hand on to the inner admission; a request that ends was not evicted."""
        self._ended += 1
        self._inner.observe(kind, generated_tokens)


class _Closed:
    """A gate that admits no request."""

    def admits(self, candidate: Batched) -> bool:
        return False


class Optimum:
    """Past-Future with the true lengths and no reserve: the theoretical optimum of Table 1.

    vLLM hands out whole blocks: every request may hold up to `BLOCK_TOKENS` - 1 tokens more.
    """

    name = "optimum"

    def begin(self, running: Sequence[Batched], capacity_tokens: int) -> Gate:
        """Return a gate that keeps the true M* within the capacity."""
        return _True(_watch.get(), running, capacity_tokens)

    def observe(self, kind: str, generated_tokens: int) -> None:
        """Nothing to learn."""


class _True:
    def __init__(self, watch: _Watch, running: Sequence[Batched], capacity_tokens: int) -> None:
        self._watch = watch
        self._capacity = capacity_tokens
        self._peak = _future(watch, running, UNUSED)

    def admits(self, candidate: Batched) -> bool:
        """Return whether the batch with the candidate fits to its end, or is empty without it."""
        remaining = _remaining(self._watch, candidate)
        held = candidate.held_tokens + UNUSED
        if self._peak.with_one(held, remaining) > self._capacity:
            return not self._peak.size
        self._peak.add(held, remaining)
        return True


def _future(watch: _Watch, running: Sequence[Batched], more: int = 0) -> Peak:
    held = np.array([one.held_tokens + more for one in running], dtype=np.int64)
    remaining = np.array([_remaining(watch, one) for one in running], dtype=np.int64)
    return Peak(held, remaining)


def _remaining(watch: _Watch, one: Batched) -> int:
    return max(0, watch.lengths[one.key] - one.generated_tokens)
