"""What is selected by name, with and without parameters, and what each mistake says."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from caesura.scheduler.policy.names import make_named


@dataclass(frozen=True)
class Knob:
    size: int = 1
    weight: float = 0.5
    loud: bool = False
    label: str = "none"

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("size is negative")


@dataclass(frozen=True)
class Plain:
    pass


def anything(**values: Any) -> dict[str, Any]:
    return values


KNOWN = {"knob": Knob, "plain": Plain, "any": anything}


def make(spec: str) -> Any:
    return make_named(spec, KNOWN, "knob")


@pytest.mark.parametrize(
    ("spec", "made"),
    [
        ("knob", Knob()),
        ("plain", Plain()),
        ("knob:size=3", Knob(size=3)),
        ("knob:weight=2", Knob(weight=2.0)),
        ("knob:weight=1e-3,size=7", Knob(size=7, weight=1e-3)),
        ("knob:loud=yes", Knob(loud=True)),
        ("knob:loud=False", Knob(loud=False)),
        ("knob: size = 3 , label = a=b", Knob(size=3, label="a=b")),
        ("knob:label=12", Knob(label="12")),
        ("any:a=1,b=1.5,c=no,d=text", {"a": 1, "b": 1.5, "c": False, "d": "text"}),
    ],
)
def test_what_a_spec_makes(spec: str, made: object) -> None:
    assert make(spec) == made


def test_values_have_the_type_that_is_asked_for() -> None:
    knob = make("knob:weight=2,size=3,loud=true")
    assert [type(value) for value in (knob.weight, knob.size, knob.loud)] == [float, int, bool]
    assert type(make("any:a=1")["a"]) is int


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (
            "nob",
            "knob 'nob': unknown name 'nob'; choose from: knob, plain, any,"
            " or package.module.Class",
        ),
        ("", "unknown name ''"),
        ("knob:", "a parameter must be key=value, got ''"),
        ("knob:size", "a parameter must be key=value, got 'size'"),
        ("knob:size=", "a parameter must be key=value, got 'size='"),
        ("knob:=3", "a parameter must be key=value, got '=3'"),
        ("knob:size=1,", "a parameter must be key=value, got ''"),
        ("knob:size=1,size=2", "parameter size is given twice"),
        ("knob:colour=red", "unknown parameter 'colour'; choose from: size, weight, loud, label"),
        ("plain:size=1", "unknown parameter 'size'; it takes none"),
        ("knob:size=1.5", "size must be a whole number, got '1.5'"),
        ("knob:size=true", "size must be a whole number, got 'true'"),
        ("knob:weight=heavy", "weight must be a number, got 'heavy'"),
        ("knob:weight=yes", "weight must be a number, got 'yes'"),
        ("knob:loud=1", "loud must be true or false, got '1'"),
        ("knob:size=-1", "knob 'knob:size=-1': size is negative"),
        ("no_such_package.Knob", "cannot import no_such_package.Knob: ModuleNotFoundError"),
        ("math.no_such_name", "cannot import math.no_such_name: AttributeError"),
        ("math.pi", "math.pi is a float and cannot be called"),
        (".Knob", "unknown name '.Knob'"),
        ("math.", "unknown name 'math.'"),
    ],
)
def test_what_mistakes_say(spec: str, says: str) -> None:
    with pytest.raises(ValueError) as error:
        make(spec)
    assert says in str(error.value)


OUTSIDE = """
from __future__ import annotations

class Mine:
    def __init__(self, size: int, *, weight: float = 1.0) -> None:
        self.size, self.weight = size, weight
"""


def test_a_class_from_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "named_outside.py").write_text(OUTSIDE)
    (tmp_path / "named_broken.py").write_text("raise RuntimeError('not today')")
    mine = make("named_outside.Mine:size=4,weight=2")
    assert (mine.size, mine.weight, type(mine.weight)) == (4, 2.0, float)
    with pytest.raises(ValueError, match="size must be a whole number, got 'four'"):
        make("named_outside.Mine:size=four")
    with pytest.raises(ValueError, match="missing 1 required positional argument: 'size'"):
        make("named_outside.Mine")
    with pytest.raises(ValueError, match="not today"):
        make("named_broken.Mine")


def test_a_known_name_is_not_imported() -> None:
    assert make_named("math.pi", {"math.pi": Plain}, "knob") == Plain()
