"""Who reads the fields of records: whom the schema names does, and each field has a reader."""

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

import pytest

from caesura.scheduler.records import KINDS, parts, plans
from caesura.scheduler.records.parts import About

ROOT = Path(__file__).parents[2]
READERS = {
    "page": ("ui/src",),
    "export": ("runtime/recording",),
    "runs": ("runtime/cli", "runtime/recording"),
    "replay": ("simulator/workload", "runtime/whatif"),
    "metrics": ("runtime/server/load", "scheduler/vllm", "scheduler/records"),
}
"""The folders of each reader that the schema may name."""
GENERATED = "record-types.ts"
UNREAD = {
    "ForecastRecord.compared_with": "for studies of predictors, which group sessions by it",
    "FeatureRecord.segment_tokens": "an input of predictors, kept to train others on",
    "FeatureRecord.segment_mean": "an input of predictors, kept to train others on",
    "FeatureRecord.result_tokens": "an input of predictors, kept to train others on",
    "FeatureRecord.result_mean": "an input of predictors, kept to train others on",
    "PlacementRecord.kv_bytes": "tells plans apart in studies of planning",
}
"""Fields without a reader of ours, and what they are kept for."""


class Field(NamedTuple):
    """A field of a record or of a part of one."""

    owner: str
    name: str
    readers: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.owner}.{self.name}"


def declared() -> Iterator[Field]:
    made = (*KINDS.values(), *vars(parts).values(), *vars(plans).values())
    for kind in dict.fromkeys(one for one in made if isinstance(one, type) and is_dataclass(one)):
        hints = get_type_hints(kind, include_extras=True)
        for each in fields(kind):
            told = [one for one in get_args(hints[each.name]) if isinstance(one, About)]
            for one in told:
                names = tuple(filter(None, one.read_by.split(", ")))
                yield Field(kind.__name__, each.name, names)


FIELDS = list(declared())


@cache
def source(reader: str) -> str:
    paths = [path for folder in READERS[reader] for path in sorted((ROOT / folder).rglob("*"))]
    return "\n".join(
        path.read_text()
        for path in paths
        if path.suffix in (".py", ".ts", ".tsx") and path.name != GENERATED
    )


def reads(reader: str, name: str) -> bool:
    """Whether a reader gets at a field of this name: by a dot, a key, or by taking it apart."""
    by = rf"\.{name}\b|[\"']{name}[\"']|[{{,]\s*{name}\s*[,:}}=]"
    return re.search(by, source(reader)) is not None


@pytest.mark.parametrize("field", FIELDS, ids=str)
def test_whoever_is_said_to_read_a_field_does(field: Field) -> None:
    assert set(field.readers) <= set(READERS), "an unknown reader"
    not_read = [reader for reader in field.readers if not reads(reader, field.name)]
    assert not_read == []
    assert field.readers or str(field) in UNREAD, (
        "nobody reads it: delete it, or say what it is for"
    )


def test_what_is_listed_as_unread_is_there_and_unread() -> None:
    listed: dict[str, Any] = {str(field): field.readers for field in FIELDS}
    assert [name for name in UNREAD if listed.get(name) != ()] == []


@pytest.mark.parametrize("reader", READERS)
def test_a_field_that_nobody_reads_is_noticed(reader: str) -> None:
    assert not reads(reader, "colour_of_the_moon")
