"""The work that waits in one engine's queue, predicted from the engine's records. Pure.

The unit is a second of the whole engine. A request takes the time to compute what it misses, and
its share of the engine for as long as it decodes. The share is that of the KV cache, its
memory-time, or that of the runner's slots where these are scarcer.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

RECENT = 0.8
"""Weight of what was known before, at each record of steps and at each queued request."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The sizes of an engine: tokens of a block and of the KV cache, and slots of the runner."""

    block_size: int
    capacity_tokens: int
    slots: int


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
        held_tokens = request.context_tokens + request.decode_tokens / 2
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
                missing = max(0.0, tokens - (blocks + host) * self._machine.block_size)
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
