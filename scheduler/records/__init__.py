"""Records of the scheduler's actions and their reasons: one schema for writers and readers."""

from caesura.scheduler.records.parts import (
    DecisionRow,
    LackedSteps,
    OpeningInputs,
    PriceRecord,
    Record,
    SpanEvent,
)
from caesura.scheduler.records.reading import RecordError, parse
from caesura.scheduler.records.schema import (
    KINDS,
    GapRecord,
    LanesRecord,
    OpeningRecord,
    PauseRecord,
    SessionRecord,
    SpanRecord,
    StepsRecord,
    WaitRecord,
)

__all__ = [
    "KINDS",
    "DecisionRow",
    "GapRecord",
    "LackedSteps",
    "LanesRecord",
    "OpeningInputs",
    "OpeningRecord",
    "PauseRecord",
    "PriceRecord",
    "Record",
    "RecordError",
    "SessionRecord",
    "SpanEvent",
    "SpanRecord",
    "StepsRecord",
    "WaitRecord",
    "parse",
]
