"""Traces of simulated runs: what they tell adds up to what the run has measured."""

import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from caesura.simulator.engine import simulate
from caesura.simulator.policy import Policy
from caesura.simulator.results import RunResult
from caesura.simulator.session import Workload
from caesura.simulator.study.conduct import file_names, trace_study
from caesura.simulator.trace import coarse, read_trace, write_trace
from caesura.simulator.workload.records import read_sessions
from tests.simulator.simulated import (
    CROWD,
    OFFLOAD,
    OURS,
    PRESERVE,
    SMALL,
    STOCK,
    SWAP,
    machine,
    plain,
)

from .studies import STUDY, make_up_traced, refuse_to_trace_stock

PURPOSES = ("decode_tokens", "prefill_tokens", "recompute_tokens")


def run_of(policy: Policy, work: Workload = CROWD) -> RunResult:
    run = simulate(work, machine(**SMALL), policy, records=True)
    if policy.engine != "caesura":
        assert run.records == []
        run.records = coarse(run, work)
    return run


def of(entries: Sequence[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [entry for entry in entries if entry["kind"] == kind]


def total(entries: Sequence[dict[str, Any]], column: str) -> float:
    return sum(sum(entry[column]) for entry in of(entries, "steps"))


def seconds_of(pause: dict[str, Any]) -> float:
    return float(pause["pause_seconds"])


def rows(entries: Sequence[dict[str, Any]]) -> list[tuple[str, str, float]]:
    return [
        row
        for entry in of(entries, "lanes")
        for row in zip(entry["request"], entry["state"], entry["at"], strict=True)
    ]


def test_a_trace_of_ours_is_what_the_run_has_measured(tmp_path: Path) -> None:
    run = run_of(OURS)
    write_trace(run, tmp_path / "ours.jsonl")
    head, lines = read_trace(tmp_path / "ours.jsonl")
    entries = list(lines)
    assert head["entries"] == len(entries) == len(run.records)
    assert head["about"]["lanes"] == "exact"
    assert head["about"]["total_blocks"] == 40 and head["about"]["handling"] == "caesura"
    assert head["about"]["kv_groups"] == "1 of full attention"
    totals = run.totals
    computed = totals.decode_tokens + totals.prefill_tokens + totals.recompute_tokens
    assert sum(total(entries, purpose) for purpose in PURPOSES) == computed
    assert total(entries, "seconds") == pytest.approx(totals.busy_seconds)
    assert total(entries, "saved_blocks") <= totals.saved_blocks
    for step in of(entries, "steps"):
        tokens = map(sum, zip(*(step[purpose] for purpose in PURPOSES), strict=True))
        assert all(map(operator.le, tokens, step["budget_tokens"]))
    pauses = of(entries, "pause")
    assert len(pauses) == sum(len(one.segments) - 1 for one in run.sessions) == 24
    assert len(of(entries, "opening")) == len(pauses)
    called = [segment.tool for session in CROWD.sessions for segment in session.segments[:-1]]
    assert sorted(one["tool"] for one in pauses) == sorted(called)
    recorded = [one["regret"] for one in run.records if one["kind"] == "pause"]
    assert [one["regret"] for one in pauses] == recorded
    assert sum(regret or 0.0 for regret in recorded) > 0
    assert any(one["wanted_by"] for one in pauses)
    # A result is handed over between two steps.
    waited, told = sum(one.tool_seconds for one in run.sessions), sum(map(seconds_of, pauses))
    longest = max(second for entry in of(entries, "steps") for second in entry["seconds"])
    assert waited <= told <= waited + len(pauses) * longest
    ends = {request: at for request, state, at in rows(entries) if state == "ended"}
    assert len(ends) == len(run.sessions)
    assert max(ends.values()) == pytest.approx(max(one.ended for one in run.sessions))


@pytest.mark.parametrize("policy", [STOCK, OFFLOAD], ids=lambda policy: policy.name)
def test_a_trace_of_vllms_scheduler_is_what_its_sessions_have_seen(
    policy: Policy, tmp_path: Path
) -> None:
    run = run_of(policy)
    write_trace(run, tmp_path / "stock.jsonl")
    head, lines = read_trace(tmp_path / "stock.jsonl")
    entries = list(lines)
    assert head["about"]["lanes"] == "coarse"
    for purpose in PURPOSES:
        assert total(entries, purpose) == getattr(run.totals, purpose)
    assert total(entries, "seconds") == pytest.approx(run.totals.busy_seconds)
    # A row is an interval with many steps, which has no budget of a step.
    for entry in of(entries, "steps"):
        assert "budget_tokens" not in entry
        # The page reads no entry whose columns differ in length.
        assert {len(entry[name]) for name in entry if name != "kind"} == {len(entry["at"])}
    told = rows(entries)
    assert [at for *_, at in told] == sorted(at for *_, at in told)
    states = [state for _, state, _ in told]
    assert states.count("dropped") == sum(len(one.segments) - 1 for one in run.sessions)
    assert states.count("ended") == len(run.sessions) == len(of(entries, "session"))
    first = {}
    for request, state, at in told:
        if state == "decode":
            first.setdefault(request, at)
    assert first == {one.key: one.segments[0][1] for one in run.sessions}


@pytest.mark.parametrize("policy", [OURS, PRESERVE, SWAP], ids=lambda policy: policy.name)
def test_a_run_that_is_watched_is_the_same(policy: Policy) -> None:
    """With a host and without: writing down what happens changes nothing of it."""
    watched, alone = plain(run_of(policy)), plain(simulate(CROWD, machine(**SMALL), policy))
    assert watched.pop("records") and not alone.pop("records")
    assert watched == alone


@pytest.mark.parametrize("policy", [OURS, STOCK], ids=lambda policy: policy.name)
def test_the_same_run_is_the_same_trace(policy: Policy, tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_trace(run_of(policy), tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_run_that_is_cut_off_has_all_steps_up_to_then() -> None:
    run = simulate(CROWD, machine(**SMALL), OURS, records=True, window=2.0)
    assert sum(len(one["at"]) for one in of(run.records, "steps")) == run.totals.steps
    run = simulate(CROWD, machine(**SMALL), STOCK, window=2.0)
    states = [state for _, state, _ in rows(coarse(run, CROWD))]
    assert "ended" not in states or states.count("ended") < len(run.sessions)


def test_a_trace_is_replayed_as_records_are(tmp_path: Path) -> None:
    run = run_of(OURS)
    write_trace(run, tmp_path / "ours.jsonl")
    assert len(read_sessions(tmp_path / "ours.jsonl")) == len(CROWD.sessions)


# -- the traces of a study -------------------------------------------------------------------------


def test_files_have_names_of_their_own() -> None:
    names = file_names(["stock", "caesura:ranking=ssjf", "caesura/ranking=ssjf", "///"])
    assert names == [
        "stock.jsonl",
        "caesura-ranking-ssjf.jsonl",
        "caesura-ranking-ssjf-2.jsonl",
        "policy.jsonl",
    ]


def test_each_policy_is_traced_once_under_the_first_load(tmp_path: Path) -> None:
    traces = trace_study(STUDY, tmp_path, 1, work=make_up_traced)
    assert [path.name for path in traces.files] == ["stock.jsonl", "caesura.jsonl"]
    heads = [read_trace(path)[0] for path in traces.files]
    assert [(one["about"]["rate"], one["about"]["seed"]) for one in heads] == [(1.0, 0)] * 2
    before = [path.read_bytes() for path in traces.files]
    again = trace_study(STUDY, tmp_path, 1, work=refuse_to_trace_stock)
    assert not again.failures, "what is kept is not run again"
    assert [path.read_bytes() for path in again.files] == before


def test_a_run_that_fails_leaves_the_others(tmp_path: Path) -> None:
    traces = trace_study(STUDY, tmp_path, 1, work=refuse_to_trace_stock)
    assert [path.name for path in traces.files] == ["caesura.jsonl"]
    assert [failure.cell.policy.name for failure in traces.failures] == ["stock"]
