"""Calls of a public benchmark, written in every format and read back; `bfcl.py` runs all."""

import pytest

from tests.formats.bfcl import attempt, difference
from tests.formats.bfcl_data import call_of, first, sample, schema
from tests.formats.rendering import ONE_AT_A_TIME, RENDER, Call, Unwritable
from tests.formats.world import stand_in

UNTYPED = {
    *("qwen3_coder", "glm", "seed_oss", "minimax_m2"),
    *("deepseek_v32", "deepseek_v4", "deepseek_v41"),
}
"""A value's type is what the tool's schema says, as in vLLM's parsers."""


@pytest.mark.parametrize("name", RENDER)
def test_calls_come_back_as_they_were(name: str) -> None:
    model, exact, unwritable = stand_in(name), 0, 0
    for turn in sample():
        for calls in [[call] for call in turn.calls] if name in ONE_AT_A_TIME else [turn.calls]:
            try:
                verdicts = attempt(model, calls, turn)
            except Unwritable:
                unwritable += len(calls)
                continue
            for wrong in verdicts:
                exact += wrong is None
                assert wrong is None or (name in UNTYPED and " read as " in wrong), (turn, wrong)
    total = sum(len(turn.calls) for turn in sample())
    assert exact + unwritable >= (0.8 if name in UNTYPED else 1) * total
    assert unwritable <= 0.05 * total


def test_differences_are_seen() -> None:
    call = Call("f", {"a": 1, "b": [True]})
    assert difference(call, "f", {"b": [True], "a": 1}) is None
    assert difference(call, "g", {"a": 1, "b": [True]}) == "another name"
    assert difference(call, "f", {"a": 1.0, "b": [True]}) == "int read as float"
    assert difference(call, "f", {"a": 1, "b": [1]}) == "another value"
    assert difference(call, "f", {"a": 1}) == "other arguments"


def test_how_the_leaderboards_files_are_read() -> None:
    assert first({"a": ["", 1], "b": [[{"c": [2]}]]}) == {"b": [{"c": 2}]}
    assert call_of("cd('x', deep=True)", {"cd": ["folder", "deep"]}) == Call(
        "cd", {"folder": "x", "deep": True}
    )
    with pytest.raises(ValueError, match="malformed"):
        call_of("f(a=1/6)", {})
    assert schema({"type": "dict", "properties": {"x": {"type": "float"}}}) == {
        "type": "object",
        "properties": {"x": {"type": "number"}},
    }
