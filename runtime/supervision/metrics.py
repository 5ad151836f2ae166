"""The metrics of a supervised engine."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from caesura.runtime.supervision.readiness import Phase
from caesura.runtime.supervision.supervisor import Supervisor

MAX_REASON_CHARACTERS = 200


class EngineMetrics(Collector):
    """Restarts, deaths, and whether the engine is up."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as they are now."""
        supervisor, readiness = self._supervisor, self._supervisor.readiness
        up = GaugeMetricFamily("caesura_engine_up", "Whether the engine takes requests.")
        up.add_metric([], float(readiness.phase is Phase.READY))
        yield up
        restarts = CounterMetricFamily(
            "caesura_engine_restarts", "How many times the engine was started again."
        )
        restarts.add_metric([], supervisor.restarts)
        yield restarts
        deaths = CounterMetricFamily(
            "caesura_engine_deaths", "Deaths of the engine, by kind.", labels=["kind"]
        )
        for kind, count in supervisor.deaths.items():
            deaths.add_metric([kind], count)
        yield deaths
        if readiness.reason:
            last = GaugeMetricFamily(
                "caesura_engine_last_death", "Why the engine died the last time.", labels=["reason"]
            )
            last.add_metric([readiness.reason[:MAX_REASON_CHARACTERS]], 1)
            yield last
