"""Watch plans as any client of `vllm serve` may send them: the engine goes on whatever they are."""

from math import inf
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caesura.intercept.calls.formats import NAMES
from caesura.intercept.calls.watch import MAX_CHARACTERS, MAX_TEXTS, WatchPlan
from caesura.intercept.pause_hints import MAX_SECONDS, MIN_SECONDS, PauseHint
from caesura.scheduler.errors import UsageError
from caesura.scheduler.messages import Sampling, SessionSpec
from caesura.scheduler.vllm.client.turns import Language, TurnMaker
from caesura.scheduler.vllm.wire import WATCH_KEY

from .steering import until_paused
from .world import Session, World, make_scheduler

CALL = "sum [calc(1+2) ->"


def send(world: World, request_id: str, plan: Any) -> Session:
    """Add a plain request whose extra arguments hold anything."""
    session = Session(request_id, list(range(20)), [[*b"ok [calc(1) -> <tool_call>", 256]], ())
    world.sessions[request_id] = session
    request = world._request(request_id, session.prompt, False, None)
    request.sampling_params.extra_args = {WATCH_KEY: plan}
    world.scheduler.add_request(request)
    return session


@pytest.mark.parametrize(
    "plan",
    [
        "hermes",
        7,
        ["hermes"],
        {"formats": "hermes"},
        {"formats": ["xml"]},
        {"formats": ["inline"], "tools": ["\ud800"]},
        {"formats": ["inline"], "turn": ["fresh"]},
        {"formats": ["inline"], "tools": ["calc"], "pauses": "calc"},
        {"formats": ["inline"], "tools": ["calc"], "pauses": {"calc": [1, 2]}},
        {"formats": ["inline"], "tools": ["calc"], "pauses": {"calc": [float("nan"), None, 1]}},
        {"formats": ["inline"], "tools": ["calc"], "pauses": {"calc": [10**400, None, 1]}},
        {"formats": ["inline"], "tools": ["t"] * (MAX_TEXTS + 1)},
        {"formats": [], "stop": ["s" * (MAX_CHARACTERS + 1)]},
    ],
)
def test_a_request_with_a_bad_plan_runs_unwatched(
    plan: Any, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(make_scheduler())
    session = send(world, "a", plan)
    world.run()
    assert session.finished
    assert "a is not watched for calls" in caplog.text


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
TEXTS = st.lists(st.sampled_from([*NAMES, "calc", "ok", "[", "\ud800", ""]), max_size=4)
PLANS = VALUES | st.fixed_dictionaries(
    {},
    optional={
        "formats": st.lists(st.sampled_from(NAMES), max_size=4) | VALUES,
        "tools": TEXTS | VALUES,
        "stop": TEXTS | VALUES,
        "turn": st.sampled_from(["fresh", "begun", "holding"]) | VALUES,
        "pauses": st.dictionaries(
            st.sampled_from(["calc", "person:calc", ""]),
            st.tuples(st.floats() | st.integers(), st.none() | st.floats(), VALUES) | VALUES,
            max_size=3,
        )
        | VALUES,
    },
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(PLANS, min_size=1, max_size=6))
def test_no_plan_stops_the_engine(plans: list[Any]) -> None:
    world = World(make_scheduler())
    sessions = [send(world, f"r{index}", plan) for index, plan in enumerate(plans)]
    world.run()
    assert all(session.finished for session in sessions)


@pytest.mark.parametrize("handling", ["caesura", "infercept", "lamps", "ttl"])
@pytest.mark.parametrize("seconds", [5e-324, MIN_SECONDS, MAX_SECONDS, 1e308])
@pytest.mark.parametrize("deadline", [None, 5e-324, 1e308])
def test_no_hint_is_too_short_or_too_long(
    handling: str, seconds: float, deadline: float | None
) -> None:
    world = World(make_scheduler(blocks=40, host_blocks=40, handling=handling))
    hints = {"calc": PauseHint(seconds, deadline, person=True)}
    for index in range(3):
        session = world.session(
            f"s{index}", range(1000 * index, 1000 * index + 200), CALL, " 3]", " on", pauses=hints
        )
        until_paused(world, session)
    means = [kv.durations.mean for kv in world.scheduler.parts.manager.paused_kvs.values()]
    assert all(0 < mean < inf for mean in means)
    world.run()
    assert all(session.finished for session in world.sessions.values())
    again = PauseHint.from_wire(hints["calc"].to_wire())
    assert again == hints["calc"]


def test_sessions_with_very_many_tools_are_a_kind_of_a_short_name() -> None:
    world = World(make_scheduler())
    names = [f"tool_number_{index}" for index in range(500)]
    for request_id, tools in (("a", names), ("b", names[::-1]), ("c", names[1:])):
        send(world, request_id, WatchPlan(("hermes",), tuple(tools)).to_wire())
    kinds = {name: world.scheduler.parts.sessions[name].kind for name in "abc"}
    assert kinds["a"] == kinds["b"] != kinds["c"]
    assert all(len(kind) < 50 for kind in kinds.values())
    world.run()


def test_a_session_with_too_many_tools_is_refused_and_not_left_unwatched() -> None:
    tools = [{"type": "function", "function": {"name": f"t{index}"}} for index in range(1001)]
    turns = TurnMaker(Language(None, ("hermes",), ()), SessionSpec(tools))
    with pytest.raises(UsageError, match="1000"):
        turns.watch("fresh", Sampling(), "")
