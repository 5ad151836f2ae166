import enum
import inspect
import warnings
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal, Optional

import pytest
from pydantic import BaseModel, Field

from caesura.tools.schema.arguments import ArgumentsError
from caesura.tools.schema.signature import compact, name_of, signature_of


class Place(BaseModel):
    """A place on the map."""

    city: str
    title: str = "Mr"


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


def schema(function):
    return signature_of(function).parameters


def test_a_plain_function_in_full():
    def weather(city: str, days: int = 1):
        """The weather.

        Args:
            city: where
        """

    assert signature_of(weather).description == "The weather."
    assert schema(weather) == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "where"},
            "days": {"type": "integer", "default": 1},
        },
        "required": ["city"],
        "additionalProperties": False,
    }


def test_no_parameters():
    def now():
        pass

    assert schema(now) == {"type": "object", "properties": {}, "additionalProperties": False}
    assert signature_of(now).validate({}) == {}


@pytest.mark.parametrize(
    ("hint", "expected", "given", "value"),
    [
        (Literal["C", "F"], {"enum": ["C", "F"], "type": "string"}, "C", "C"),
        (list[int], {"items": {"type": "integer"}, "type": "array"}, [1, "2"], [1, 2]),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}, None, None),  # noqa: UP045
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "7", 7),
        (
            dict[str, float],
            {"additionalProperties": {"type": "number"}, "type": "object"},
            {"a": 1},
            {"a": 1.0},
        ),
        (Any, {}, [1], [1]),
        (bool, {"type": "boolean"}, "true", True),
        (
            Annotated[int, Field(ge=1, description="how many")],
            {"type": "integer", "minimum": 1, "description": "how many"},
            1,
            1,
        ),
    ],
)
def test_types(hint, expected, given, value):
    def function(x: hint):
        pass

    assert schema(function)["properties"]["x"] == expected
    assert schema(function)["required"] == ["x"]
    assert signature_of(function).validate({"x": given}) == {"x": value}


def test_a_model_as_parameter_is_validated_into_the_model():
    def go(to: Place, via: list[Place] = []):  # noqa: B006
        """Go.

        Args:
            to: the goal
        """

    parameters = schema(go)
    assert parameters["properties"]["to"] == {"$ref": "#/$defs/Place", "description": "the goal"}
    # The annotation called title is dropped, the property called title is not.
    assert parameters["$defs"]["Place"] == {
        "description": "A place on the map.",
        "type": "object",
        "properties": {"city": {"type": "string"}, "title": {"type": "string", "default": "Mr"}},
        "required": ["city"],
    }
    values = signature_of(go).validate({"to": {"city": "Rome"}})
    assert values == {"to": Place(city="Rome")}
    with pytest.raises(ArgumentsError, match=r"argument 'via\[1\].city': field required"):
        signature_of(go).validate({"to": {"city": "Rome"}, "via": [{"city": "Bern"}, {}]})


def test_an_enum_is_validated_into_the_enum():
    def paint(colour: Colour = Colour.RED):
        pass

    assert schema(paint)["properties"]["colour"]["default"] == "red"
    assert signature_of(paint).validate({"colour": "blue"}) == {"colour": Colour.BLUE}


def test_a_fields_description_comes_before_the_docstrings():
    def function(x: Annotated[int, Field(description="from the field")], y: int):
        """Do.

        Args:
            x: from the docstring
            y: from the docstring
        """

    properties = schema(function)["properties"]
    assert properties["x"]["description"] == "from the field"
    assert properties["y"]["description"] == "from the docstring"


def test_an_argument_left_out_is_left_to_the_functions_own_default():
    missing = object()

    def function(x: int = 3, y: Any = missing):
        pass

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "default" not in schema(function)["properties"]["y"]
    assert signature_of(function).validate({}) == {}


def test_a_default_inside_the_annotation_counts():
    def function(x: Annotated[int, Field(default=3)]):
        pass

    assert "required" not in schema(function)
    assert signature_of(function).validate({}) == {"x": 3}


def test_names_that_a_pydantic_field_may_not_have():
    def function(schema: int, model_config: int, _hidden: int, json: int, copy: int):
        pass

    values = {"schema": 1, "model_config": 2, "_hidden": 3, "json": 4, "copy": 5}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        signature = signature_of(function)
    assert list(signature.parameters["properties"]) == list(values)
    assert signature.validate(values) == values


def test_keyword_only_parameters_and_bound_methods():
    class Shop:
        def buy(self, item: str, *, count: int = 1):
            """Buy."""

    assert list(schema(Shop().buy)["properties"]) == ["item", "count"]


def test_annotations_as_text():
    def function(x: "list[int]"):
        pass

    assert signature_of(function).validate({"x": [1]}) == {"x": [1]}


def starred(*args: int):
    pass


def double_starred(**kwargs: int):
    pass


def positional(x: int, /):
    pass


def untyped(x):
    pass


def field_default(x: int = Field(default=1)):
    pass


def unresolved(x: "Nowhere"):  # noqa: F821
    pass


def callback(x: Callable[[int], int]):
    pass


class Opaque:
    pass


def opaque(x: Opaque):
    pass


def generator(x: int):
    yield x


async def async_generator(x: int):
    yield x


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (starred, r"\*args has no schema; name and type each parameter"),
        (double_starred, r"\*\*kwargs has no schema"),
        (positional, r"'x' is positional-only.*remove the '/'"),
        (untyped, r"'x' has no type annotation; write for example `x: str`"),
        (field_default, r"'x' has a Field as its default; write `x: Annotated"),
        (unresolved, r"annotation cannot be resolved .*Nowhere.* at module level"),
        (callback, r"callback: "),
        (opaque, r"opaque: .*Opaque"),
        (generator, r"generator: return the whole result instead"),
        (async_generator, r"generator: return the whole result instead"),
        (Opaque, r"is not a function"),
        (3, r"is not a function"),
    ],
)
def test_functions_that_json_cannot_call_are_refused(function, message):
    with pytest.raises(TypeError, match=message):
        signature_of(function)


def sent(to: str, text: str, urgent: bool = False) -> str:
    """Send a text.

    Args:
        text: What is sent.
    """
    return f"{to}: {text}{'!' if urgent else ''}"


class Sender:
    """Send to one address."""

    def __call__(self, text: str) -> str:
        return sent("me", text)


@pytest.mark.parametrize("bound", [partial(sent, "me"), partial(sent, to="me")])
def test_a_partial_asks_only_for_what_is_not_bound(bound):
    signature = signature_of(bound)
    assert (name_of(bound), signature.description) == ("sent", "Send a text.")
    assert signature.parameters["properties"]["text"]["description"] == "What is sent."
    assert {*signature.parameters["properties"]} == {"text", "urgent"}
    assert signature.parameters["required"] == ["text"]
    assert bound(**signature.validate({"text": "hi"})) == "me: hi"
    with pytest.raises(ArgumentsError):
        signature.validate({"text": "hi", "to": "you"})


@pytest.mark.parametrize("given", [Sender(), Sender().__call__, partial(partial(Sender()))])
def test_an_object_that_is_called_is_described_by_its_call(given):
    signature = signature_of(given)
    assert name_of(given) == ("__call__" if inspect.ismethod(given) else "Sender")
    if not inspect.ismethod(given):
        assert signature.description == "Send to one address."
    assert given(**signature.validate({"text": "hi"})) == "me: hi"


def test_partials_of_what_json_cannot_call_are_refused():
    for function, message in ((partial(len), "is not a function"), (partial(starred), "no schema")):
        with pytest.raises(TypeError, match=message):
            signature_of(function)


def test_compact_leaves_data_alone():
    given = {
        "title": "T",
        "properties": {"title": {"title": "Title", "type": "string"}},
        "default": {"title": "kept"},
        "enum": [{"title": "kept"}],
        "anyOf": [{"title": "A", "type": "null"}],
    }
    assert compact(given) == {
        "properties": {"title": {"type": "string"}},
        "default": {"title": "kept"},
        "enum": [{"title": "kept"}],
        "anyOf": [{"type": "null"}],
    }
