"""What the scheduler makes of hints: who gives up KV first, and what is learned."""

import json
from typing import Any

import pytest

from caesura.intercept.calls.watch import Watch, WatchPlan
from caesura.intercept.pause_hints import PauseHint
from caesura.scheduler.messages import Sampling, SessionSpec
from caesura.scheduler.predict.tables import MAX_TOOLS, PausePredictor
from caesura.scheduler.vllm.client.turns import Language, TurnMaker
from caesura.scheduler.vllm.wire import WATCH_KEY

from .steering import step_until, until_paused
from .world import BYTES, Session, World, make_scheduler

CALL = "sum [calc(1+2) ->"
END = 256
PERSON = PauseHint(60.0, 3600.0, person=True)


def make_world(**options: Any) -> World:
    return World(make_scheduler(**{"blocks": 40, **options}))


def paused(world: World, name: str, start: int, hint: PauseHint | None) -> Session:
    hints = {} if hint is None else {"calc": hint}
    session = world.session(name, range(start, start + 200), CALL, " 3]", " done", pauses=hints)
    until_paused(world, session)
    return session


def resident(world: World, name: str) -> int:
    kv = world.scheduler.parts.manager.paused_kvs[name]
    return len(world.scheduler.parts.manager.paused_kvs.blocks.of(kv))


def settle_copies(world: World) -> None:
    """Both are on the host as far as they ever will: neither is cheaper to release."""
    paused_kvs = [world.scheduler.parts.manager.paused_kvs[name] for name in ("person", "machine")]
    step_until(world, lambda: all(one.copied == len(one.keys) for one in paused_kvs))


@pytest.mark.parametrize("host_blocks", [None, 100])
@pytest.mark.parametrize("person_first", [True, False])
def test_who_waits_for_a_person_gives_up_its_kv_before_a_calculators(
    person_first: bool, host_blocks: int | None
) -> None:
    world = make_world(host_blocks=host_blocks)
    names = ["person", "machine"] if person_first else ["machine", "person"]
    for place, name in enumerate(names):
        paused(world, name, 1000 * place, PERSON if name == "person" else None)
    if host_blocks is not None:
        settle_copies(world)
    before = resident(world, "machine")
    assert resident(world, "person") == before
    world.plain("large", range(5000, 5000 + 260))
    for _ in range(6):
        world.step()
    assert resident(world, "person") < before
    assert resident(world, "machine") == before


def test_control_without_a_hint_the_calculators_kv_goes_first() -> None:
    """It has waited longer: nothing else tells the two apart."""
    world = make_world()
    paused(world, "machine", 0, None)
    paused(world, "person", 1000, None)
    before = resident(world, "person")
    world.plain("large", range(5000, 5000 + 260))
    for _ in range(6):
        world.step()
    assert resident(world, "machine") < before
    assert resident(world, "person") == before


@pytest.mark.parametrize("handling", ["caesura", "infercept", "lamps", "ttl"])
def test_every_handling_runs_with_hints(handling: str) -> None:
    world = make_world(host_blocks=100, handling=handling)
    paused(world, "person", 0, PERSON)
    paused(world, "machine", 1000, None)
    world.plain("large", range(5000, 5000 + 300))
    world.run()
    assert all(session.finished for session in world.sessions.values())


def test_waits_for_people_are_learned_apart_and_recorded_so() -> None:
    world = make_world(host_blocks=100)
    session = paused(world, "person", 0, PERSON)
    world.now += 500.0
    world.answer(session)
    world.run()
    other = paused(world, "machine", 1000, None)
    world.answer(other)
    world.run()
    predictor = world.scheduler.parts.sessions.history_file.predictor
    assert predictor.durations_for("person:calc").count == 1
    assert predictor.durations_for("person:calc").mean > 60.0
    assert predictor.durations_for("calc").count == 1
    assert predictor.durations_for("calc").mean < 1.0
    tools = [record["tool"] for record in world.records if record["kind"] == "pause"]
    assert tools == ["person:calc", "calc"]


def test_what_is_expected_is_the_hint_and_never_more_than_is_left_to_the_deadline() -> None:
    world = make_world()
    paused(world, "person", 0, PauseHint(500.0, 100.0, person=True))
    kv = world.scheduler.parts.manager.paused_kvs["person"]
    began = kv.since
    assert kv.durations.mean == 500.0
    assert kv.remaining(began) == 100.0
    assert kv.remaining(began + 60.0) == 40.0
    # Behind its deadline it is as overdue as any other tool.
    assert kv.remaining(began + 200.0) == pytest.approx(500.0)


def test_a_hint_without_a_person_is_the_tools_own_prior() -> None:
    world = make_world()
    paused(world, "slow", 0, PauseHint(250.0))
    kv = world.scheduler.parts.manager.paused_kvs["slow"]
    assert kv.tool == "calc"
    assert kv.durations.mean == 250.0


@pytest.mark.parametrize("order", [("ask_user", "calc"), ("calc", "ask_user")])
def test_a_turn_of_several_calls_waits_for_the_person(order: tuple[str, ...]) -> None:
    calls = "".join(
        f"<tool_call>{json.dumps({'name': name, 'arguments': {}})}</tool_call>" for name in order
    )
    world = make_world(blocks=60)
    session = world.session(
        "a", range(40), calls, " results", " done", formats=("hermes",), pauses={"ask_user": PERSON}
    )
    # A turn in this format is over with its last token, which the model's end of turn is.
    session.parts[0].append(256)
    until_paused(world, session)
    assert world.scheduler.parts.manager.paused_kvs["a"].tool == "person:ask_user"


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("qwen3_coder", "<tool_call><function=ask_user></function></tool_call>"),
        ("llama3_json", '{"name": "ask_user", "parameters": {}}; {"name": "calc"}'),
        ("mistral", '[TOOL_CALLS][{"name": "ask_user"}, {"name": "calc"}]'),
        ("inline", "Well: [ask_user(Who?) ->"),
    ],
)
def test_a_person_is_seen_in_every_format(form: str, text: str) -> None:
    plan = WatchPlan((form,), ("ask_user", "calc"), pauses={"ask_user": PERSON})

    def awaited(said: str) -> tuple[str | None, PauseHint | None]:
        watch = Watch(plan, BYTES, frozenset({END}))
        watch.first_stop([*said.encode(), END])
        return watch.awaited()

    assert awaited(text) == ("person:ask_user", PERSON)
    assert awaited(text.replace("ask_user", "calc")) == ("calc", None)
    assert awaited("I could ask_user but do not.") == (None, None)


def test_a_predictor_believes_a_hint_until_it_has_seen_some() -> None:
    predictor = PausePredictor()
    predictor.expect("person:calc", 300.0)
    first = predictor.durations_for("person:calc")
    predictor.expect("person:calc", 300.0)
    assert predictor.durations_for("person:calc") is first
    assert first.mean == 300.0
    for _ in range(20):
        predictor.observe("person:calc", 10.0)
    predictor.expect("person:calc", 300.0)
    assert predictor.durations_for("person:calc").mean < 60.0
    again = PausePredictor.from_wire(json.loads(json.dumps(predictor.to_wire())))
    assert again.durations_for("person:calc") == predictor.durations_for("person:calc")


def test_a_person_is_slow_even_where_nobody_said_how_slow() -> None:
    assert PausePredictor().durations_for("person:calculator").mean == 60.0


def test_hints_are_bounded() -> None:
    predictor = PausePredictor()
    for index in range(MAX_TOOLS + 5):
        predictor.expect(f"t{index}", 77.0)
    assert predictor.durations_for("t0").mean != 77.0
    assert predictor.durations_for(f"t{MAX_TOOLS}").mean == 77.0


def test_a_session_sends_its_hints_with_every_turn() -> None:
    language = Language(None, ("hermes",), ())
    tools = [{"type": "function", "function": {"name": "ask_user"}}]
    for pauses in ({"ask_user": PERSON}, {}):
        turns = TurnMaker(language, SessionSpec(tools, pauses=pauses))
        sent: Any = turns.watch("fresh", Sampling(), "")
        assert WatchPlan.from_wire(sent[WATCH_KEY]).pauses == pauses
        assert ("pauses" in sent[WATCH_KEY]) == bool(pauses)
