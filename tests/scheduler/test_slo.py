"""Objectives: what a request can still reach, and which requests go first."""

from dataclasses import replace
from math import inf

import pytest

from caesura.scheduler.policy.slo import Chance, Slo, chance, latest_start
from caesura.scheduler.settings import Settings

from .queues import COST, queued, view
from .world import World, make_scheduler


def test_an_objective_by_its_text() -> None:
    assert Slo.parse("ttft=2,tpot=0.1") == Slo(2.0, 0.1)
    assert Slo.parse("tpot=0.1") == Slo(inf, 0.1)
    assert str(Slo.parse("tpot=0.1,ttft=2")) == "ttft=2,tpot=0.1"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("ttft=0", "ttft must be seconds above 0, got 0"),
        ("tpot=nan", "tpot must be seconds above 0, got nan"),
        ("", "a parameter must be key=value"),
        ("ttft=inf", "needs ttft, tpot or both"),
        ("e2e=3", "unknown parameter 'e2e'; choose from: ttft, tpot"),
    ],
)
def test_objectives_that_are_none_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Settings(slo=text)


def test_with_an_objective_seconds_alone_bound_the_wait() -> None:
    rules = Settings(slo="ttft=2", max_overtaken_steps=3).step_rules
    assert not rules.is_overdue(10**6, 59.0)
    assert rules.is_overdue(1, 60.0)


def test_a_segment_meets_its_objective_in_both_limits() -> None:
    slo = Slo(2.0, 0.1)
    assert slo.met(sent=10.0, first=12.0, ended=12.9, tokens=10)
    assert not slo.met(sent=10.0, first=12.1, ended=12.9, tokens=10)
    assert not slo.met(sent=10.0, first=11.0, ended=12.0, tokens=10)
    assert slo.met(sent=10.0, first=11.0, ended=11.0, tokens=1), "a single token has no pace"


def test_what_is_missing_brings_the_latest_start_forward() -> None:
    slo, seen = Slo(ttft=2.0), view(now=20.0)
    here = queued(queued_at=20.0)
    assert latest_start(here, seen, slo) == pytest.approx(22.0 - seen.step_seconds)
    nothing = replace(here, resident_tokens=0)
    prefill = 1000 * COST.prefill_seconds_per_token
    assert latest_start(nothing, seen, slo) == pytest.approx(22.0 - seen.step_seconds - prefill)
    hosted = replace(nothing, hosted_tokens=1000)
    load = 1000 / COST.in_rate
    assert latest_start(hosted, seen, slo) == pytest.approx(22.0 - seen.step_seconds - load)


def test_a_preempted_request_has_the_deadline_of_its_last_token() -> None:
    slo, seen = Slo(ttft=2.0, tpot=0.1), view(step_seconds=0.03)
    one = queued(queued_at=20.0, decoded_tokens=10, decode_tokens=30.0)
    deadline = 20.0 + 2.0 + 40 * 0.1
    assert latest_start(one, seen, slo) == pytest.approx(deadline - 0.03 - 30 * 0.03)
    assert latest_start(one, seen, Slo(ttft=2.0)) == inf


def test_what_a_request_can_reach() -> None:
    assert chance(10.0, 10.0, spoilt=False) is Chance.MEETS
    assert chance(10.0, 10.0, spoilt=True) is Chance.SPOILT
    assert chance(10.1, 10.0, spoilt=False) is Chance.MISSES
    assert Chance.MEETS < Chance.SPOILT < Chance.MISSES


def crowded(slo: str | None, **settings: object) -> World:
    """One request that runs for 40 steps of a second, and three that wait behind it."""
    world = World(make_scheduler(max_num_seqs=1, slo=slo, **settings))
    world.plain("runs", range(20), "x" * 40)
    world.step()
    world.plain("late", range(1000, 1020), "x")
    for _ in range(30):
        world.step()
    world.plain("soon", range(2000, 2020), "x")
    return world


@pytest.mark.parametrize(
    ("settings", "first"),
    [
        ({"slo": None}, "late"),
        ({"slo": "ttft=20"}, "soon"),
        ({"slo": "ttft=100"}, "late"),
    ],
)
def test_requests_that_can_meet_the_objective_go_first(
    settings: dict[str, str | None], first: str
) -> None:
    world = crowded(**settings)
    while not world.sessions["runs"].finished:
        world.step()
    world.step()
    assert [one.request_id for one in world.scheduler.running] == [first]


def test_late_requests_are_served_within_the_bound() -> None:
    """Requests that can meet the objective arrive without end, and one that cannot waits."""
    world = World(
        make_scheduler(max_num_seqs=1, slo="ttft=8", max_overtaken_seconds=40.0, ranking="fcfs")
    )
    world.plain("runs", range(20), "x" * 12)
    world.step()
    world.plain("late", range(1000, 1020), "x")
    for step in range(60):
        if step % 6 == 0:
            world.plain(f"s{step}", range(5000 + 100 * step, 5020 + 100 * step), "x" * 4)
        world.step()
        if step == 35:
            assert not world.sessions["late"].finished
    assert world.sessions["late"].finished


def test_a_session_admitted_too_late_is_spoilt() -> None:
    world = crowded(slo="ttft=20")
    spoilt = {}
    while not world.sessions["late"].finished:
        for one in world.scheduler.running:
            spoilt[one.request_id] = world.parts.sessions[one.request_id].spoilt
        world.step()
    assert spoilt == {"runs": False, "soon": False, "late": True}
