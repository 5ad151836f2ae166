"""The metrics `caesura_*`, from what registers them."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from caesura.runtime.server.load import metrics
from caesura.runtime.supervision import EngineMetrics
from caesura.scheduler.vllm.client.data_parallel import ROUTED
from caesura.scheduler.vllm.engine.export.metrics import KVMetrics, PredictionMetrics
from caesura.tools.limits import CallStats
from tests.reference.markdown import code, page, table

ABOUT = (
    "`GET /metrics` has these in Prometheus' text format, beside vLLM's own `vllm:*`. Blocks are"
    " those of the pool, of one size for all groups of layers ([records](records.md)). Traffic of a"
    " calibration counts in none of them. Metrics of the engine have the label `engine` too."
)
HEAD = ("metric", "type", "labels", "what it says")


def metrics_page() -> str:
    """Return the page."""
    return page(
        "Metrics",
        ABOUT,
        "## Of the server\n\n",
        table(HEAD, sorted([*server(), *supervision(), *routing()])),
        "## Of the engine\n\n",
        table(HEAD, sorted(engine())),
    )


def row(name: str, kind: str, labels: list[str], about: str) -> list[str]:
    """Return the row of a metric, with the name that `/metrics` has."""
    full = f"{name}_total" if kind == "counter" and not name.endswith("_total") else name
    return [code(full), kind, ", ".join(code(each) for each in labels), about]


def server() -> Iterator[list[str]]:
    """Yield the metrics of the endpoint."""
    found: list[tuple[str, str, list[str], str]] = []

    def made(kind: type[Any]) -> Any:
        def make(name: str, about: str, labels: Any = (), **given: Any) -> Any:
            found.append((name, kind.__name__.lower(), list(labels), about))
            return kind(name, about, labels, **given)

        return make

    counted = SimpleNamespace(dropped=0, written=0)
    stats = CallStats()
    stats.given_up = 1
    with (
        patch.object(metrics, "Counter", made(Counter)),
        patch.object(metrics, "Gauge", made(Gauge)),
        patch.object(metrics, "Histogram", made(Histogram)),
    ):
        own = metrics.Metrics(counted, counted, {"NAME": stats})
    registry = CollectorRegistry()
    own.join(registry)
    for each in found:
        yield row(*each)
    known = {name for name, *_ in found}
    for family in registry.collect():
        if family.name not in known:
            labels = sorted({label for sample in family.samples for label in sample.labels})
            yield row(family.name, family.type, labels, family.documentation)


def supervision() -> Iterator[list[str]]:
    """Yield the metrics of the engine's deaths and restarts."""
    supervisor: Any = SimpleNamespace(
        restarts=0, deaths={"died": 0}, readiness=SimpleNamespace(phase=None, reason="gone")
    )
    for family in EngineMetrics(supervisor).collect():
        labels = sorted({label for sample in family.samples for label in sample.labels})
        yield row(family.name, family.type, labels, family.documentation)


def routing() -> Iterator[list[str]]:
    """Yield what the process counts of data-parallel engines."""
    for family in ROUTED.collect():
        yield row(family.name, family.type, ["engine", "why"], family.documentation)


def engine() -> Iterator[list[str]]:
    """Yield the metrics that are computed from the scheduler's records."""
    found: list[list[str]] = []
    registry = CollectorRegistry()

    def make(kind: type[Any], **given: Any) -> Any:
        about, labels = given["documentation"], list(given["labelnames"])
        found.append(row(given["name"], kind.__name__.lower(), labels, about))
        return kind(registry=registry, **given)

    KVMetrics(make, Counter, Gauge, Histogram, [])
    PredictionMetrics(make, Counter, Gauge, [])
    return iter(found)
