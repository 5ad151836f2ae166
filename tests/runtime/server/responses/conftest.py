"""Helpers of the tests of responses: the OpenResponses schema, and a check of event streams."""

import json
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any

import jsonschema
import pytest
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

LAST = ("response.completed", "response.incomplete", "response.failed")


class Specification:
    """The OpenResponses schema, as `llm-comply` bundles it."""

    def __init__(self) -> None:
        pytest.importorskip("llm_comply")
        text = resources.files("llm_comply.specs").joinpath("openresponses.json").read_text()
        self._schemas = json.loads(text)["components"]["schemas"]
        document = Resource(json.loads(text), DRAFT202012)
        self._registry = Registry().with_resource("urn:open-responses", document)

    def check(self, value: Any, name: str) -> None:
        schema = {"$ref": f"urn:open-responses#/components/schemas/{name}"}
        jsonschema.Draft202012Validator(schema, registry=self._registry).validate(value)

    def check_event(self, event: dict[str, Any]) -> None:
        kind = event["type"]
        names = {
            schema["properties"]["type"]["enum"][0]: name
            for name, schema in self._schemas.items()
            if name.endswith("StreamingEvent")
        }
        self.check(event, names[kind])


@pytest.fixture(scope="session")
def specification() -> Specification:
    return Specification()


class Stream:
    """Reads a response's events in order, and checks that they nest and add up."""

    def __init__(self) -> None:
        self.done: list[dict[str, Any]] = []
        self._item: dict[str, Any] | None = None
        self._in_part = False
        self._text = self._arguments = ""

    def read(self, event: dict[str, Any]) -> None:
        kind = event["type"]
        if kind == "response.output_item.added":
            assert self._item is None, "an item opened while another one was open"
            self._item, self._text, self._arguments = event["item"], "", ""
        if "output_index" in event:
            assert self._item is not None and event["output_index"] == len(self.done)
            assert event.get("item_id", self._item["id"]) == self._item["id"]
        if kind == "response.output_item.done":
            self._close(event["item"])
        elif kind.endswith(("arguments.delta", "input.delta")):
            self._arguments += event["delta"]
        elif kind.endswith("input.done"):
            assert event["input"] == self._arguments
        elif kind.endswith("arguments.done"):
            assert event["arguments"] == self._arguments
        elif "content_index" in event:
            self._read_part(kind.removeprefix("response."), event)

    def _read_part(self, kind: str, event: dict[str, Any]) -> None:
        assert self._in_part == (kind != "content_part.added")
        if kind in ("output_text.delta", "reasoning_text.delta"):
            self._text += event["delta"]
        elif kind in ("output_text.done", "reasoning_text.done"):
            assert event["text"] == self._text
        else:
            assert event["part"]["text"] == self._text
            self._in_part = kind == "content_part.added"

    def _close(self, item: dict[str, Any]) -> None:
        assert self._item is not None and not self._in_part
        assert (item["id"], item["type"]) == (self._item["id"], self._item["type"])
        if item["type"] in ("function_call", "mcp_call"):
            assert item["arguments"] == self._arguments
        if item["type"] == "custom_tool_call":
            assert item["input"] == self._arguments
        self.done.append(item)
        self._item = None

    def end(self, response: dict[str, Any]) -> None:
        assert self._item is None, "an item was left open"
        assert response["output"] == self.done


def check_stream(events: Sequence[dict[str, Any]]) -> None:
    """Check the order and nesting of a response's events, and that they add up to its output."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    kinds = [event["type"] for event in events]
    assert kinds[0] == "response.created"
    assert kinds[1 + kinds.count("response.queued")] == "response.in_progress"
    assert kinds[-1] in LAST and not set(kinds[:-1]) & set(LAST)
    stream = Stream()
    for event in events:
        stream.read(event)
    stream.end(events[-1]["response"])


@pytest.fixture(scope="session")
def checked() -> Callable[[Sequence[dict[str, Any]]], None]:
    return check_stream
