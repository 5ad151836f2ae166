"""Workloads with reasoning and with sub-agents, and how a parent waits for its sub-agents."""

import math
import statistics
from collections import defaultdict

import pytest

from caesura.simulator.engine import simulate
from caesura.simulator.session import Session
from caesura.simulator.study.figures import figures
from caesura.simulator.workload.conversations import REASONING_OUTPUT, REASONING_PROMPT, tokens_at
from caesura.simulator.workload.names import make_workload

from .simulated import OURS, STOCK, machine, session, workload


def test_reasoning_has_the_quantiles_of_its_table_and_varies_a_hundredfold() -> None:
    decoded = sorted(
        one.decode_tokens for one in make_workload("reasoning", 50, 100, seed=3).sessions
    )
    count = len(decoded)
    for share, tokens in REASONING_OUTPUT[1:-1]:
        # The standard error of a share of 5,000 draws is at most 0.7 %.
        assert sum(each <= tokens for each in decoded) / count == pytest.approx(share, abs=0.025)
    assert decoded[-count // 100] > 50 * decoded[count // 100]


def test_a_quantile_between_two_is_on_a_logarithmic_line() -> None:
    assert tokens_at(REASONING_PROMPT, 0.5) == pytest.approx(208)
    assert tokens_at(REASONING_PROMPT, 0.625) == pytest.approx(math.sqrt(208 * 482))
    assert tokens_at(REASONING_PROMPT, 0.0) == pytest.approx(4)


def test_rounds_of_reasoning_are_those_asked_for() -> None:
    sessions = make_workload("reasoning:rounds=3", 20, 100, seed=3).sessions
    assert statistics.mean(len(one.segments) for one in sessions) == pytest.approx(3, rel=0.1)
    with pytest.raises(ValueError, match="rounds must be a number >= 1"):
        make_workload("reasoning:rounds=0.5", 20, 100, seed=3)


def test_sub_agents_name_a_call_of_their_parent_and_share_their_instructions() -> None:
    sessions = make_workload("subagents:fewest=3,most=3", 2, 60, seed=1).sessions
    parents = {one.key: one for one in sessions if not one.parent}
    by_call: defaultdict[tuple[str, int], list[Session]] = defaultdict(list)
    for one in sessions:
        if one.parent:
            by_call[one.parent, one.parent_call].append(one)
    assert by_call
    for (parent, call), agents in by_call.items():
        assert len(agents) == 3
        assert len({(one.shared_name, one.shared_tokens) for one in agents}) == 1
        after = parents[parent].segments[call + 1]
        assert after.given_tokens == sum(one.segments[-1].decode_tokens for one in agents)


PARENT = session("parent", (20, 3, 0.001), (5, 2))
AGENTS = tuple(
    session(f"agent {calls}", *((10, 2, 1.0),) * calls, (4, 2), parent="parent") for calls in (1, 3)
)


@pytest.mark.parametrize("policy", [OURS, STOCK], ids=["caesura", "stock"])
def test_a_parent_goes_on_when_its_last_sub_agent_has_ended(policy: object) -> None:
    run = simulate(workload(PARENT, *AGENTS), machine(), policy, check=True)  # type: ignore[arg-type]
    results = {one.key: one for one in run.sessions}
    parent, long = results["parent"], results["agent 3"]
    called = parent.segments[0][2]
    assert {one.arrival for one in run.sessions if one.parent} == {called}
    assert results["agent 1"].ended < long.ended == parent.segments[1][0]
    # Of the wait for sub-agents, only the tools of the last one are not the engine's time.
    assert parent.latency == pytest.approx(parent.ended - 0.001 - long.tool_seconds)
    assert figures(run, 0.0, 10.0).sessions == 1


def test_a_sub_agent_without_its_parents_call_is_refused() -> None:
    lost = session("lost", (4, 2), parent="parent", parent_call=1)
    with pytest.raises(ValueError, match="call 1 of 'parent', which makes 1 calls"):
        simulate(workload(PARENT, lost), machine(), OURS)


def test_clients_of_a_closed_loop_send_parents_only() -> None:
    work = make_workload("subagents:clients=2,requests=5,tokens=0.05", 1, 1, seed=1)
    run = simulate(work, machine(blocks=400), OURS)
    assert len(run.sessions) == len(work.sessions)
    assert all(one.ended for one in run.sessions)
