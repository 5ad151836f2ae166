"""Planned ends of models stand beside the measured ones, also of a run that was continued."""

import json
from pathlib import Path

import pytest

from caesura.planning.plan import Makespan, Placement, Plan, Stage
from caesura.planning.run.journal import events_path
from caesura.planning.show.tables import ends_of, read_run
from caesura.scheduler.errors import UsageError

PLAN = Plan(
    "best",
    2,
    (
        Stage((Placement("small"), Placement("large")), 10.0, ("small",)),
        Stage((Placement("large"),), 5.0, ("large",)),
    ),
    Makespan(15.0, 14.0, 16.0),
)


def result(model: str, begun: float, seconds: float) -> dict[str, object]:
    return {"key": f"{model}/0", "model": model, "begun": begun, "seconds": seconds}


def test_ends_are_compared_by_model() -> None:
    events = [{"event": "started", "done": 0}, {"event": "finished", "at": 20.0}]
    results = [result("small", 2, 6), result("small", 1, 2), result("large", 3, 17)]
    ends = ends_of(PLAN, results, events)
    assert ends.planned == {"small": 10.0, "large": 15.0}
    assert ends.measured == {"small": 8.0, "large": 20.0}
    assert ends.error == pytest.approx(-0.25)


def test_a_continued_run_counts_from_its_first_start() -> None:
    events = [
        *({"event": "started", "done": 0}, {"event": "stopped", "at": 9.0}),
        *({"event": "started", "done": 1}, {"event": "finished", "at": 4.0}),
    ]
    ends = ends_of(PLAN, [result("small", 2, 6), result("large", 1, 3)], events)
    assert ends.measured == {"small": 8.0, "large": 13.0}


def test_a_torn_last_line_is_left_out_and_others_are_named(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    output.write_text(json.dumps(result("small", 0, 1)) + "\n{torn")
    events_path(output).write_text("")
    assert len(read_run(output)[0]) == 1
    output.write_text("{torn\n{}\n")
    with pytest.raises(UsageError, match="line 1: is not JSON"):
        read_run(output)
