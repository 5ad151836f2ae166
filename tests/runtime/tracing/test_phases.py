"""What the engine did, as child spans of the turns and the run: made of its records."""

from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.trace import SpanContext, set_span_in_context

from caesura.runtime.recording import catalog
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.recording.storage import Store
from caesura.runtime.tracing import phases as phases_module
from caesura.runtime.tracing.phases import EnginePhases
from caesura.runtime.tracing.setup import tracing_of
from tests.kit.spans import Spans, facts

ROWS = [
    ("waiting", 10.0, 0),
    ("prefill", 11.0, 4),
    ("decode", 12.0, 4),
    ("decode", 12.5, 5),  # the same state goes on
    ("paused", 13.0, 5),
    ("offloaded", 14.0, 0),
    ("dropped", 15.0, 0),
    ("waiting", 16.0, 0),
    ("recompute", 16.25, 5),
    ("decode", 17.0, 6),
    ("ended", 18.0, 0),
]


def lanes(rows: list[tuple[str, float, int]], request: str = "session-1-suffix") -> dict[str, Any]:
    return {
        "kind": "lanes",
        "request": [request] * len(rows),
        "state": [state for state, _, _ in rows],
        "at": [at for _, at, _ in rows],
        "blocks": [blocks for _, _, blocks in rows],
    }


class World:
    """A provider with phases, and the spans of a run with its turns."""

    def __init__(self, spans: Spans) -> None:
        self.spans = spans
        self.provider = TracerProvider()
        self.provider.add_span_processor(spans.processor)
        self.phases = EnginePhases(self.provider)
        self.provider.add_span_processor(self.phases)
        self._tracer = self.provider.get_tracer("caesura")
        self._run = self._tracer.start_span("run", start_time=round(9.9e9))
        self.run: SpanContext = self._run.get_span_context()

    def turn(self, start: float, end: float, request: str = "session-1") -> SpanContext:
        attributes = {"gen_ai.operation.name": "chat", "caesura.request.id": request}
        span = self._tracer.start_span(
            "chat m",
            set_span_in_context(self._run),
            attributes=attributes,
            start_time=round(start * 1e9),
        )
        span.end(round(end * 1e9))
        return span.get_span_context()

    @property
    def told(self) -> list[tuple[str, float, float]]:
        made = [span for span in self.spans.all if "caesura.phase" in facts(span)]
        return [(span.name, *times(span)) for span in made]

    def parents(self) -> list[int]:
        made = [span for span in self.spans.all if "caesura.phase" in facts(span)]
        return [span.parent.span_id for span in made if span.parent is not None]


def times(span: ReadableSpan) -> tuple[float, float]:
    return (span.start_time or 0) / 1e9, (span.end_time or 0) / 1e9


@pytest.fixture
def world(spans: Spans) -> World:
    return World(spans)


def test_each_state_is_a_span_under_its_turn_and_pauses_under_the_run(world: World) -> None:
    first, second = world.turn(9.95, 13.1), world.turn(15.9, 18.1)
    world.phases.take(0, [lanes(ROWS)])
    assert world.told == [
        ("queue", 10.0, 11.0),
        ("prefill", 11.0, 12.0),
        ("decode", 12.0, 13.0),
        ("pause", 13.0, 14.0),
        ("pause", 14.0, 15.0),
        ("pause", 15.0, 16.0),
        ("queue", 16.0, 16.25),
        ("recompute", 16.25, 17.0),
        ("decode", 17.0, 18.0),
    ]
    one, two, run = first.span_id, second.span_id, world.run.span_id
    assert world.parents() == [one, one, one, run, run, run, two, two, two]
    made = [span for span in world.spans.all if "caesura.phase" in facts(span)]
    assert {span.context.trace_id for span in made if span.context} == {world.run.trace_id}
    assert [facts(span).get("caesura.kv.state") for span in made[3:6]] == [
        "device",
        "host",
        "dropped",
    ]
    assert facts(made[2])["caesura.kv.blocks"] == 5


def test_records_and_turns_may_come_in_any_order(world: World) -> None:
    world.phases.take(0, [lanes(ROWS[:6])])
    assert world.told == []  # no turn has ended yet
    world.turn(9.95, 13.1)
    assert [name for name, *_ in world.told] == ["queue", "prefill", "decode", "pause"]
    world.phases.take(0, [lanes(ROWS[6:])])
    assert len(world.told) == 6  # the second turn's wait for its span
    world.turn(15.9, 18.1)
    assert len(world.told) == 9


def test_what_was_under_way_ends_with_the_engine(world: World) -> None:
    world.turn(9.95, 30.0)
    world.phases.take(0, [lanes(ROWS[:3])])
    world.phases.take(0, [{"kind": "restart", "at": 12.25}, lanes([("waiting", 20.0, 0)], "new-x")])
    world.phases.take(0, [{"kind": "restart", "at": 12.25, "seconds": 9.0}])
    assert world.told[-1] == ("decode", 12.0, 12.25)
    world.turn(19.0, 30.0, "new")
    world.phases.take(0, [lanes([("prefill", 21.0, 1)], "new-x")])
    assert world.told[-1] == ("queue", 20.0, 21.0)


def test_requests_that_no_turn_tells_of_are_forgotten(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phases_module, "MAX_REQUESTS", 3)
    for number in range(10):
        world.phases.take(0, [lanes(ROWS[:2], f"session-{number}-x")])
    world.turn(9.0, 12.0, "session-0")
    assert world.told == []
    world.turn(9.0, 12.0, "session-9")
    assert [name for name, *_ in world.told] == ["queue"]


def test_an_engine_is_listened_to_once(world: World) -> None:
    class Backend:
        listeners = 0

        def listen(self, take: Any) -> Any:
            self.listeners += 1

    engine: Any = Backend()
    world.phases.watch(engine)
    world.phases.watch(engine)
    assert engine.listeners == 1


def test_phases_are_sent_and_not_recorded(spans: Spans, tmp_path: Path) -> None:
    store = Store(tmp_path / "traces.sqlite")
    with Recorder(store) as recorder:
        tracing = tracing_of(spans.processor, recorder)
        assert tracing is not None and tracing._phases is not None
        run = tracing.run("m")
        chat = run._begin_chat([], None)
        chat.request_id = "session-1"
        run._end_chat(chat, None)
        now = (chat.span.start_time or 0) / 1e9  # type: ignore[attr-defined]
        tracing._phases.take(0, [lanes([("waiting", now, 0), ("prefill", now + 1, 1)])])
    assert spans.one("queue").parent == chat.span.get_span_context()
    names = {each["name"] for each in catalog.entries(store.path, 1)}
    assert names == {"invoke_agent m", "chat m"}
