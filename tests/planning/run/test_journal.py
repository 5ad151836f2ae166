"""The journal: what is done stays done, for the same application only."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from caesura.planning.run.journal import Journal, Result, ResumeError, digest_of, events_path
from tests.planning.run.applications import application


async def test_a_second_run_knows_the_results_of_the_first(tmp_path: Path) -> None:
    output, app = tmp_path / "out.jsonl", application("a")
    journal = Journal(output, app)
    journal.start()
    await journal.append(Result("a/0", "a", "a", "yes", output_tokens=1))
    await journal.append(Result("a/1", "a", "a", error="no"))
    await journal.event("loaded", replica="a-0")
    journal.close()
    again = Journal(output, app)
    again.close()
    assert again.done["a/0"].output == "yes"
    assert again.done["a/1"].error == "no"
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert "error" not in rows[0] and "output" not in rows[1]


async def test_events_begin_with_the_run_and_tell_seconds(tmp_path: Path) -> None:
    clock = iter([90.0, 100.0, 107.5])
    told: list[Mapping[str, Any]] = []
    journal = Journal(
        tmp_path / "out.jsonl",
        application("a"),
        clock=lambda: next(clock),
        now=lambda: 5.0,
    )
    journal.watch(told.append)
    journal.start(devices=2)
    await journal.event("loaded", replica="a-0")
    journal.close()
    held = events_path(tmp_path / "out.jsonl").read_text().splitlines()
    first, second = map(json.loads, held)
    assert first["event"] == "started" and first["time"] == 5.0 and first["devices"] == 2
    assert second == {"event": "loaded", "at": 7.5, "replica": "a-0"}
    assert told == [first, second]


async def test_a_changed_application_is_refused(tmp_path: Path) -> None:
    output, app = tmp_path / "out.jsonl", application("a")
    journal = Journal(output, app)
    journal.start()
    await journal.append(Result("a/0", "a", "a", "yes"))
    journal.close()
    with pytest.raises(ResumeError, match="changed since"):
        Journal(output, application("a", rows=4))
    Journal(output, app).close()


def test_the_digest_ignores_what_no_output_depends_on() -> None:
    app = application("a")
    (model,) = app.models
    assert digest_of(replace(app, models=(replace(model, lengths="x"),))) == digest_of(app)
    assert digest_of(replace(app, models=(replace(model, path="x"),))) != digest_of(app)


async def test_rows_of_another_program_are_refused(tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").write_text('{"key": "a/0"}\n')
    with pytest.raises(ResumeError, match="file of events"):
        Journal(tmp_path / "out.jsonl", application("a"))


async def test_a_result_that_stands_twice_is_named(tmp_path: Path) -> None:
    output, app = tmp_path / "out.jsonl", application("a")
    journal = Journal(output, app)
    journal.start()
    await journal.append(Result("a/0", "a", "a", "yes"))
    journal.close()
    output.write_text(output.read_text() * 2)
    with pytest.raises(ResumeError, match=r"line 2: 'a/0' stands there a second time"):
        Journal(output, app)


async def test_a_run_that_ended_at_once_can_be_continued(tmp_path: Path) -> None:
    output, app = tmp_path / "out.jsonl", application("a")
    Journal(output, app).close()
    Journal(output, app).close()
    assert output.read_text() == ""
