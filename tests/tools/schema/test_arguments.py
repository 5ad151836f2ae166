import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caesura.tools import tool
from caesura.tools.schema.arguments import ArgumentsError, arguments_object, path_text

json_objects = st.dictionaries(
    st.text(max_size=8),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=5,
    ),
    max_size=4,
)


@settings(deadline=60_000)
@given(json_objects)
def test_an_object_is_read_plain_or_inside_a_string(value):
    assert arguments_object(json.dumps(value)) == value
    assert arguments_object(json.dumps(json.dumps(value))) == value


@pytest.mark.parametrize("text", ["", "  \n", "null", '""', "{}"])
def test_nothing_is_no_arguments(text):
    assert arguments_object(text) == {}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"a": 1', "arguments are not valid JSON: Expecting ',' delimiter at character 7"),
        ("[1]", "arguments must be a JSON object, not an array"),
        ("3", "arguments must be a JSON object, not a number"),
        ("true", "arguments must be a JSON object, not a boolean"),
        ('"Paris"', "arguments must be a JSON object, not a string"),
        (
            "[" * 100_000,
            "arguments are not valid JSON: a number is too long or the nesting too deep",
        ),
        ('{"a": ' + "1" * 5_000 + "}", "arguments are not valid JSON: a number is too long"),
    ],
)
def test_other_texts_are_told_in_one_sentence(text, sentence):
    with pytest.raises(ArgumentsError) as caught:
        arguments_object(text)
    assert str(caught.value).startswith(sentence)


def test_path_text():
    assert path_text(("filter", "ids", 2, "name")) == "filter.ids[2].name"
    assert path_text(()) == ""


@tool
def forecast(city: str, days: int = 1) -> str:
    return f"{city} {days}"


@settings(deadline=60_000)
@given(st.text() | json_objects.map(json.dumps))
def test_any_text_gives_arguments_or_a_one_line_error(text):
    try:
        kwargs = forecast.arguments(text)
    except ArgumentsError as error:
        assert str(error)
    else:
        assert isinstance(kwargs["city"], str)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{}", "argument 'city': field required"),
        (
            '{"city": "Paris", "days": "many"}',
            "argument 'days': input should be a valid integer, "
            "unable to parse string as an integer",
        ),
        ('{"city": "Paris", "town": 1}', "unknown argument 'town' (accepted: city, days)"),
        (
            '{"days": "many", "a": 1, "b": 2, "c": 3}',
            "argument 'city': field required; "
            "argument 'days': input should be a valid integer, "
            "unable to parse string as an integer; "
            "unknown argument 'a' (accepted: city, days); and 2 more",
        ),
        # The model's field for `city` is called p0 inside: that name is not one of the tool's.
        ('{"city": "Paris", "p0": "x"}', "unknown argument 'p0' (accepted: city, days)"),
    ],
)
def test_what_is_wrong_is_said_by_the_argument_name(text, sentence):
    with pytest.raises(ArgumentsError) as caught:
        forecast.arguments(text)
    assert str(caught.value) == sentence


def test_a_tool_without_arguments_says_so():
    @tool
    def ping() -> str:
        return "pong"

    assert ping.arguments("") == {}
    with pytest.raises(ArgumentsError, match=r"unknown argument 'x' \(the tool takes no"):
        ping.arguments('{"x": 1}')


def test_numbers_as_strings_are_read():
    assert forecast.arguments('{"city": "Paris", "days": "3"}') == {"city": "Paris", "days": 3}
