"""The generated pages of docs/reference agree with the code."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.openapi.models import OpenAPI
from jsonschema import Draft202012Validator

import caesura
from caesura.runtime.cli.app import COMMANDS, command
from tests.reference.__main__ import FOLDER, PAGES
from tests.reference.errors import CODES, EXCEPTIONS, written_codes
from tests.reference.routes import BODIES, asked, plain
from tests.reference.settings import toml_page

DOCUMENT = json.loads((FOLDER / "openapi.json").read_text())


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_code_says(name: str) -> None:
    assert (FOLDER / name).read_text() == PAGES[name](), "run `make reference`"


def test_every_option_of_every_command_is_told() -> None:
    told = (FOLDER / "options.md").read_text()
    for name in COMMANDS:
        found = command(name)
        for each in getattr(found, "commands", {name: found}).values():
            for option in each.params:
                for spelling in option.opts if option.param_type_name == "option" else ():
                    assert re.search(rf"`{re.escape(spelling)}[ `]", told), f"{name} {spelling}"


def test_defaults_are_told() -> None:
    told = (FOLDER / "options.md").read_text()
    serve = told[told.index("## caesura serve") :]
    assert "| `--port N` | 8000 |" in serve
    assert "| `--ranking NAME[:KEY=VALUE,...]` | `fcfs` |" in serve
    assert "CAESURA_API_KEY" in serve
    assert "| `retention` | number | 120 |" in (FOLDER / "settings.md").read_text()


def test_tables_inside_tables_are_told_by_their_path() -> None:
    told = toml_page()
    assert "| `limits.max_turns` | whole number |" in told
    assert "## [tools.web_search]" in told


def test_every_public_name_stands_on_the_page_of_the_sdk_once() -> None:
    told = re.findall(r"^<!-- ::: caesura\.(\w+) -->$", (FOLDER / "sdk.md").read_text(), re.M)
    assert sorted(told) == sorted(caesura.__all__)


def test_every_public_exception_says_what_to_do() -> None:
    public = {
        name
        for name in caesura.__all__
        if isinstance(kind := getattr(caesura, name), type) and issubclass(kind, Exception)
    }
    assert public == EXCEPTIONS.keys()


def test_every_code_of_an_error_says_what_to_do() -> None:
    codes = written_codes()
    assert len(codes) > 30
    assert codes <= CODES.keys()


# -- The OpenAPI document ------------------------------------------------------------------------


def references(part: Any) -> Iterator[str]:
    """Yield what a part of the document refers to."""
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        for each in part.values():
            yield from references(each)
    elif isinstance(part, list):
        for each in part:
            yield from references(each)


def test_the_document_has_the_structure_of_openapi() -> None:
    read = OpenAPI.model_validate(DOCUMENT)
    assert read.paths and len(read.paths) > 25
    for schema in DOCUMENT["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def test_what_the_document_refers_to_is_there() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    found = list(references(DOCUMENT))
    assert len(found) > 50
    assert {each.removeprefix("#/components/schemas/") for each in found} <= schemas.keys()


def test_operations_are_named_apart_and_tell_the_parameters_of_their_path() -> None:
    names: set[str] = set()
    for path, methods in DOCUMENT["paths"].items():
        for operation in methods.values():
            assert operation["operationId"] not in names
            names.add(operation["operationId"])
            told = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
            assert told == set(re.findall(r"{(\w+)}", path))


def test_every_route_of_the_server_is_in_the_document() -> None:
    routes = {(each.method, plain(each.path)) for each in asked()} - {
        ("WebSocket", "/v1/responses")
    }
    told = {
        (method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods
    }
    assert told == routes
    assert BODIES.keys() <= {(each.method, each.path) for each in asked()}


def test_a_body_is_checked_by_its_schema() -> None:
    schema = {"$ref": "#/components/schemas/Said", "components": DOCUMENT["components"]}
    check = Draft202012Validator(schema)
    assert check.is_valid({"answer": "blue"})
    assert not check.is_valid({"answer": "blue", "colour": "blue"})
