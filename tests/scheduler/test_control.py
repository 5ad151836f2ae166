"""Control messages: what a scheduler answers, and that nothing said to it can break it."""

from pathlib import Path
from typing import Any

import pytest

from caesura.intercept.calls.formats import resolve
from caesura.intercept.kv.costs import PRIOR, CostModel
from caesura.scheduler.paths import control_secret_path
from caesura.scheduler.vllm.wire import SECRET, secret_to_send

from .lanes import states
from .world import World, make_scheduler

COST = CostModel(0.02, 1e-4, 2e-4, 1e-7, 64, 1000.0, 2000.0)


@pytest.fixture
def scheduler() -> Any:
    return make_scheduler(host_blocks=20)


def test_facts(scheduler: Any) -> None:
    facts = scheduler.parts.commands.run("facts")
    assert facts == {
        "block_size": 16,
        "capacity_tokens": 1600,
        "block_bytes": 0,
        "groups": {"growing": 1, "windows": (), "states": 0},
        "bytes_per_token": 8,
        "blocks": 100,
        "host_blocks": 20,
        "most_step_tokens": 512,
        "most_running": 16,
        "most_context": 512,
    }
    assert make_scheduler().parts.commands.run({"command": "facts"})["host_blocks"] == 0


def test_everybody_goes_by_a_new_cost_model(scheduler: Any) -> None:
    manager, commands = scheduler.parts.manager, scheduler.parts.commands
    costs = scheduler.parts.costs
    assert costs.model == PRIOR
    reply = commands.run({"command": "calibrate", "cost": COST.to_wire()})
    assert reply == {"cost": COST.to_wire()}
    assert costs.model == COST == manager.views.step().cost
    costs.observe_step(1, 0, 0.04)
    assert costs.model.base > COST.base


def test_a_link_that_nobody_measured_is_guessed(scheduler: Any) -> None:
    """Rates of zero would switch it off, and it would never be measured."""
    unlinked = CostModel(0.02, 1e-4, 2e-4, 1e-7, 64)
    wire = unlinked.to_wire()
    cost = scheduler.parts.commands.run({"command": "calibrate", "cost": wire})["cost"]
    assert (cost["out_rate"], cost["in_rate"]) == (PRIOR.out_rate, PRIOR.in_rate)
    plain = make_scheduler()
    assert plain.parts.commands.run({"command": "calibrate", "cost": wire})["cost"] == wire


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("nonsense", "unknown command 'nonsense'; known: state, facts"),
        (3, "unknown command 3"),
        ({}, "unknown command None"),
        ({"command": ["state"]}, "unknown command"),
        ({"command": "calibrate"}, "not a cost model"),
        ({"command": "calibrate", "cost": {"base": 1}}, "not a cost model"),
        (
            {"command": "calibrate", "cost": {**COST.to_wire(), "base": -1}},
            "must be a finite number >= 0",
        ),
        ({"command": "calibrate", "cost": {**COST.to_wire(), "in_rate": "x"}}, "convert"),
        ({"command": "measure"}, "`on` must be true or false"),
        ({"command": "measure", "on": 1}, "`on` must be true or false"),
    ],
)
def test_what_is_wrong_is_answered(scheduler: Any, message: Any, problem: str) -> None:
    assert problem in scheduler.parts.commands.run(message)["error"]
    assert scheduler.parts.costs.model == PRIOR


def test_a_handler_that_fails_is_answered(scheduler: Any) -> None:
    scheduler.parts.step_costs.samples = None
    assert "TypeError" in scheduler.parts.commands.run("samples")["error"]


def test_a_trial_leaves_no_trace(scheduler: Any) -> None:
    manager, commands = scheduler.parts.manager, scheduler.parts.commands
    handling, sessions = manager.handling, scheduler.parts.sessions
    scheduler.parts.chunking.measured = True
    known = sessions.predictor.to_wire()
    for _ in range(2):
        assert commands.run({"command": "measure", "on": True}) == {"on": True}
    assert manager.handling.name == "swap"
    assert not scheduler.parts.chunking.measured
    world = World(scheduler)
    session = world.session("a", range(40), "sum [calc(1+2) ->", " 3]", " done")
    assert "before it serves" in commands.run({"command": "measure", "on": False})["error"]
    world.run()
    assert session.reports
    assert commands.run({"command": "measure", "on": False}) == {"on": False}
    assert manager.handling is handling
    assert not scheduler.connector.outbox
    assert not sessions.history_file.predictor.to_wire()["tools"]
    assert sessions.predictor.to_wire() == known
    assert scheduler.parts.chunking.measured
    assert commands.run("samples")["steps"]
    # Steps are recorded again, each in its own row.
    world.plain("b", range(20))
    world.run()
    assert sessions.predictor.to_wire() != known
    assert [record["kind"] for record in world.records or scheduler.connector.outbox]


def test_a_trial_gives_up_what_nobody_has_come_for() -> None:
    """Its lane ends before nothing is written down any more."""
    scheduler = make_scheduler(host_blocks=20, formats=resolve(("hermes",), ()))
    world, commands = World(scheduler), scheduler.parts.commands
    world.plain("a", range(100), '<tool_call>{"name": "calc", "arguments": {}}</tool_call>')
    while scheduler.has_requests():
        world.step()
    assert "a" in scheduler.parts.manager.paused_kvs
    commands.run({"command": "measure", "on": True})
    assert not scheduler.parts.manager.paused_kvs
    world.session("b", range(40), "hello")
    world.run()
    commands.run({"command": "measure", "on": False})
    while scheduler.has_requests():
        world.step()
    assert states(world.records, "a")[-2:] == ["dropped", "ended"]
    assert states(world.records, "b") == []


def test_a_trial_waits_for_rest(scheduler: Any) -> None:
    world = World(scheduler)
    world.plain("a", range(20))
    assert (
        "before it serves"
        in scheduler.parts.commands.run({"command": "measure", "on": True})["error"]
    )
    assert scheduler.parts.manager.handling.name == "caesura"


@pytest.mark.parametrize(
    ("seconds", "lasts"),
    [(10**400, 1e9), (-(10**400), -1.0), (2, 2.0)],
    ids=["large", "negative", "small"],
)
def test_a_forecast_of_any_whole_number_is_one_that_floats_hold(
    scheduler: Any, monkeypatch: pytest.MonkeyPatch, seconds: int, lasts: float
) -> None:
    taken = []
    monkeypatch.setattr(scheduler.parts.pauses, "expect", lambda *given: taken.append(given))
    command = {"command": "expect_pause", "request": "a", "seconds": seconds}
    assert "error" not in scheduler.parts.commands.run(command)
    assert taken == [("a", lasts)]


# -- who may command -------------------------------------------------------------------------------


def told(scheduler: Any, extra_args: dict[str, Any]) -> dict[str, Any]:
    """Send a control message as a request, and return the answer that goes to its sender."""
    world = World(scheduler)
    request = world._request("control", [0], False, None)
    request.sampling_params.extra_args = extra_args
    scheduler.add_request(request)
    plan = scheduler.schedule()
    outputs = scheduler.update_from_output(plan, world._run(plan))
    (output,) = outputs[0].outputs
    return output.kv_transfer_params["caesura"]


CALIBRATE = {"command": "calibrate", "cost": COST.to_wire()}


@pytest.mark.parametrize("given", [{}, *({"caesura_control_secret": s} for s in ("", "x", 1, []))])
def test_without_the_secret_nobody_commands_the_scheduler(
    scheduler: Any, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECRET, "abc")
    assert "need the secret" in told(scheduler, {"caesura_control": CALIBRATE, **given})["error"]
    assert scheduler.parts.costs.model == PRIOR
    ours = {"caesura_control": CALIBRATE, "caesura_control_secret": "abc"}
    assert told(scheduler, ours) == {"cost": COST.to_wire()}


def test_where_no_secret_was_made_no_text_is_one(
    scheduler: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(SECRET, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for given in ("", "None"):
        message = {"caesura_control": "state", "caesura_control_secret": given}
        assert "need the secret" in told(scheduler, message)["error"]


def test_an_engine_that_another_server_starts_shares_a_file_of_the_user(
    scheduler: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(SECRET, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    secret = secret_to_send()
    assert secret == secret_to_send()
    assert control_secret_path().stat().st_mode & 0o777 == 0o600
    message = {"caesura_control": "state", "caesura_control_secret": secret}
    assert told(scheduler, message)["running"] == 0


def test_a_reply_that_cannot_be_sent_is_an_error(scheduler: Any) -> None:
    scheduler.parts.step_costs.samples.append((10**300, 0, 0.1))
    assert "cannot be sent" in scheduler.parts.commands.run("samples")["error"]


@pytest.mark.parametrize("wrong", [1e300, 2.0**40, float("inf"), float("nan")])
def test_costs_beyond_all_engines_are_refused(scheduler: Any, wrong: float) -> None:
    for name in COST.to_wire():
        if name.endswith("rate") and wrong == 2.0**40:
            continue
        cost = {**COST.to_wire(), name: wrong}
        assert "error" in scheduler.parts.commands.run({"command": "calibrate", "cost": cost})
    assert scheduler.parts.costs.model == PRIOR
