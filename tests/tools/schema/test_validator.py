import re

import pytest

from caesura.tools.schema.arguments import ArgumentsError
from caesura.tools.schema.validator import MAX_CHECKS, schema_validator

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 1},
        "precise": {"type": "boolean"},
        "scale": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["city"],
    "additionalProperties": False,
}


def test_valid_arguments_pass_unchanged():
    arguments = {"city": "Oslo", "days": 2, "tags": ["a"]}
    assert schema_validator(WEATHER)(arguments) == arguments


def test_scalars_as_strings_are_read_and_strings_are_not():
    given = {"city": "12", "days": "3", "precise": "true", "scale": "1.5"}
    assert schema_validator(WEATHER)(given) == {
        "city": "12",
        "days": 3,
        "precise": True,
        "scale": 1.5,
    }


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"$ref": "#/$defs/Count"}, "7", 7),
        ({"$ref": "#/$defs/Chain"}, "7", 7),
        ({"$ref": "#/definitions/Range"}, '{"first": 3}', {"first": 3}),
        ({"anyOf": [{"$ref": "#/definitions/Range"}, {"type": "null"}]}, "null", None),
        ({"const": 5}, "5", 5),
        ({"enum": ["5", 5]}, "5", "5"),
        ({"type": ["integer", "string"]}, "5", "5"),
        ({"type": "array", "items": {"type": "integer"}}, "[1, 2]", [1, 2]),
        ({"type": "number"}, " 7 ", 7),
    ],
)
def test_a_string_that_is_refused_is_read_as_what_the_schema_wants(schema, text, value):
    defs = {"Count": {"type": "integer"}, "Chain": {"$ref": "#/$defs/Count"}}
    ranges = {"Range": {"type": "object", "required": ["first"]}}
    parameters = {"type": "object", "properties": {"v": schema, "w": {"type": "string"}}}
    validate = schema_validator(parameters | {"$defs": defs, "definitions": ranges})
    assert validate({"v": text, "w": "7"}) == {"v": value, "w": "7"}


@pytest.mark.parametrize("reference", ["#/$defs/Lost", "https://example.org/lost", "#lost"])
def test_a_reference_that_leads_nowhere_is_refused(reference):
    nested = {"type": "array", "items": {"$ref": reference}, "$defs": {"Lost": {}}}
    with pytest.raises(ValueError, match=f"refers to '{re.escape(reference)}', which it does not"):
        schema_validator({"type": "object", "properties": {"v": nested}})
    held = {"$defs": {"Lost": {"$anchor": "lost", "type": "integer"}}}
    if reference.startswith("#"):
        named = {"properties": {"$ref": {"$ref": reference}}}
        assert schema_validator({"type": "object"} | named | held)({"$ref": "7"}) == {"$ref": 7}


def test_a_string_that_is_refused_as_json_too_is_told_as_it_was_given():
    validate = schema_validator({"type": "object", "properties": {"v": {"type": "number"}}})
    for text in ('"7"', "NaN", "[7]", "seven"):
        with pytest.raises(ArgumentsError, match="is not of type 'number'"):
            validate({"v": text})


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "argument 'city': field required"),
        ({"city": 5}, "argument 'city': 5 is not of type 'string'"),
        ({"city": "x", "days": "few"}, "argument 'days': 'few' is not of type 'integer'"),
        # A boolean is no integer, although Python's is.
        ({"city": "x", "days": "true"}, "argument 'days': 'true' is not of type 'integer'"),
        ({"city": "x", "days": 0}, "argument 'days': 0 is less than the minimum of 1"),
        ({"city": "x", "tags": ["a", 1]}, "argument 'tags[1]': 1 is not of type 'string'"),
        (
            {"city": "x", "town": 1},
            "unknown argument 'town' (accepted: city, days, precise, scale, tags)",
        ),
    ],
)
def test_one_sentence_for_what_is_wrong(arguments, sentence):
    with pytest.raises(ArgumentsError) as caught:
        schema_validator(WEATHER)(arguments)
    assert str(caught.value) == sentence


def test_what_the_schema_leaves_open_is_open():
    assert schema_validator({"type": "object"})({"anything": 1}) == {"anything": 1}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({}, '"type": "object"'),
        ({"type": "string"}, '"type": "object"'),
        ({"type": "object", "properties": {"x": {"type": "text"}}}, "not a valid JSON schema"),
    ],
)
def test_bad_schemas_are_refused(schema, message):
    with pytest.raises(ValueError, match=message):
        schema_validator(schema)


def test_a_reference_outside_the_schema_is_not_fetched(tmp_path):
    # jsonschema's default is to open any URL, this one of a file that is there too.
    (tmp_path / "schema.json").write_text("{}")
    url = (tmp_path / "schema.json").as_uri()
    with pytest.raises(ValueError, match="which it does not hold"):
        schema_validator({"type": "object", "properties": {"x": {"$ref": url}}})


@pytest.mark.parametrize("name", ["allOf", "anyOf"])
def test_references_that_multiply_are_not_followed_for_ever(name):
    doubling = {
        f"level{level}": {
            name: [{"$ref": f"#/$defs/level{level + 1}"}, {"$ref": "#/$defs/last"}] * 2
        }
        for level in range(40)
    }
    wrong = {"level40": {"type": "null"}, "last": {"type": "null"}}
    schema = {"type": "object", "$ref": "#/$defs/level0", "$defs": doubling | wrong}
    with pytest.raises(ArgumentsError, match="too long to check"):
        schema_validator(schema)({})


def test_a_reference_to_itself_is_told():
    with pytest.raises(ArgumentsError, match="too long to check"):
        schema_validator({"type": "object", "allOf": [{"$ref": "#"}]})({})


def test_a_call_does_not_pay_for_the_one_before():
    validate = schema_validator(WEATHER)
    tags = ["x"] * (MAX_CHECKS // 2)
    for _ in range(4):
        assert validate({"city": "Oslo", "tags": tags})["tags"] == tags
