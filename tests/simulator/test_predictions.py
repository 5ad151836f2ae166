"""Predictors are compared on what a simulation runs, beside its latencies."""

from dataclasses import replace
from typing import Any

from caesura.scheduler.records import parse
from caesura.scheduler.records.accuracy import accuracies
from caesura.scheduler.records.outcomes import Outcomes
from caesura.simulator.engine import simulate
from caesura.simulator.engine.run import Member, prepare
from caesura.simulator.policy import Policy
from caesura.simulator.results import RunResult
from caesura.simulator.study.conduct import Outcome
from caesura.simulator.study.tables import prediction_grids
from tests.simulator.simulated import CROWD, OURS, SMALL, STOCK, machine, with_settings

from .studies import STUDY, outcome_of

EXACT = ("decode_tokens", "calls_left", "ends_now", "ends_within_3")
"""Quantities that a run and its workload count alike; pauses end with a step."""


def rows(predictions: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(each["quantity"], each["predictor"]): each for each in predictions}


def measured(policy: Policy) -> RunResult:
    return prepare(Member(CROWD, machine(**SMALL), policy), predictions=True).run()


def predictions_of(policy: Policy) -> list[dict[str, Any]]:
    return measured(policy).predictions


def test_forecasts_are_compared_with_the_workload_as_records_are() -> None:
    records = simulate(CROWD, machine(**SMALL), OURS, records=True).records
    recorded = rows([each.public() for each in accuracies(Outcomes().add_all(map(parse, records)))])
    for key, row in rows(predictions_of(OURS)).items():
        if key[0] in EXACT:
            assert row == recorded[key]
        assert row["count"] == recorded[key]["count"]


def test_an_oracle_is_compared_with_what_it_would_be_without() -> None:
    found = rows(predictions_of(with_settings(OURS, prediction="oracle")))
    assert {predictor for _, predictor in found} == {"history", "oracle"}
    assert found["calls_left", "oracle"]["error"] == 0
    assert found["calls_left", "history"]["error"] > 0
    assert found["ends_now", "oracle"]["pair_accuracy"] == 1


def test_nothing_is_compared_unless_it_is_asked_for() -> None:
    assert simulate(CROWD, machine(**SMALL), OURS).predictions == []
    assert predictions_of(STOCK) == []


def test_a_run_is_the_same_with_predictions() -> None:
    with_them = measured(OURS)
    without = simulate(CROWD, machine(**SMALL), OURS)
    assert with_them.sessions == without.sessions
    assert with_them.totals == without.totals


def test_a_table_has_the_predictors_of_each_policy() -> None:
    made = outcome_of(STUDY).made
    told = (
        {"predictor": "history", "quantity": "calls_left", "error": 4.0, "pair_accuracy": 0.6},
        {"predictor": "hazard", "quantity": "calls_left", "error": 2.0, "pair_accuracy": None},
    )
    outcome = Outcome(STUDY, (replace(made[0], predictions=told), *made[1:]), ())
    (grid,) = prediction_grids(outcome)
    history, hazard = grid.rows
    assert history.head == f"{made[0].cell.policy.name}: history"
    assert [(entry.text, entry.best) for entry in history.entries[2:4]] == [
        ("4.00", False),
        ("0.600", False),
    ]
    assert [(entry.text, entry.best) for entry in hazard.entries[2:4]] == [
        ("2.00", True),
        ("–", False),
    ]
    assert prediction_grids(outcome_of(STUDY)) == []
