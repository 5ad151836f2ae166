"""The hazard predictor: calls left, tokens and long pauses from a session's own behaviour.

The history's tables compare a session with others of its kind. This predictor adds what the
session itself has done: its context, its lengths, its errors, and the words of its calls. For each
quantity it mixes a linear model with the table by their losses so far. So it is not worse than the
table for long, and a deployment without such signals keeps the tables.
"""

from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from caesura.intercept.kv.pause_durations import OVERDUE, Durations
from caesura.scheduler.predict.facts import Facts
from caesura.scheduler.predict.forecast import LONG_PAUSE_SECONDS, About, Forecast
from caesura.scheduler.predict.hazard_learner import Learner, Row
from caesura.scheduler.predict.hazard_model import Bins, Numbers, features_of
from caesura.scheduler.predict.history import History
from caesura.scheduler.predict.tables import HORIZON, MIN_ALIVE_SHARE, PRIOR_CALLS, PausePredictor

CALLS = Bins((0, 1, 2, 3, 4, 6, 8, 11, 15, 20, 27, 36, 48, 64, 90))
TOKENS = Bins((0, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096))
SECONDS = Bins((0, LONG_PAUSE_SECONDS))
CALLS_KNOTS = TOKENS_KNOTS = 4
QUANTILES = 16
"""The number of quantiles in a forecast."""

MAX_PREPARED = 4096
_CALL_EDGES = np.array(CALLS.edges, dtype=np.int64)
_PER_CALL = 1 / np.diff(_CALL_EDGES)
_BIN_OF_CALL = np.array([CALLS.bin_of(call) for call in range(HORIZON)])


@dataclass(frozen=True, slots=True)
class _Segment:
    """The rows of a session's current segment, made at its first forecast or at its end."""

    facts: Facts
    calls: Row
    tokens: Row
    pause: Row


class Hazard:
    """Mixes linear models of a session's facts with the tables of a `History`.

    `pauses` may be shared, and `calls` is the assumed number of calls before any session has
    ended. `parts` gives the forecasts of the tables and of the models alone.
    """

    name = "hazard"

    def __init__(self, pauses: PausePredictor | None = None, calls: float = PRIOR_CALLS) -> None:
        self.history = History(pauses, calls)
        self._calls = Learner(CALLS, CALLS_KNOTS)
        self._tokens = Learner(TOKENS, TOKENS_KNOTS)
        self._pauses = Learner(SECONDS, 1)
        self._live = LiveRows(self._calls)
        self._segments: OrderedDict[str, _Segment] = OrderedDict()
        self._paused: OrderedDict[str, Row] = OrderedDict()

    # -- forecasts -------------------------------------------------------------------------------

    def forecast(self, about: About) -> Forecast:
        """Return the forecast of tables and models together."""
        segment, table = self._segment(about), self.history.forecast(about)
        return _forecast(
            about,
            table,
            calls=self._calls.mixed(segment.calls),
            tokens=self._tokens.mixed(segment.tokens),
            pause=self._pauses.mixed(segment.pause),
        )

    def parts(self, about: About) -> Mapping[str, Forecast]:
        """Return the forecasts of the tables and of the models, each alone."""
        segment, table = self._segment(about), self.history.forecast(about)
        model = _forecast(
            about,
            table,
            calls=segment.calls.of_model,
            tokens=segment.tokens.of_model,
            pause=segment.pause.of_model,
        )
        return {"history": table, "hazard-model": model}

    def _segment(self, about: About) -> _Segment:
        """Return the rows of the session's current segment, the same until its facts change."""
        known = self._segments.get(about.key)
        if known is not None and known.facts is about.facts:
            return known
        features, history = features_of(about.kind, about.facts), self.history
        calls = _survival(history.ends(about.kind, about.calls))
        tokens = np.array(history.segment_survival(about.kind, TOKENS.edges))
        long = history.pause(about.key, about.kind).survival(LONG_PAUSE_SECONDS)
        made = self._segments[about.key] = _Segment(
            about.facts,
            self._calls.row(features, calls),
            self._tokens.row(features, tokens),
            self._pauses.row(features, np.array([1.0, long])),
        )
        self._segments.move_to_end(about.key)
        if len(self._segments) > MAX_PREPARED:
            self._segments.popitem(last=False)
        return made

    def pause(self, key: str, tool: str | None, calls: int | None = None) -> Durations:
        """Return the durations of the tool's pauses, the same for all sessions."""
        return self.history.pause(key, tool, calls)

    # -- observations ----------------------------------------------------------------------------

    def observe_segment(self, about: About, decoded_tokens: int, called: bool) -> None:
        """Learn a segment's length; its row of calls waits for the session's end."""
        segment = self._segment(about)
        self.history.observe_segment(about, decoded_tokens, called)
        self._tokens.observe(segment.tokens, decoded_tokens)
        if called:
            self._live.add(about.key, segment.calls)
            self._paused[about.key] = segment.pause
            if len(self._paused) > MAX_PREPARED:
                self._paused.popitem(last=False)
        self._learn()

    def observe_result(self, tool: str | None, tokens: int) -> None:
        """Learn a result's length; raises `ValueError` if it is negative."""
        self.history.observe_result(tool, tokens)

    def observe_pause(self, key: str, tool: str | None, seconds: float) -> None:
        """Learn a pause's duration; raises `ValueError` if it is not finite."""
        self.history.observe_pause(key, tool, seconds)
        row = self._paused.pop(key, None)
        if row is not None:
            self._pauses.observe(row, max(0.0, seconds))
        self._learn()

    def observe_end(self, about: About, kinds: Collection[str]) -> None:
        """Learn that the session ended; raises `ValueError` for a negative number of calls."""
        last = self._segment(about).calls
        self.history.observe_end(about, kinds)
        self._live.end(about.key, last)
        self._forget(about.key)
        self._learn()

    def observe_abort(self, key: str) -> None:
        """Learn that the session made at least its calls so far."""
        self.history.observe_abort(key)
        self._live.end(key, None)
        self._forget(key)

    def _forget(self, key: str) -> None:
        self._segments.pop(key, None)
        self._paused.pop(key, None)

    def _learn(self) -> None:
        for learner in self._learners.values():
            learner.learn()

    @property
    def _learners(self) -> dict[str, Learner]:
        return {"calls": self._calls, "tokens": self._tokens, "pauses": self._pauses}

    # -- state -----------------------------------------------------------------------------------

    def to_wire(self) -> dict[str, Any]:
        """Return the tables and models as plain data; the pauses are kept separately."""
        models = {name: learner.to_wire() for name, learner in self._learners.items()}
        return {**self.history.to_wire(), "hazard": models}

    def restore(self, wire: Mapping[str, Any]) -> None:
        """Load the data that `to_wire` wrote, or raise `ValueError` and change nothing.

        A record of a `History` gives the tables alone.
        """
        models = wire.get("hazard") if isinstance(wire, Mapping) else None
        fresh = Hazard()
        if models is not None:
            if not isinstance(models, Mapping):
                raise ValueError(f"`hazard` must be an object, got {models!r:.100}")
            for name, learner in fresh._learners.items():
                learner.restore(models.get(name, {}))
        self.history.restore(wire)
        self._calls, self._tokens, self._pauses = fresh._calls, fresh._tokens, fresh._pauses
        self._live = LiveRows(self._calls)
        self._segments.clear()
        self._paused.clear()


def _survival(ends: tuple[float, ...]) -> Numbers:
    """Return the chance of at least as many further calls as each edge of `CALLS`."""
    alive = np.append(1.0, np.cumprod(1 - np.array(ends)))
    survival: Numbers = alive[np.minimum(_CALL_EDGES, len(alive) - 1)]
    return survival


def _forecast(
    about: About, table: Forecast, calls: Numbers, tokens: Numbers, pause: Numbers
) -> Forecast:
    """Return the table's forecast with these hazards of calls, of tokens and of a short pause."""
    seen = about.decoded_tokens
    left = TOKENS.remaining(tokens, seen, QUANTILES)
    expected = max(float(left.mean()), OVERDUE * seen) if left.size else table.decode_tokens
    return replace(
        table,
        decode_tokens=expected,
        decode_quantiles=tuple(left.tolist()),
        ends=_ends(calls),
        long_pause=1 - float(pause[0]),
    )


def _ends(hazards: Numbers) -> tuple[float, ...]:
    """Return the hazard of each further call; within a bin of several calls it is constant."""
    of_one = 1 - (1 - hazards) ** _PER_CALL
    each = of_one[_BIN_OF_CALL]
    alive = np.cumprod(1 - each)
    length = 1 + int(np.searchsorted(-alive, -MIN_ALIVE_SHARE))
    return tuple(each[:length].tolist())


MAX_LIVE_SESSIONS = 4096
MAX_LIVE_ROWS = 20_000
MAX_ROWS_OF_A_SESSION = 256
"""Later segments of a longer session are not learned."""


class LiveRows:
    """Rows of sessions by key, one per segment from the first on; `learner` gets them at the end.

    The oldest sessions are given up beyond the limits. They count as cut off.
    """

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self._rows: OrderedDict[str, list[Row]] = OrderedDict()
        self._count = 0

    def add(self, key: str, row: Row) -> None:
        """Add the row of a session's segment that ended with a call."""
        rows = self._rows.setdefault(key, [])
        self._rows.move_to_end(key)
        if len(rows) < MAX_ROWS_OF_A_SESSION:
            rows.append(row)
            self._count += 1
        while len(self._rows) > MAX_LIVE_SESSIONS or self._count > MAX_LIVE_ROWS:
            self.end(next(iter(self._rows)), None)

    def end(self, key: str, last: Row | None) -> None:
        """Hand over a session's rows; `last` is that of its last segment, or None if it is cut.

        Every row is an observation of the calls from its segment on.
        """
        rows = self._rows.pop(key, [])
        self._count -= len(rows)
        made = len(rows)
        for index, row in enumerate(rows):
            self._learner.observe(row, made - index, whole=last is not None)
        if last is not None:
            self._learner.observe(last, 0)
