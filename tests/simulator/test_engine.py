"""The simulator's engine, against times and counts that were worked out by hand."""

from dataclasses import replace

import pytest

from caesura.simulator.engine import simulate
from caesura.simulator.engine.clock import Clock
from caesura.simulator.engine.run import Member, prepare
from caesura.simulator.machine import StepShape
from caesura.simulator.session import Segment, Session

from .simulated import (
    OURS,
    PRESERVE,
    STOCK,
    Linear,
    first_computations,
    machine,
    plain,
    session,
    with_settings,
    workload,
)

ONE = session("one", (20, 3, 1.0), (5, 2))
"""A session of 30 tokens: 20, 3 decoded, a second of a tool, 5, 2 decoded."""


def close(*times: float) -> object:
    return pytest.approx(times, abs=1e-9)


def test_stock_sends_everything_again() -> None:
    run = simulate(workload(ONE), machine(), STOCK, check=True)
    (one,) = run.sessions
    # A step takes 10 ms and 1 ms a token. Of the 22 tokens computed one full block is found again,
    # so that 12 of the follow-up's 28 are computed, 6 of them for a second time.
    first = 0.030
    ended = first + 2 * 0.011
    assert one.segments[0] == close(0.0, first, ended)
    sent = ended + 1.0
    assert one.segments[1] == close(sent, sent + 0.022, sent + 0.033)
    assert (one.cached_tokens, one.recomputed_tokens, one.loaded_tokens) == (16, 6, 0)
    assert one.tool_seconds == 1.0
    assert one.latency == pytest.approx(0.052 + 0.033)
    assert one.ttft == pytest.approx(0.030)
    assert run.totals.seconds == pytest.approx(sent + 0.033)
    assert run.totals.busy_seconds == pytest.approx(0.085)


def test_without_a_prefix_cache_stock_computes_everything_again() -> None:
    run = simulate(workload(ONE), machine(), replace(STOCK, prefix_caching=False), check=True)
    assert (run.sessions[0].cached_tokens, run.sessions[0].recomputed_tokens) == (0, 22)
    assert run.sessions[0].latency == pytest.approx(0.052 + 0.038 + 0.011)


def test_a_pausing_request_computes_nothing_twice() -> None:
    run = simulate(workload(ONE), machine(), PRESERVE, check=True)
    (one,) = run.sessions
    sent = 1.052
    # The last decoded token has no KV yet and is computed with the five that the tool returned.
    assert one.segments[1] == close(sent, sent + 0.016, sent + 0.027)
    assert (one.cached_tokens, one.recomputed_tokens, run.totals.recompute_tokens) == (22, 0, 0)
    assert run.totals.prefill_tokens == 20 + 6
    assert run.totals.decode_tokens == 2 + 1
    assert run.totals.decode_steps == 3


def test_a_session_that_calls_no_tool_is_one_request() -> None:
    for policy in (STOCK, PRESERVE):
        run = simulate(workload(session("one", (40, 4))), machine(), policy, check=True)
        assert run.sessions[0].segments == [close(0.0, 0.050, 0.083)]


def test_a_prompt_is_taken_in_chunks() -> None:
    run = simulate(
        workload(session("one", (100, 1))), machine(), replace(STOCK, chunk_tokens=32), check=True
    )
    assert run.totals.steps == 4
    assert run.sessions[0].ended == pytest.approx(4 * 0.010 + 0.100)


def test_what_arrives_during_a_step_joins_the_next() -> None:
    one, two = session("one", (20, 3)), session("two", (10, 1), arrival=0.001)
    run = simulate(workload(one, two), machine(), STOCK, check=True)
    # The first step takes 30 ms; then 1 + 10 tokens are computed together.
    assert run.sessions[1].segments == [close(0.001, 0.030 + 0.021, 0.030 + 0.021)]
    assert run.sessions[1].arrival == 0.001


def test_what_the_latency_model_is_shown() -> None:
    latency = Linear()
    one, two = session("one", (20, 3)), session("two", (10, 2), arrival=0.001)
    simulate(workload(one, two), machine(latency=latency), STOCK)
    assert latency.shapes == [
        StepShape(tokens=20, sequences=1, decodes=0, context=20, longest=20, pairs=20 * 10.5),
        StepShape(tokens=11, sequences=2, decodes=1, context=31, longest=21, pairs=10 * 5.5),
        StepShape(tokens=2, sequences=2, decodes=2, context=33, longest=22, pairs=0.0),
    ]


def test_time_jumps_to_what_happens_next() -> None:
    late = session("late", (20, 1), arrival=1000.0)
    run = simulate(workload(session("one", (20, 1)), late), machine(), STOCK, check=True)
    assert run.sessions[1].segments == [close(1000.0, 1000.030, 1000.030)]
    assert run.totals.steps == 2
    assert run.totals.total_block_seconds == pytest.approx(100 * 1000.030)


def test_others_may_read_the_clock() -> None:
    clock, read = Clock(), []

    class Watching(Linear):
        def seconds(self, step: StepShape) -> float:
            read.append(clock.now)
            return super().seconds(step)

    clock.now = 5.0  # of a run before this one
    member = Member(workload(ONE), machine(latency=Watching()), PRESERVE)
    run = prepare(member, clock=clock).run()
    assert read == close(0.0, 0.030, 0.041, 1.052, 1.068)
    assert clock.now == run.totals.seconds == pytest.approx(1.079)


@pytest.mark.parametrize("policy", [STOCK, PRESERVE], ids=lambda policy: policy.name)
def test_a_window_cuts_off(policy: object) -> None:
    work = workload(
        ONE, session("two", (20, 100), arrival=1.0), session("three", (9, 9), arrival=9)
    )
    run = simulate(work, machine(), policy, window=1.2)
    one, two = run.sessions  # the third has not been sent
    assert two.ended == 0.0 and two.segments == [close(1.0, 1.030, 0.0)]
    assert one.ended > 0
    assert 1.2 <= run.totals.seconds < 1.25


def test_cut_off_while_a_tool_runs() -> None:
    run = simulate(workload(ONE), machine(), PRESERVE, window=0.5)
    assert run.totals.seconds == 0.5 and run.sessions[0].ended == 0.0
    assert run.sessions[0].segments == [close(0.0, 0.030, 0.052)]


def test_clients_send_one_session_after_the_other() -> None:
    sessions = [session(f"{index}", (20, 3)) for index in range(5)]
    run = simulate(workload(*sessions, clients=2), machine(), STOCK, check=True)
    # Two at a time: 40 tokens in the first step, then 2 in each.
    assert [one.arrival for one in run.sessions] == close(0.0, 0.0, 0.074, 0.074, 0.148)
    assert [one.key for one in run.sessions] == list("01234")
    assert run.rate == 0.0


def test_shared_prefixes_are_shared_and_others_are_not() -> None:
    same = {"shared_name": "system", "shared_tokens": 40}
    work = workload(
        session("one", (50, 2), **same),
        session("two", (50, 2), arrival=1.0, **same),
        session("three", (50, 2), arrival=2.0, shared_name="else", shared_tokens=40),
        session("four", (50, 2), arrival=3.0),
    )
    run = simulate(work, machine(), STOCK, check=True)
    assert [one.cached_tokens for one in run.sessions] == [0, 32, 0, 0]


def test_sessions_that_could_never_run_are_refused() -> None:
    with pytest.raises(ValueError, match="170 tokens does not fit"):
        simulate(workload(session("large", (160, 10))), machine(blocks=10), STOCK)


@pytest.mark.parametrize(
    ("sessions", "message"),
    [
        ([session("same", (9, 9)), session("same", (9, 9))], "same key"),
        ([session("mute", (9, 0))], "mute: a segment decodes 0"),
        ([session("blank", (0, 9))], "blank has an empty prompt"),
        ([Session("long", "qa", 0.0, (Segment(9, 9, most_tokens=8),))], "decodes 9 of 8"),
    ],
)
def test_sessions_that_are_none_are_refused(sessions: list[Session], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        simulate(workload(*sessions), machine(), STOCK)


def test_no_sessions_are_no_work() -> None:
    run = simulate(workload(), machine(), OURS)
    assert (run.sessions, run.totals.steps, run.totals.seconds, run.rate) == ([], 0, 0.0, 0.0)


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="no setting colour"):
        simulate(workload(ONE), machine(), with_settings(PRESERVE, colour="red"))


def test_session_order_puts_a_follow_up_at_its_sessions_place() -> None:
    """One that comes back goes before a newer session that has waited for longer."""
    blocks = 10
    old = session("old", (16, 1, 0.05), (40, 10))
    busy = session("busy", (100, 16), arrival=0.03)
    new = session("new", (100, 16), arrival=0.04)
    first = {}
    for order in (False, True):
        policy = replace(STOCK, session_order=order)
        run = simulate(workload(old, busy, new), machine(blocks=blocks), policy, check=True)
        back, fresh = run.sessions[0], run.sessions[2]
        first[order] = back.segments[1][1] < fresh.segments[0][1]
    assert first == {False: False, True: True}


def test_an_oracle_is_told_the_truth() -> None:
    run = simulate(workload(ONE), machine(), with_settings(OURS, prediction="oracle"), check=True)
    assert run.sessions[0].ended > 0
    with pytest.raises(ValueError, match="oracle"):
        simulate(workload(ONE), machine(), with_settings(OURS, prediction="oracle:knows=love"))


def test_a_result_is_plain_data() -> None:
    run = simulate(replace(workload(ONE), seed=3), machine(), OURS)
    data = plain(run)
    assert data["policy"] == "ours" and data["seed"] == 3
    assert data["settings"]["policy"]["settings"]["handling"] == "caesura"
    assert data["settings"]["policy"]["settings"]["retention"] == 120.0  # a default
    assert data["settings"]["machine"]["latency"] == "linear"
    assert data["settings"]["host_blocks"] == 1000
    assert run.wall_seconds > 0
    assert first_computations(workload(ONE)) == 29
