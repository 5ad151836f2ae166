"""Series of `benchmarks.handling`: kept runs, a budget of time, the search for a knee, tables."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from benchmarks.handling.figures import normalized_latencies
from benchmarks.handling.study.knee import FIRST_LOAD, GROWTH, Knee, carries, idle_p99, knee
from benchmarks.handling.study.series import Budget, idle_plan, plans
from benchmarks.handling.study.tables import tables
from benchmarks.kept import KeptRuns
from benchmarks.pairs import median_interval

BOUND = 0.3


def segment(index: int, said: int) -> dict[str, Any]:
    return {
        "index": index,
        "sent": 1.0,
        "first": 1.5,
        "given_tokens": 10,
        "context_tokens": 10,
        "cached_tokens": 0,
        "said": said,
        "handling": "",
    }


def run(system: str, load: float, per_token: float, ended: bool = True, index: int = 0) -> dict:
    """A run of one session that decodes 10 tokens, at so many seconds each."""
    session = {
        "key": f"{index}-0",
        "arrived": 1.0,
        "tool_seconds": 2.0,
        "ended": 3.0 + 10 * per_token if ended else 0.0,
        "counted": True,
        "segments": [segment(0, 6), segment(1, 4)],
    }
    counts = ("steps", "scheduled_tokens", "busy_seconds", "preemptions")
    return {
        "system": system,
        "load": load,
        "round": index,
        "seconds": 3.0 + 10 * per_token,
        "ledger": dict.fromkeys((*counts, "peak_running", "peak_blocks"), 40.0),
        "sessions": [session],
        "others": 0.01,
    }


def arguments(**given: Any) -> argparse.Namespace:
    values = {
        "workload": "mix",
        "token_scale": 0.25,
        "pause_scale": 0.35,
        "window": 40.0,
        "warm_up": 5.0,
        "tail": 8.0,
        "longest": 60.0,
        "seed": 3,
        "rounds": 2,
        "loads": [0.2, 0.4],
        "systems": ["stock", "fcfs"],
        "rate": 4.5,
    }
    return argparse.Namespace(**{**values, **given})


def test_a_run_is_found_again_under_its_own_settings_only(tmp_path: Path) -> None:
    what = {"system": "fcfs", "caesura": {"ranking": "fcfs"}, "load": 0.2, "round": 0, "seed": 5}
    kept = KeptRuns(tmp_path, {"window": 40.0})
    assert kept.find(what) is None
    kept.keep(what, run("fcfs", 0.2, 0.1))
    assert kept.find(what) == run("fcfs", 0.2, 0.1)
    assert kept.find({**what, "caesura": {"ranking": "lamps"}}) is None
    assert [each["load"] for each in kept.all()] == [0.2]
    other = KeptRuns(tmp_path, {"window": 50.0})
    assert other.find(what) is None
    assert not list(other.all())


def test_latency_is_divided_by_decoded_tokens() -> None:
    assert normalized_latencies(run("fcfs", 0.2, 0.25)) == [pytest.approx(0.25)]
    assert idle_p99([run("idle", 0, 0.1), run("idle", 0, 0.2)]) == pytest.approx(0.2)


def test_a_session_that_was_cut_breaks_the_bound_however_short_the_run() -> None:
    assert carries([run("fcfs", 0.2, 0.1)], BOUND)
    assert not carries([run("fcfs", 0.2, 0.1, ended=False)], BOUND)
    assert not carries([], BOUND)


def test_rounds_of_a_load_are_judged_together() -> None:
    runs = [run("fcfs", 0.2, 0.1), run("fcfs", 0.2, 0.5, index=1)]
    assert knee(runs, "fcfs", BOUND) == Knee(None, 0.2)


def test_a_load_that_holds_above_one_that_fails_does_not_count() -> None:
    runs = [run("fcfs", load, 0.5 if load == 0.4 else 0.1) for load in (0.2, 0.3, 0.4, 0.5)]
    runs.append(run("stock", 0.1, 0.5))
    assert knee(runs, "fcfs", BOUND) == Knee(0.3, 0.4)
    assert knee(runs, "stock", BOUND) == Knee(None, 0.1)


def test_the_search_ends_at_its_resolution_around_the_true_knee() -> None:
    runs: list[dict] = []
    while (load := knee(runs, "fcfs", BOUND).next_load(0.05)) is not None:
        assert load not in {each["load"] for each in runs}
        runs.append(run("fcfs", load, 0.1 if load <= 0.47 else 0.5))
    found = knee(runs, "fcfs", BOUND)
    assert found.holds is not None and found.fails is not None
    assert found.holds <= 0.47 < found.fails <= found.holds + 0.051
    assert len(runs) <= 5


def test_the_search_begins_in_the_middle_and_ends_at_a_highest_load() -> None:
    assert Knee(None, None).next_load(0.05) == FIRST_LOAD
    assert Knee(0.5, None).next_load(0.05) == pytest.approx(0.5 * GROWTH)
    assert Knee(1.4, None).next_load(0.05) is None
    assert Knee(None, 0.04).next_load(0.05) is None


def test_a_budget_goes_by_what_runs_have_taken() -> None:
    budget = Budget(seconds=100, guess=60, began=0.0)
    assert budget.allows(40) and not budget.allows(41)
    budget.taken += [10, 20]
    assert budget.allows(85) and not budget.allows(86)


def test_all_systems_of_a_round_see_the_same_sessions_and_idle_runs_the_first_of_them() -> None:
    planned = plans(arguments(), 4.5)
    assert [plan.system for plan in planned] == ["stock", "fcfs"] * 2 + ["fcfs", "stock"] * 2
    assert planned[0].sessions == planned[1].sessions != planned[4].sessions
    assert len({str(plan.what) for plan in planned}) == 8
    idle = idle_plan(arguments(), 4.5, 0)
    assert idle.what["system"] == "idle"
    first = [session.segments for session in planned[2].sessions[:5]]
    assert [session.segments for session in idle.sessions[:5]] == first


def test_the_tables_have_seconds_ratios_and_knees() -> None:
    runs = [run("idle", 0.0, 0.1), run("stock", 0.2, 0.2), run("fcfs", 0.2, 0.1)]
    runs += [run("fcfs", 0.4, 0.5)]
    found = {table.key: table.rows for table in tables(runs, 40.0, 4.5)}
    assert found["seconds"][0][:6] == ("0.2", "stock", "1", "2", "2", "0.2")
    # One pair has no spread.
    assert found["ratios"][0][:3] == ("0.2", "fcfs", "0.500")
    assert ("fcfs", "0.2", "0.4", "0.90") in found["knees"]


def test_parts_of_the_default_are_compared_with_it_pair_by_pair() -> None:
    runs = [
        run(name, 0.2, latency * (1 + index), index=index)
        for name, latency in (("stock", 0.4), ("caesura", 0.1), ("infercept", 0.2))
        for index in range(2)
    ]
    found = {table.key: table.rows for table in tables(runs, 40.0, 4.5)}
    assert [row[:3] for row in found["parts"]] == [("0.2", "infercept", "2.000, 2.000")]
    assert [row[1] for row in found["ratios"]] == ["caesura", "infercept"]


def test_a_summary_has_stock_and_the_default_side_by_side() -> None:
    rounds = [
        run(name, 0.2, 0.1 * (1 + index), index=index)
        for name in ("stock", "caesura")
        for index in range(2)
    ]
    (summary, *_) = tables([*rounds, run("stock", 0.4, 0.5)], 40.0, 4.5)
    (row,) = summary.rows
    assert summary.key == "summary" and row[0] == "0.2"
    assert row[1] == row[2] == "1.5" and row[-1] == "1.000, 1.000"


def test_first_turns_are_compared_with_the_same_turns_of_stock() -> None:
    def of(name: str, seconds: list[float], index: int) -> dict[str, Any]:
        made = run(name, 0.1, 0.1, index=index)
        made["sessions"] = [
            {
                **made["sessions"][0],
                "key": f"{index}-{at}",
                "segments": [
                    {**segment(0, 10), "first": 1.0 + each if each else 0.0},
                    segment(1, 4),
                ],
            }
            for at, each in enumerate(seconds)
        ]
        return made

    stock, ours = [1.0] * 8 + [0.0], [0.9] * 3 + [1.1] * 4 + [2.0] + [1.0]
    runs = [of("stock", stock, 0), of("caesura", ours, 0)]
    assert "first-turns" not in {table.key for table in tables(runs, 40.0, 4.5)}
    runs += [of("stock", [2.0] * 8, 1), of("caesura", [1.8] * 7 + [2.2], 1)]
    found = {table.key: table.rows for table in tables(runs, 40.0, 4.5)}
    # A turn that never began in one of the two counts in neither.
    assert found["first-turns"] == (
        ("0.1", "caesura", "16", "0.900", "0.900 .. 1.100", "0.900 .. 1.100"),
    )


def test_the_interval_of_a_median_needs_six_values() -> None:
    assert median_interval([6.0, 2.0, 3.0, 4.0, 5.0, 1.0]) == (1.0, 6.0)
    assert median_interval([float(each) for each in range(100)]) == (40.0, 59.0)
    with pytest.raises(ValueError, match="not 5"):
        median_interval([1.0] * 5)


def test_without_stock_and_an_idle_engine_there_are_seconds_alone() -> None:
    assert [table.key for table in tables([run("fcfs", 0.2, 0.1)], 40.0, 4.5)] == ["seconds"]


def test_what_was_kept_under_another_name_is_found(tmp_path: Path) -> None:
    what = {"system": "fcfs", "load": 0.2, "round": 0}
    kept = KeptRuns(tmp_path, {"window": 40.0})
    kept.keep(what, run("fcfs", 0.2, 0.1))
    (file,) = tmp_path.glob("*.json")
    file.rename(tmp_path / f"other-words-{file.stem.rpartition('-')[2]}.json")
    assert kept.find(what) == run("fcfs", 0.2, 0.1)
    kept.keep(what, run("fcfs", 0.2, 0.3))
    assert len(list(tmp_path.glob("*.json"))) == 1
