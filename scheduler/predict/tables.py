"""What was counted of earlier sessions, by kind of session or by tool: lengths, calls and pauses.

`Lengths` is the distribution of the token counts of segments or tool results: a window of them, and
a prior. The prior counts as a few observations of a memoryless length, as with the pauses of
`intercept/kv/pause_durations.py`. An overdue length continues in the same proportion.

`Calls` has the hazards that a session ends with its current segment. q[n] = P(N = n | N >= n) for N
calls is a ratio of two counts: sessions that ended after n calls, and sessions that made at least
n. A kind with few sessions leans on all kinds together. Those lean on a geometric distribution,
whose hazard is constant.

A session changes its kind at a call, from the tools that it is offered to the tool that it called.
Its end counts for every kind that it had. Otherwise only sessions without a call would count for
their first kind, and that kind would seem to make no calls.

`PausePredictor` learns the pauses of each tool online, and guesses from the tool's name before. A
guess from the name counts as two observations, and a guess for an unknown tool as one. The first
few calls of a tool show its durations, so errors of the guess matter only until then.
"""

import re
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from math import exp, inf
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from caesura.intercept.kv.pause_durations import OVERDUE, Durations, ForecastTrust, PauseForecast
from caesura.intercept.pause_hints import PERSON

MAX_TOOLS = 1000
UNKNOWN_SECONDS = 5.0
KIND_WEIGHT = 2.0
NO_TRUST_YET = ForecastTrust()


def _kind(seconds: float, stems: str, words: str) -> tuple[re.Pattern[str], Durations]:
    pattern = rf"{stems}|(?<![a-z])(?:{words})(?![a-z])"
    return re.compile(pattern), Durations(seconds, KIND_WEIGHT)


A_PERSON = Durations(60.0, KIND_WEIGHT)

# The first pattern that matches the name counts. Stems match anywhere, short words only as a whole.
KINDS = (
    _kind(5.0, "language_model|expert", "ask_model|llm"),
    _kind(60.0, "human|approv|confirm", "ask|user_input"),
    _kind(1.0, "search|retriev|wiki|http|fetch|brows|lookup", "web|url|rag|curl|api"),
    _kind(20.0, "image|diffusion|picture|draw|paint", "img|photo"),
    _kind(15.0, "speech|speak|voice|audio", "tts|say"),
    _kind(0.05, "database", "sql|db|query|sqlite|postgres"),
    _kind(5.0, "python|shell|terminal|execut|compil|script", "code|bash|sh|test|tests|run|exec"),
    _kind(0.001, "calcul|arithm|convert|clock|datetime", "math|calc|sum|time|date|now|today"),
)


@lru_cache(maxsize=4096)
def guess(tool: str) -> Durations | None:
    """Return the pauses that a tool's name suggests, or None."""
    if tool.startswith(PERSON):
        return A_PERSON
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", tool).lower()
    return next((durations for pattern, durations in KINDS if pattern.search(name)), None)


class PausePredictor:
    """Learns the pauses of each tool; it has no clock, and callers report the durations.

    It keeps the last `MAX_TOOLS` tools. The tool is None for a call of an unknown tool, and for
    several calls at once.
    """

    def __init__(self) -> None:
        self._trust: OrderedDict[str, ForecastTrust] = OrderedDict()
        self._tools: OrderedDict[str, Durations] = OrderedDict()
        self._expected: OrderedDict[str, Durations] = OrderedDict()
        self._unknown: Durations | None = None

    def expect(self, tool: str, seconds: float) -> None:
        """Set the assumed mean of a tool's pauses; it counts as `KIND_WEIGHT` observations."""
        known = self._expected.get(tool)
        if known is None or known.prior_seconds != seconds:
            self._expected[tool] = Durations(seconds, KIND_WEIGHT)
        self._expected.move_to_end(tool)
        if len(self._expected) > MAX_TOOLS:
            self._expected.popitem(last=False)

    def durations_for(self, tool: str | None) -> Durations:
        """Return the durations of a tool's pauses; the same object until the next observation."""
        name = tool or ""
        known = self._tools.get(name) or self._expected.get(name)
        return known or guess(name) or self._of_any_tool()

    def observe(self, tool: str | None, seconds: float) -> None:
        """Learn the duration of a pause; raises `ValueError` if `seconds` is not finite."""
        name = tool or ""
        self._tools[name] = self.durations_for(tool).observe(seconds)
        self._tools.move_to_end(name)
        if len(self._tools) > MAX_TOOLS:
            self._tools.popitem(last=False)
        self._unknown = None

    def trust_for(self, tool: str | None) -> ForecastTrust:
        """Return how well forecasts of single calls have predicted the pauses of a tool."""
        return self._trust.get(tool or "", NO_TRUST_YET)

    def observe_forecast(self, tool: str | None, forecast: PauseForecast, seconds: float) -> None:
        """Learn that a pause with this forecast lasted `seconds`; call it besides `observe`."""
        name = tool or ""
        self._trust[name] = self.trust_for(tool).observe(forecast, seconds)
        self._trust.move_to_end(name)
        if len(self._trust) > MAX_TOOLS:
            self._trust.popitem(last=False)

    def _of_any_tool(self) -> Durations:
        """Return the guess for an unknown tool: the mean over observed tools, each counted once."""
        if self._unknown is None:
            means = [durations.mean for durations in self._tools.values()]
            mean = (UNKNOWN_SECONDS + sum(means)) / (1 + len(means))
            self._unknown = Durations(mean)
        return self._unknown

    def to_wire(self) -> dict[str, Any]:
        """Return plain data for a file, in the order of the tools' last observations."""
        return {"tools": {name: durations.to_wire() for name, durations in self._tools.items()}}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> "PausePredictor":
        """Return the predictor that `to_wire` wrote; raises `ValueError` for any other data."""
        tools = wire.get("tools") if isinstance(wire, Mapping) else None
        if not isinstance(tools, Mapping) or not all(isinstance(name, str) for name in tools):
            raise ValueError(f"a record of pauses must have an object `tools`, got {wire!r:.200}")
        predictor = cls()
        for name, record in list(tools.items())[-MAX_TOOLS:]:
            try:
                predictor._tools[name] = Durations.from_wire(record)
            except ValueError as error:
                raise ValueError(f"pauses of tool {name!r}: {error}") from error
        return predictor


MAX_KINDS = 1000


class Table(Protocol):
    """What is known of one kind."""

    def to_wire(self) -> dict[str, Any]:
        """Return the record as plain data."""
        ...


R = TypeVar("R", bound=Table)


class Kinds(Generic[R]):
    """Records by kind; `together` is the record of all kinds. The last `most` kinds are kept.

    `make` returns the record of a new kind, given `together`.
    """

    def __init__(self, together: R, make: Callable[[R], R], most: int = MAX_KINDS) -> None:
        self.together = together
        self._make = make
        self._most = most
        self._records: OrderedDict[str, R] = OrderedDict()

    def __len__(self) -> int:
        return len(self._records)

    def find(self, kind: str) -> R | None:
        """Return the kind's record, or None."""
        return self._records.get(kind)

    def learn(self, kind: str) -> R:
        """Return the kind's record for an observation, and mark the kind as the latest."""
        record = self._records.get(kind)
        if record is None:
            record = self._records[kind] = self._make(self.together)
            if len(self._records) > self._most:
                self._records.popitem(last=False)
        else:
            self._records.move_to_end(kind)
        return record

    def to_wire(self) -> dict[str, Any]:
        """Return the records as plain data, in the order of the kinds' last observations."""
        kinds = {kind: record.to_wire() for kind, record in self._records.items()}
        return {"together": self.together.to_wire(), "kinds": kinds}

    def restore(self, wire: Mapping[str, Any], read: Callable[[Mapping[str, Any]], R]) -> None:
        """Load the data that `to_wire` wrote, or raise `ValueError` and change nothing."""
        kinds = wire.get("kinds") if isinstance(wire, Mapping) else None
        if not isinstance(kinds, Mapping) or not all(isinstance(kind, str) for kind in kinds):
            raise ValueError(f"records by kind must have an object `kinds`, got {wire!r:.200}")
        together = read(wire.get("together", {}))
        records = [(kind, read(record)) for kind, record in list(kinds.items())[-self._most :]]
        self.together, self._records = together, OrderedDict(records)


WINDOW = 1000
"""The number of lengths in Past-Future's history (section 4)."""

UNSEEN_FACTOR = 2
"""A draw beyond all lengths in the window is this many times the decoded tokens."""

Tokens = NDArray[np.int64]
MOST = 1e15
"""The largest prior and weight: the sums and products of larger ones are not finite."""


class Lengths:
    """The last token counts of one kind; a full window drops its oldest.

    `prior_tokens` is the mean that is assumed before the first count, `prior_weight` the number of
    observations that it counts as, and `window` the number of counts that are kept. `recent` are
    the first counts, oldest first. Raises `ValueError` for a prior or weight that is not positive
    or above `MOST`, for a window below 1, and for a negative count.
    """

    def __init__(
        self,
        prior_tokens: float,
        prior_weight: float = 2.0,
        window: int = WINDOW,
        recent: Iterable[int] = (),
    ) -> None:
        if not (0 < prior_tokens <= MOST and 0 < prior_weight <= MOST and window >= 1):
            raise ValueError(
                f"prior_tokens and prior_weight must be positive and at most {MOST:g}, window >= 1,"
                f" got {prior_tokens!r}, {prior_weight!r} and {window!r}"
            )
        self._prior_tokens = prior_tokens
        self._prior_weight = prior_weight
        self._recent: deque[int] = deque(recent, maxlen=window)
        if min(self._recent, default=0) < 0:
            raise ValueError(f"token counts must be >= 0, got {min(self._recent)!r}")
        self._sorted = sorted(self._recent)
        self._total = sum(self._sorted)
        self._array: Tokens | None = None

    def observe(self, tokens: int) -> None:
        """Add a token count; raises `ValueError` if it is negative."""
        if tokens < 0:
            raise ValueError(f"token count must be >= 0, got {tokens!r}")
        if len(self._recent) == self._recent.maxlen:
            oldest = self._recent[0]
            del self._sorted[bisect_left(self._sorted, oldest)]
            self._total -= oldest
        self._recent.append(tokens)
        insort(self._sorted, tokens)
        self._total += tokens
        self._array = None

    @property
    def count(self) -> int:
        """Return the number of counts in the window."""
        return len(self._recent)

    @property
    def mean(self) -> float:
        """Return the expected number of tokens of a new length."""
        whole = self.count + self._prior_weight
        return (self._total + self._prior_weight * self._tail_mean) / whole

    @property
    def _tail_mean(self) -> float:
        whole = self.count + self._prior_weight
        return (self._total + self._prior_weight * self._prior_tokens) / whole

    def remaining(self, tokens: int) -> float:
        """Return the expected number of further tokens: E[l - tokens | l > tokens].

        The result is at least `OVERDUE` times `tokens`.
        """
        index, tail_mean = bisect_right(self._sorted, tokens), self._tail_mean
        longer = self.count - index
        if not longer:
            return max(tail_mean, OVERDUE * tokens)
        seen = (sum(self._sorted[index:]) if index else self._total) - longer * tokens
        unseen = self._prior_weight * exp(-tokens / tail_mean)
        return max((seen + unseen * tail_mean) / (longer + unseen), OVERDUE * tokens)

    def reaches(self, tokens: float) -> float:
        """Return the probability that a length is at least `tokens`."""
        longer = self.count - bisect_left(self._sorted, tokens)
        unseen = self._prior_weight * exp(-max(0.0, tokens) / self._tail_mean)
        return (longer + unseen) / (self.count + self._prior_weight)

    def sample(self, decoded: int, uniform: float) -> int:
        """Return a draw from P(l | l > decoded), without the prior (Past-Future, equation 1).

        `uniform` is a number in [0, 1). If no length in the window is longer, the result is
        `UNSEEN_FACTOR` times `decoded`.
        """
        first = bisect_right(self._sorted, decoded)
        longer = len(self._sorted) - first
        return self._sorted[first + int(uniform * longer)] if longer else _beyond(decoded)

    def samples(self, decoded: Tokens, uniform: NDArray[np.float64]) -> Tokens:
        """Return draws as `sample` makes them, for n segments at once and k times for each.

        `decoded` has the shape (n,), `uniform` and the result have (k, n).
        """
        if self._array is None:
            self._array = np.asarray(self._sorted, dtype=np.int64)
        first = np.searchsorted(self._array, decoded, side="right")
        longer = len(self._array) - first
        # The appended 0 keeps the index valid where no length is longer; it is replaced below.
        drawn = np.append(self._array, 0)[first + (uniform * longer).astype(np.int64)]
        known = longer > 0
        if not known.all():
            beyond = [_beyond(tokens) for tokens in decoded.tolist()]
            drawn = np.where(known, drawn, np.array(beyond, dtype=np.int64))
        return drawn

    def to_wire(self) -> dict[str, Any]:
        """Return the lengths as plain data, which `from_wire` reads."""
        return {
            "prior_tokens": self._prior_tokens,
            "prior_weight": self._prior_weight,
            "window": self._recent.maxlen,
            "recent": list(self._recent),
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> "Lengths":
        """Return the lengths that `to_wire` wrote; raises `ValueError` for any other data."""
        try:
            recent = [int(tokens) for tokens in wire["recent"]]
            if max(recent, default=0) > np.iinfo(np.int32).max:
                raise ValueError(f"token counts must fit 32 bits, got {max(recent)}")
            window = min(int(wire["window"]), WINDOW)
            return cls(float(wire["prior_tokens"]), float(wire["prior_weight"]), window, recent)
        except (TypeError, KeyError, AttributeError, OverflowError) as error:
            raise ValueError(f"not a record of lengths: {error!r}, in {wire!r:.200}") from error


def _beyond(decoded: int) -> int:
    return max(1, UNSEEN_FACTOR * decoded)


PRIOR_CALLS = 4.0
"""The assumed number of calls of a session before any session has ended."""

WEIGHT = 2.0
"""The number of sessions that a prior counts as, at every n."""

HORIZON = 80
"""The largest number of hazards in a forecast."""

MAX_CALLS = 256
MAX_SESSIONS = 1000
MIN_ALIVE_SHARE = 1e-3
BINS = MAX_CALLS + HORIZON
Hazards = NDArray[np.float64]


class CallCounts:
    """Counts of the sessions of one kind that ended after n calls.

    All counts are halved when their sum exceeds `MAX_SESSIONS`, so that recent sessions count more.
    A session of `MAX_CALLS` calls or more counts as one that continues.
    """

    def __init__(self) -> None:
        self._ended = np.zeros(BINS)  # [n]: sessions of n calls
        self._longer = 0.0
        self._made: tuple[Hazards, Hazards] | None = None

    def observe_end(self, calls: int) -> None:
        """Count a session that ended after `calls`; raises `ValueError` if that is negative."""
        if calls < 0:
            raise ValueError(f"calls of a session must be >= 0, got {calls!r}")
        if calls < MAX_CALLS:
            self._ended[calls] += 1
        else:
            self._longer += 1
        self._made = None
        if self.sessions > MAX_SESSIONS:
            self._ended *= 0.5
            self._longer *= 0.5

    @property
    def sessions(self) -> float:
        """Return the number of ended sessions."""
        return float(self._ended.sum()) + self._longer

    def hazards(self, prior: Hazards) -> Hazards:
        """Return q[n] for n < `BINS`; `prior` counts as `WEIGHT` further sessions.

        The same prior gives the same object until a session ends.
        """
        if self._made is None or self._made[0] is not prior:
            alive = np.cumsum(self._ended[::-1])[::-1] + self._longer
            self._made = prior, (self._ended + WEIGHT * prior) / (alive + WEIGHT)
        return self._made[1]

    def to_wire(self) -> dict[str, Any]:
        """Return the counts as plain data, which `from_wire` reads."""
        ended = np.trim_zeros(self._ended, "b").tolist()
        return {"ended": ended, "longer": self._longer}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> "CallCounts":
        """Return the counts that `to_wire` wrote; raises `ValueError` for any other data."""
        counts = cls()
        try:
            ended = [float(sessions) for sessions in wire["ended"]]
            counts._longer = float(wire["longer"])
        except (TypeError, KeyError, AttributeError, OverflowError) as error:
            raise ValueError(f"not counts of calls: {error!r}, in {wire!r:.200}") from error
        if len(ended) > MAX_CALLS:
            raise ValueError(f"there may be at most {MAX_CALLS} counts of calls, got {len(ended)}")
        wrong = [count for count in (*ended, counts._longer) if not 0 <= count < inf]
        if wrong:
            raise ValueError(f"counts of sessions must be finite and >= 0, got {wrong[0]!r}")
        counts._ended[: len(ended)] = ended
        return counts


class Calls:
    """Hazards by kind of session.

    `mean` is the assumed number of calls before any session has ended. Raises `ValueError` if it
    is not positive.
    """

    def __init__(self, mean: float = PRIOR_CALLS) -> None:
        if not 0 < mean < inf:
            raise ValueError(f"the mean number of calls must be positive, got {mean!r}")
        self.kinds: Kinds[CallCounts] = Kinds(CallCounts(), lambda _: CallCounts())
        self._prior: Hazards = np.full(BINS, 1 / (1 + mean))

    def observe_end(self, kind: str, calls: int) -> None:
        """Count an ended session with `calls`; the caller repeats this for each of its kinds."""
        self.kinds.together.observe_end(calls)
        self.kinds.learn(kind).observe_end(calls)

    def ends(self, kind: str, calls: int) -> tuple[float, ...]:
        """Return the hazards of a session of this kind from its current segment on.

        The session has made `calls` so far. The result has `HORIZON` hazards, or fewer if less than
        `MIN_ALIVE_SHARE` of such sessions remain after them.
        """
        hazards = self.kinds.together.hazards(self._prior)
        counts = self.kinds.find(kind)
        if counts is not None:
            hazards = counts.hazards(hazards)
        start = min(calls, MAX_CALLS)
        hazards = hazards[start : start + HORIZON]
        alive = np.cumprod(1 - hazards)
        return tuple(hazards[: 1 + int(np.searchsorted(-alive, -MIN_ALIVE_SHARE))].tolist())
