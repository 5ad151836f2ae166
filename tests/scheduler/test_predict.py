"""What is expected of tools, from their names and from what they did."""

import json

import pytest

from caesura.scheduler.predict.forecast import About, Forecast
from caesura.scheduler.predict.history import History
from caesura.scheduler.predict.tables import MAX_TOOLS, UNKNOWN_SECONDS, PausePredictor, guess

from .world import World, make_scheduler


class ImportedHistory(History):
    """A predictor by class name: it knows only the pauses that the scheduler tells it."""


@pytest.mark.parametrize("prediction", ["history", f"{__name__}.ImportedHistory"])
def test_the_scheduler_tells_every_predictor_each_pause_once(prediction: str) -> None:
    world = World(make_scheduler(prediction=prediction))
    world.session("a", range(40), "sum [calc(1+2) ->", " 3]", " is [calc(3*3) ->", " 9]", " done")
    world.run()
    assert world.scheduler.parts.sessions.predictor.pause("a", "calc").count == 2


class Failing(History):
    """A predictor that forecasts one session and then fails."""

    def forecast(self, about: About) -> Forecast:
        if about.key == "b":
            raise RuntimeError("no forecast for b")
        return super().forecast(about)


def test_a_predictor_that_fails_is_replaced_and_all_sessions_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(make_scheduler(prediction=f"{__name__}.Failing", ranking="ssjf"))
    for key in "abc":
        world.session(key, range(40), "sum [calc(1+2) ->", " 3]", " done")
    world.run()
    predictor = world.scheduler.parts.sessions.predictor
    told = [record for record in caplog.records if "history predicts" in record.getMessage()]
    assert len(told) == 1, "the failure is reported once"
    assert predictor.forecast(About("b", "calc", 0, 0)).decode_tokens > 0


@pytest.mark.parametrize(
    ("tool", "seconds"),
    [
        ("calculator", 0.001),
        ("math", 0.001),
        ("get_current_time", 0.001),
        ("search", 1.0),
        ("wikiSearch", 1.0),
        ("http_get", 1.0),
        ("image_search", 1.0),
        ("run_sql", 0.05),
        ("query_database", 0.05),
        ("python", 5.0),
        ("runTests", 5.0),
        ("bash", 5.0),
        ("generate_image", 20.0),
        ("text_to_speech", 15.0),
        ("tts", 15.0),
        ("ask_user", 60.0),
        ("request_approval", 60.0),
    ],
)
def test_a_name_says_something(tool: str, seconds: float) -> None:
    assert PausePredictor().durations_for(tool).mean == seconds


@pytest.mark.parametrize("tool", ["update_record", "task_list", "summarize", "mathilda", "", "x"])
def test_a_name_that_says_nothing(tool: str) -> None:
    assert guess(tool) is None
    assert PausePredictor().durations_for(tool).mean == UNKNOWN_SECONDS


def test_what_is_seen_overrules_the_name_within_a_few_calls() -> None:
    predictor = PausePredictor()
    for _ in range(6):
        predictor.observe("calculator", 30.0)
    assert predictor.durations_for("calculator").mean == pytest.approx(30.0, rel=0.1)
    assert predictor.durations_for("math").mean == 0.001


def test_an_unknown_tool_is_taken_for_the_mean_of_the_others() -> None:
    predictor = PausePredictor()
    for tool in range(20):
        for _ in range(1 + 30 * (tool == 0)):
            predictor.observe(f"t{tool}", 0.1)
    assert predictor.durations_for("new").mean < 0.6
    assert predictor.durations_for("new") is predictor.durations_for(None)
    before = predictor.durations_for("new").mean
    predictor.observe("slow", 1000.0)
    assert predictor.durations_for("new").mean > before


def test_a_record_that_was_handed_out_stays_as_it_was() -> None:
    predictor = PausePredictor()
    handed_out = predictor.durations_for("search")
    predictor.observe("search", 9.0)
    assert handed_out.count == 0
    assert predictor.durations_for("search").recent == (9.0,)


def test_calls_of_no_known_tool_are_learned_too() -> None:
    predictor = PausePredictor()
    for _ in range(10):
        predictor.observe(None, 0.5)
    assert predictor.durations_for(None).mean == pytest.approx(0.5, rel=0.2)


def test_it_remembers_a_bounded_number_of_tools() -> None:
    predictor = PausePredictor()
    predictor.observe("first", 77.0)
    for index in range(MAX_TOOLS - 1):
        predictor.observe(f"t{index}", 1.0)
    predictor.observe("first", 77.0)
    predictor.observe("one_more", 1.0)
    assert predictor.durations_for("first").count == 2
    assert predictor.durations_for("t0").count == 0
    assert len(predictor.to_wire()["tools"]) == MAX_TOOLS


def test_over_a_restart() -> None:
    predictor = PausePredictor()
    for seconds in (1.0, 2.0, 3.0):
        predictor.observe("search", seconds)
        predictor.observe(None, seconds)
    wire = json.loads(json.dumps(predictor.to_wire()))
    again = PausePredictor.from_wire(wire)
    assert again.to_wire() == predictor.to_wire()
    assert again.durations_for("search") == predictor.durations_for("search")
    assert again.durations_for("new") == predictor.durations_for("new")


@pytest.mark.parametrize(
    "wire",
    [None, [], {}, {"tools": []}, {"tools": {"a": {}}}, {"tools": {"a": 1}}, {"tools": {1: {}}}],
)
def test_a_broken_record_is_refused(wire: object) -> None:
    with pytest.raises(ValueError):
        PausePredictor.from_wire(wire)  # type: ignore[arg-type]


def test_nonsense_teaches_nothing() -> None:
    predictor = PausePredictor()
    with pytest.raises(ValueError):
        predictor.observe("search", float("nan"))
    assert predictor.to_wire() == {"tools": {}}
