"""Records of the scheduler's actions and their reasons: one schema for writers and readers."""

from caesura.scheduler.records.parts import (
    DecisionRow,
    FeatureRecord,
    LackedSteps,
    OpeningInputs,
    PredictionRecord,
    PriceRecord,
    Record,
    SpanEvent,
    WantedRow,
)
from caesura.scheduler.records.plans import PlanRecord, ProgressRecord, ReplicaRecord, StageRecord
from caesura.scheduler.records.reading import RecordError, parse
from caesura.scheduler.records.rest import RestRecord
from caesura.scheduler.records.restarts import ContinuedRecord, RestartRecord
from caesura.scheduler.records.schema import (
    KINDS,
    ForecastRecord,
    GapRecord,
    HttpRecord,
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
    "ContinuedRecord",
    "DecisionRow",
    "FeatureRecord",
    "ForecastRecord",
    "GapRecord",
    "HttpRecord",
    "LackedSteps",
    "LanesRecord",
    "OpeningInputs",
    "OpeningRecord",
    "PauseRecord",
    "PlanRecord",
    "PredictionRecord",
    "PriceRecord",
    "ProgressRecord",
    "Record",
    "RecordError",
    "ReplicaRecord",
    "RestRecord",
    "RestartRecord",
    "SessionRecord",
    "SpanEvent",
    "SpanRecord",
    "StageRecord",
    "StepsRecord",
    "WaitRecord",
    "WantedRow",
    "parse",
]
