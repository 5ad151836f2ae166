import dataclasses
import math

import pytest
from pydantic import BaseModel

from caesura.tools.result import error_text, fit, malformed, text_of


class Point(BaseModel):
    x: int


@dataclasses.dataclass
class Pair:
    a: int
    b: str


class Opaque:
    def __str__(self) -> str:
        return "opaque thing"


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is\n", "as it is\n"),
        ("", ""),
        (None, "done"),
        (3, "3"),
        (True, "true"),
        (0.1, "0.1"),
        (math.inf, "Infinity"),
        ({"a": [1, "ü"]}, '{"a":[1,"ü"]}'),
        (Point(x=1), '{"x":1}'),
        (Pair(1, "b"), '{"a":1,"b":"b"}'),
        (Opaque(), "opaque thing"),
    ],
)
def test_text_of_values(value, text):
    assert text_of(value) == text


def test_a_value_that_contains_itself_is_still_told():
    circle = []
    circle.append(circle)
    assert text_of(circle) == "[[...]]"


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (ZeroDivisionError("division by zero"), "error: division by zero"),
        (TimeoutError(), "error: TimeoutError"),
        (ValueError("  two\n   lines "), "error: two lines"),
        (Mute(), "error: Mute"),
        ("plain", "error: plain"),
    ],
)
def test_errors_are_one_line(reason, text):
    assert error_text(reason) == text


def test_a_long_text_is_cut_visibly_and_a_short_one_is_not():
    assert fit("12345", 5) == "12345"
    assert fit("123456", 5) == "12345 [cut: 6 characters in all]"


def test_a_lone_surrogate_does_not_reach_the_message():
    assert fit("a\ud800b", 10) == "a?b"
    assert fit("\U0001f600", 10) == "\U0001f600"


def test_malformed_tells_what_was_wrong_and_quotes_the_beginning():
    result = malformed("c1", "weather", '{"city":\n' + "x" * 200, "no closing brace")
    assert (result.call_id, result.name, result.error) == ("c1", "weather", "malformed_call")
    assert result.content == (
        "error: the tool call could not be parsed: no closing brace; "
        'it was: {"city": ' + "x" * 71 + "..."
    )
    assert (result.seconds, result.attempts) == (0.0, 0)


def test_malformed_at_a_time():
    assert malformed("c1", "", "<", "unfinished", started_at=5.0).started_at == 5.0
