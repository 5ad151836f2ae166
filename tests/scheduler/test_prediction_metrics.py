"""The metrics of predictions: errors that can be divided, and work that is bounded."""

from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge

from caesura.scheduler.records import ForecastRecord, PredictionRecord, SessionRecord
from caesura.scheduler.vllm.engine.export.metrics import MAX_PAIRS, PredictionMetrics

LABELS = {0: ["m"], 1: ["m"]}


class Made:
    """The metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = PredictionMetrics(self.make, Counter, Gauge, ["model"])

    def make(self, kind: Any, **about: Any) -> Any:
        return kind(registry=self.registry, **about)

    def value(self, name: str, quantity: str) -> float | None:
        labels = {"model": "m", "predictor": "history", "quantity": quantity}
        return self.registry.get_sample_value(f"caesura_prediction_{name}", labels)

    def session(self, key: str, calls: int, forecasts: int = 1, engine: int = 0) -> None:
        for made in range(forecasts):
            row = PredictionRecord("history", 50.0, calls_left=4.0, ends_now=0.2 if calls else 0.9)
            record = ForecastRecord(key, float(made), key, made, predictions=(row,))
            self.metrics.take(engine, record)
        end = SessionRecord(key, 9.0, key, decoded_tokens=30, calls=calls, outcome="stop")
        self.metrics.take(engine, end)


@pytest.fixture
def made() -> Made:
    return Made()


def test_errors_are_summed_by_predictor_and_quantity(made: Made) -> None:
    made.session("a", 0)
    made.session("b", 0)
    made.metrics.work(LABELS)
    assert made.value("pairs_total", "decode_tokens") == 2
    assert made.value("absolute_error_total", "decode_tokens") == 40
    assert made.value("predicted_total", "decode_tokens") == 100
    assert made.value("actual_total", "decode_tokens") == 60
    assert made.value("absolute_error_total", "calls_left") == 8
    assert made.value("calibration_error", "ends_now") == pytest.approx(0.1)
    assert made.value("pairs_total", "long_pause") is None


def test_an_area_that_is_not_defined_is_not_shown(made: Made) -> None:
    made.session("a", 0)
    made.metrics.work(LABELS)
    assert made.value("auc", "ends_now") is None
    assert made.value("calibration_error", "decode_tokens") is None


def test_a_long_session_is_counted_in_parts(made: Made) -> None:
    made.session("a", MAX_PAIRS + 49, forecasts=MAX_PAIRS + 50)
    made.metrics.work(LABELS)
    assert made.value("pairs_total", "calls_left") == MAX_PAIRS
    made.metrics.work(LABELS)
    assert made.value("pairs_total", "calls_left") == MAX_PAIRS + 50
    assert made.value("pairs_total", "decode_tokens") == 1


def test_engines_do_not_share_sessions(made: Made) -> None:
    row = PredictionRecord("history", 50.0)
    made.metrics.take(0, ForecastRecord("a", 0.0, "a", predictions=(row,)))
    made.metrics.take(1, SessionRecord("a", 9.0, "a", decoded_tokens=30, outcome="stop"))
    made.metrics.work(LABELS)
    assert made.value("pairs_total", "decode_tokens") is None
