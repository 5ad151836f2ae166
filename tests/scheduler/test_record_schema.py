"""The schema of records: what is written can be read back, and what is generated agrees with it."""

from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as some

from caesura.scheduler.records import (
    KINDS,
    DecisionRow,
    LackedSteps,
    OpeningInputs,
    PauseRecord,
    PriceRecord,
    Record,
    RecordError,
    SessionRecord,
    SpanEvent,
    parse,
)
from caesura.scheduler.records import schema as declared
from caesura.scheduler.records.describe import between, main, tables, typescript

ROOT = Path(__file__).parents[2]

PAUSE = PauseRecord(
    request="r-1",
    at=3.5,
    tool="search",
    prices=PriceRecord(preserve=2.0, discard=1.5),
    decisions=(DecisionRow(0.5, "swap", 12, "admit", 2.0, 1.5, 0.25),),
)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@given(data=some.data())
def test_every_record_can_be_read_back(kind: type[Record], data: some.DataObject) -> None:
    record = data.draw(some.builds(kind, **{each.name: value(each.name) for each in fields(kind)}))
    assert parse(record.entry()) == record


def value(name: str) -> some.SearchStrategy[Any]:
    """Draw values by the field's name where Hypothesis cannot tell a type's unit."""
    number = some.floats(allow_nan=False, allow_infinity=False)
    known: dict[str, some.SearchStrategy[Any]] = {
        "prices": some.builds(PriceRecord),
        "hindsight": some.none() | some.builds(PriceRecord),
        "inputs": some.builds(OpeningInputs),
        "lacked": some.builds(LackedSteps),
        "decisions": some.tuples(some.builds(DecisionRow)),
        "events": some.tuples(some.builds(SpanEvent, attributes=some.just({"a": 1}))),
        "attributes": some.dictionaries(some.text(), number),
    }
    return known.get(name, ...)  # type: ignore[arg-type]


def test_a_decision_is_a_row_that_names_every_price() -> None:
    (row,) = PAUSE.entry()["decisions"]
    assert row == [0.5, "swap", 12, "admit", 2.0, 1.5, 0.25, ""]


def test_rows_of_older_files_lack_the_last_columns() -> None:
    entry = {"kind": "pause", "request": "r", "at": 1, "decisions": [[0.5, "discard", 3]]}
    record = parse(entry)
    assert isinstance(record, PauseRecord)
    assert record.decisions == (DecisionRow(0.5, "discard", 3),)


def test_unknown_kinds_and_fields_are_ignored() -> None:
    assert parse({"kind": "weather", "request": 3}) is None
    assert parse({}) is None
    record = parse({"kind": "session", "request": "r", "at": 1.0, "mood": "good"})
    assert record == SessionRecord(request="r", at=1.0)


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"kind": "pause", "request": "r"}, "lacks 'at'"),
        ({"kind": "pause", "request": None, "at": 1}, "request=None: it must be a text"),
        ({"kind": "pause", "request": "r", "at": "x"}, "at='x': it must be a number"),
        (
            {"kind": "pause", "request": "r", "at": 1, "blocks": 1.5},
            "blocks=1.5: it must be",
        ),
        ({"kind": "lanes", "request": ["r"], "state": [3], "at": [1]}, "state=[3]"),
        ({"kind": "steps", "at": 3, "seconds": []}, "at=3: it must be a list"),
        ({"kind": "wait", "request": "r", "since": 1, "until": 2, "lacked": 3}, "lacked=3"),
    ],
)
def test_a_value_of_another_type_is_named(entry: dict[str, Any], told: str) -> None:
    with pytest.raises(RecordError, match="a record of kind") as caught:
        parse(entry)
    assert told in str(caught.value)


def test_columns_are_shared_not_copied() -> None:
    rows = [1.0, 2.0]
    record = declared.LanesRecord(request=["a", "b"], state=["waiting"] * 2, at=rows)
    assert record.entry()["at"] is rows


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_kind_needs_a_request_or_a_time(kind: type[Record]) -> None:
    needed = {each.name for each in fields(kind) if each.default is each.default_factory is MISSING}
    assert needed & {"request", "at", "span"}


def test_the_page_takes_the_kinds_that_it_is_said_to_read() -> None:
    """A kind that no line of the page reads is invisible there, whatever the server writes."""
    trace = (ROOT / "ui/src/model/trace.ts").read_text()
    taken = {kind for kind in KINDS if f'case "{kind}":' in trace}
    for_page = {
        name
        for name, kind in KINDS.items()
        if any("page" in hint.__metadata__[0].read_by for hint in get_annotations(kind).values())
    }
    assert taken == for_page
    assert set(KINDS) - for_page == {"rest"}  # the lanes tell the page of an engine at rest


def get_annotations(kind: type[Record]) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {each.name: hints[each.name] for each in fields(kind)}


def test_the_generated_files_agree_with_the_schema(tmp_path: Path) -> None:
    assert main(ROOT, check=True) == 0
    (tmp_path / "docs/reference").mkdir(parents=True)
    (tmp_path / "ui/src/model").mkdir(parents=True)
    page = tmp_path / "ui/src/model/record-types.ts"
    page.write_text(typescript().replace("regret", "remorse"))
    docs = tmp_path / "docs/reference/records.md"
    docs.write_text((ROOT / "docs/reference/records.md").read_text())
    assert main(tmp_path, check=True) == 1
    assert main(tmp_path, check=False) == 0
    assert page.read_text() == typescript()
    assert between(docs.read_text(), tables()) == docs.read_text()
