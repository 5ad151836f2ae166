"""Small worlds for the tests of rankings: a request that queues and an engine, by a few numbers."""

from dataclasses import replace
from math import exp
from typing import Any

from hypothesis import strategies as st

from caesura.intercept.kv.costs import CostModel
from caesura.scheduler.policy.names import make_ranking
from caesura.scheduler.policy.ranking import Queued, QueueView
from caesura.scheduler.predict.forecast import Forecast

COST = CostModel(0.01, 2e-5, 8e-5, 3e-8, 256, out_rate=100_000.0, in_rate=50_000.0)


def forecast(**changes: Any) -> Forecast:
    """30 tokens, a call that takes a second and returns 20, and so on; a tenth end each time."""
    usual = Forecast(
        decode_tokens=30.0,
        segment_tokens=40.0,
        result_tokens=20.0,
        pause_seconds=1.0,
        pause_discount=1 - exp(-1 / 60),
        ends=(0.1,) * 100,
    )
    return replace(usual, **changes)


def queued(**changes: Any) -> Queued:
    """A request of 1000 tokens, all on the device; what is no field of it is its forecast's."""
    fields = {key: changes.pop(key) for key in list(changes) if key in Queued.__slots__}
    usual = Queued("a", 10.0, 12.0, 1000, 1000, 0, 0, 2, forecast(**changes))
    return replace(usual, **fields)


def view(**changes: Any) -> QueueView:
    """30 requests that run with 40,000 tokens, in a cache of 50,000, at 0.03 s a step."""
    return replace(QueueView(20.0, 50_000, 0.03, 30, 40_000, True, COST), **changes)


def score(name: str, one: Queued, seen: QueueView | None = None) -> tuple[float, ...]:
    return make_ranking(name).score(one, seen or view())


ENDS = st.lists(st.floats(0, 1), max_size=100).map(tuple)
ANY_FORECAST = st.builds(
    Forecast,
    decode_tokens=st.floats(0, 2000),
    segment_tokens=st.floats(0, 2000),
    result_tokens=st.floats(0, 5000),
    pause_seconds=st.floats(0, 600),
    pause_discount=st.floats(0, 0.999),
    ends=st.one_of(ENDS, st.floats(0, 0.3).map(lambda hazard: (hazard,) * 100)),
)


@st.composite
def any_queued(draw: st.DrawFn) -> Queued:
    context = draw(st.integers(1, 40_000))
    resident = draw(st.integers(0, context))
    return queued(
        arrival=draw(st.floats(0, 1e5)),
        queued_at=draw(st.floats(0, 1e5)),
        context_tokens=context,
        resident_tokens=resident,
        hosted_tokens=draw(st.integers(0, context - resident)),
        starved=draw(st.booleans()),
        forecast=draw(ANY_FORECAST),
    )


ANY_VIEW = st.builds(
    view,
    now=st.floats(0, 1e5),
    capacity_tokens=st.integers(1000, 1_000_000),
    step_seconds=st.floats(1e-3, 1.0),
    batch_tokens=st.integers(0, 1_000_000),
    swap_pays=st.booleans(),
)
