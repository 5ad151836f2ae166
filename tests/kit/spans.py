"""Spans kept in memory, and a process's tracing set up anew for each test."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from caesura.runtime.receiver import receiver_of_process
from caesura.runtime.tracing.setup import from_environment


class Spans:
    """What was sent, and `processor`, which is given to whatever is traced."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.processor = SimpleSpanProcessor(self._exporter)

    @property
    def all(self) -> tuple[ReadableSpan, ...]:
        """Ended spans, in the order in which they ended."""
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        """The spans of an operation, or of a whole name, in the order in which they began."""
        found = [span for span in self.all if f"{span.name} ".startswith(f"{name} ")]
        return sorted(found, key=lambda span: span.start_time or 0)

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def text(self) -> str:
        """All that was sent."""
        return "".join(span.to_json() for span in self.all)


def facts(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture(autouse=True)
def set_up_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    from_environment.cache_clear()
    receiver_of_process.cache_clear()
    yield
    from_environment.cache_clear()
    receiver_of_process.cache_clear()
