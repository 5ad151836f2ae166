"""A plan survives its file; files that do not fit the application are refused."""

import json
from pathlib import Path

import pytest

from caesura.planning.plan import (
    Makespan,
    Placement,
    Plan,
    PlanFileError,
    Stage,
    plan_to_json,
    read_plan,
)

PLAN = Plan(
    "best",
    2,
    (Stage((Placement("small", kv_bytes=5, shares="a"), Placement("large")), 3.5, ("small",)),),
    Makespan(3.5, 3.0, 4.0),
)


def test_a_plan_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan_to_json(PLAN, "app", reason="why")))
    assert read_plan(path, "app", {"small": 1, "large": 2}) == PLAN


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"application": "other"}, "is a plan of the application 'other', not of 'app'"),
        ({"format": 2}, "is not a plan of"),
        ({"plan": {"strategy": "best"}}, "plan.devices: Field required"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({**plan_to_json(PLAN, "app"), **change}))
    with pytest.raises(PlanFileError, match=message):
        read_plan(path, "app", {"small": 1, "large": 2})


def test_models_that_the_application_lacks_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan_to_json(PLAN, "app")))
    with pytest.raises(PlanFileError, match="places the model 'large'"):
        read_plan(path, "app", {"small": 1})
