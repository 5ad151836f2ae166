"""Engines side by side: a session of one model asks another, and is paused until it answers."""

from dataclasses import asdict, replace
from typing import Any

import pytest

from caesura.simulator.engine import simulate
from caesura.simulator.engine.clients import Call
from caesura.simulator.engine.coupled import Neighbour, simulate_together
from caesura.simulator.engine.run import Member, prepare
from caesura.simulator.results import RunResult
from caesura.simulator.session import Session
from caesura.simulator.workload.names import make_workload

from .simulated import BASE, OURS, PER_TOKEN, STOCK, machine, session, workload

AGENT = session("agent", (20, 3, 0.0), (5, 2))
AGENT = replace(AGENT, segments=(replace(AGENT.segments[0], tool="expert"), AGENT.segments[1]))
QUESTION = session("question", (40, 10), parent="agent")


def together(
    agents: tuple[Session, ...],
    questions: tuple[Session, ...],
    policy: Any = OURS,
    device: str = "",
    forecaster: Any = None,
    **sizes: Any,
) -> dict[str, RunResult]:
    agent = Member(workload(*agents), machine(**sizes), policy)
    expert = Member(workload(*questions), machine(**sizes), policy)
    return simulate_together(
        {"agent": Neighbour(agent, device, forecaster), "expert": Neighbour(expert, device)},
        check=True,
    )


def facts(result: RunResult) -> dict[str, Any]:
    """Return what a run tells of its sessions and steps."""
    return {"sessions": [asdict(one) for one in result.sessions], "totals": asdict(result.totals)}


@pytest.mark.parametrize("policy", [OURS, STOCK], ids=lambda policy: policy.name)
def test_a_session_is_paused_for_as_long_as_the_other_model_works(policy: Any) -> None:
    results = together((AGENT,), (QUESTION,), policy)
    (agent,), (question,) = results["agent"].sessions, results["expert"].sessions
    # The prompt's step gives the first token; each further token takes a step of one token.
    asked_at = BASE + 20 * PER_TOKEN + 2 * (BASE + PER_TOKEN)
    answered_at = asked_at + BASE + 40 * PER_TOKEN + 9 * (BASE + PER_TOKEN)
    assert agent.segments[0][2] == question.arrival == pytest.approx(asked_at)
    assert question.ended == agent.segments[1][0] == pytest.approx(answered_at)
    assert agent.ended > answered_at
    assert agent.latency == pytest.approx(agent.ended)


def test_engines_that_ask_nothing_run_as_they_run_alone() -> None:
    sizes = {"blocks": 60, "host_blocks": 100}
    agents = tuple(session(f"a{n}", (100, 20, 0.3), (30, 9), arrival=0.05 * n) for n in range(20))
    others = tuple(session(f"b{n}", (150, 30, 0.1), (20, 9), arrival=0.04 * n) for n in range(20))
    results = together(agents, others, **sizes)
    for name, sessions in (("agent", agents), ("expert", others)):
        alone = simulate(workload(*sessions), machine(**sizes), OURS, check=True)
        assert facts(results[name]) == facts(alone)


def test_engines_on_one_device_take_turns() -> None:
    agents = tuple(session(f"a{n}", (100, 20)) for n in range(4))
    others = tuple(session(f"b{n}", (100, 20)) for n in range(4))
    apart, shared = together(agents, others), together(agents, others, device="gpu0")
    busy = sum(result.totals.busy_seconds for result in shared.values())
    end = max(one.ended for result in shared.values() for one in result.sessions)
    assert end == pytest.approx(busy)
    assert end == pytest.approx(2 * max(one.ended for one in apart["agent"].sessions))
    ends = [max(one.ended for one in result.sessions) for result in shared.values()]
    assert abs(ends[0] - ends[1]) < 0.1  # neither waits for the whole of the other


class Knows:
    """A forecaster that says the same of every call, and remembers the calls and their ends."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self.calls: list[Call] = []
        self.lasted: list[float] = []

    def forecast(self, call: Call) -> float | None:
        self.calls.append(call)
        return self.seconds

    def returned(self, call: Call, seconds: float) -> None:
        self.lasted.append(seconds)


def test_a_forecaster_sees_the_question_and_learns_how_long_it_took() -> None:
    earlier = session("earlier", (40, 400))
    knows = Knows(0.2)
    results = together((AGENT,), (QUESTION, earlier), forecaster=knows)
    question = results["expert"].sessions[1]
    (call,) = knows.calls
    assert (call.session, call.index, call.asked, call.load) == (AGENT, 0, (QUESTION,), 1)
    assert call.at == pytest.approx(question.arrival)
    assert knows.lasted == [pytest.approx(question.ended - question.arrival)]


class ByKey(Knows):
    """A forecaster that says of each session's calls what the test says."""

    def __init__(self, **seconds: float) -> None:
        super().__init__(None)
        self.by_key = seconds

    def forecast(self, call: Call) -> float | None:
        return self.by_key[call.session.key]


@pytest.mark.parametrize(("long", "short"), [("a", "b"), ("b", "a")])
def test_the_pause_with_the_longer_forecast_gives_up_its_kv(long: str, short: str) -> None:
    """Both wait for the same model, so nothing that was learned tells them apart."""
    first, last = AGENT.segments
    agents = [Session(key, "qa", 0.0, (replace(first, given_tokens=64), last)) for key in "ab"]
    large = session("large", (200, 5), arrival=0.3)
    questions = [session(f"to {key}", (40, 99), parent=key) for key in "ab"]
    agent = Member(workload(*agents, large), machine(blocks=20, host_blocks=0), OURS)
    expert = Member(workload(*questions), machine(), OURS)
    foretold = ByKey(**{long: 1e6, short: 1e-3})
    neighbours = {"agent": Neighbour(agent, "", foretold), "expert": Neighbour(expert)}
    result = simulate_together(neighbours, check=True)["agent"]
    recomputed = {one.key: one.recomputed_tokens for one in result.sessions}
    assert recomputed[long] > recomputed[short]


def test_a_simulation_of_tools_may_have_forecasts_too() -> None:
    knows = Knows(0.5)
    sessions = make_workload("mix", 2.0, 10, seed=1).sessions
    member = Member(workload(*sessions), machine(blocks=20_000), OURS)
    prepare(member, forecaster=knows).run()
    truth = sorted(part.tool_seconds for one in sessions for part in one.segments if part.tool)
    assert sorted(knows.lasted) == pytest.approx(truth)


def test_the_same_neighbours_give_the_same_results() -> None:
    once, again = (facts(together((AGENT,), (QUESTION,))["agent"]) for _ in range(2))
    assert once == again


@pytest.mark.parametrize(
    ("question", "problem"),
    [
        (replace(QUESTION, parent="nobody"), "name a parent of the workload"),
        (replace(QUESTION, parent_call=1), "name a parent of the workload"),
        (replace(QUESTION, key="agent"), "make keys unique"),
    ],
)
def test_wrong_questions_are_refused(question: Session, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        together((AGENT,), (question,))
