"""Pairs of what was predicted and what came, from records in the order in which they were written.

A `forecast` record is compared with the `pause` record that ends its segment, or with the `session`
record. Sessions that were aborted, and those that never end, tell nothing of their number of calls.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from caesura.scheduler.records import (
    ForecastRecord,
    PauseRecord,
    PredictionRecord,
    Record,
    SessionRecord,
)

NUMBERS = ("decode_tokens", "calls_left", "pause_seconds")
"""Quantities whose mean is predicted, in tokens, calls and seconds."""

CHANCES = ("ends_now", "ends_within_3", "long_pause")
"""Events whose probability is predicted; what came is 1 or 0."""

QUANTITIES = (*NUMBERS, *CHANCES)

FEW_CALLS = 3
"""`ends_within_3`: the session makes at most this many further calls."""

LONG_SECONDS = 30.0
"""`long_pause`: the pause lasts longer than this."""

ANSWERED = ("resumed", "followed")
"""Outcomes of pauses that ended with a result."""

BY_ITSELF = ("stop", "length")
"""Outcomes of sessions that were not aborted."""

MAX_FORECASTS = 20_000
"""Forecasts of open sessions that are kept: some 30 MB. The session whose last one is oldest is
dropped."""

MAX_SEGMENTS = 1024
"""Forecasts of one open session that are kept; later ones are not compared."""

CLOCK_SECONDS = 1e-4
"""The difference by which rounded times of records may be in the wrong order."""


class Outcome(NamedTuple):
    """A prediction with what came: tokens, calls or seconds, or 1.0 and 0.0 for an event.

    `at` is when it was predicted, in seconds, after `calls` calls of the session. `low` and `high`
    are the predicted 10 and 90 % quantiles, if there are any.
    """

    at: float
    session: str
    calls: int
    predictor: str
    quantity: str
    predicted: float
    actual: float
    low: float | None = None
    high: float | None = None


@dataclass(slots=True)
class _Segment:
    """A forecast; `open` until its segment ends, `few_open` until `ends_within_3` is known."""

    forecast: ForecastRecord
    open: bool = True
    few_open: bool = True


class Outcomes:
    """Compares forecasts with what came; it keeps the forecasts of open sessions only."""

    def __init__(self, max_forecasts: int = MAX_FORECASTS) -> None:
        self._max_forecasts = max_forecasts
        self._kept = 0
        self._sessions: OrderedDict[str, list[_Segment]] = OrderedDict()

    def add(self, record: Record | None) -> list[Outcome]:
        """Take the next record; return the pairs that it completes. Other kinds complete none."""
        return list(self.compare(record))

    def compare(self, record: Record | None) -> Iterator[Outcome]:
        """Yield the pairs that the next record completes; exhaust it before the record after."""
        match record:
            case ForecastRecord():
                self._note(record)
            case PauseRecord():
                yield from self._called(record)
            case SessionRecord():
                yield from self._ended(record)

    def add_all(self, records: Iterable[Record | None]) -> Iterator[Outcome]:
        """Yield the pairs that the records complete."""
        for record in records:
            yield from self.compare(record)

    def _note(self, record: ForecastRecord) -> None:
        session = record.session or record.request
        segments = self._sessions.setdefault(session, [])
        self._sessions.move_to_end(session)
        if len(segments) < MAX_SEGMENTS:
            segments.append(_Segment(record))
            self._kept += 1
        if self._kept > self._max_forecasts:
            _, dropped = self._sessions.popitem(last=False)
            self._kept -= len(dropped)

    def _called(self, record: PauseRecord) -> Iterator[Outcome]:
        """Yield the pairs of a segment that ended with a call."""
        segments = self._sessions.get(record.session or record.request, [])
        before = [s for s in segments if s.forecast.at <= record.at + CLOCK_SECONDS]
        if not before or not before[-1].open:
            return
        segment = before[-1]
        segment.open = False
        yield from pairs_of(segment.forecast, "decode_tokens", record.decoded_tokens)
        yield from pairs_of(segment.forecast, "ends_now", 0.0)
        seconds = record.pause_seconds
        if seconds is not None and record.outcome in ANSWERED:
            yield from pairs_of(segment.forecast, "pause_seconds", seconds)
            yield from pairs_of(segment.forecast, "long_pause", float(seconds > LONG_SECONDS))
        made = segment.forecast.calls + 1
        for each in segments:
            if each.few_open and made - each.forecast.calls > FEW_CALLS:
                each.few_open = False
                yield from pairs_of(each.forecast, "ends_within_3", 0.0)

    def _ended(self, record: SessionRecord) -> Iterator[Outcome]:
        """Yield the pairs of a session that ended by itself."""
        segments = self._sessions.pop(record.session or record.request, [])
        self._kept -= len(segments)
        for segment in segments if record.outcome in BY_ITSELF else ():
            made = segment.forecast
            left = record.calls - made.calls
            if left < 0:
                continue
            if left == 0 and segment.open:
                yield from pairs_of(made, "decode_tokens", record.decoded_tokens)
                yield from pairs_of(made, "ends_now", 1.0)
            yield from pairs_of(made, "calls_left", left)
            if segment.few_open:
                yield from pairs_of(made, "ends_within_3", float(left <= FEW_CALLS))


def pairs_of(made: ForecastRecord, quantity: str, actual: float) -> Iterator[Outcome]:
    """Yield the pair of each predictor of a forecast that predicted the quantity."""
    for row in made.predictions:
        predicted = getattr(row, quantity)
        if predicted is not None:
            low, high = _range(row) if quantity == "decode_tokens" else (None, None)
            session = made.session or made.request
            yield Outcome(
                made.at, session, made.calls, row.predictor, quantity, predicted, actual, low, high
            )


def _range(row: PredictionRecord) -> tuple[float | None, float | None]:
    """Return the outer quantiles; a prediction of a single value has none."""
    low, *_, high = row.decode_quantiles or (0.0, 0.0)
    return (low, high) if low < high else (None, None)
