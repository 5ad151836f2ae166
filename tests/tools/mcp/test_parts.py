"""The parts that read what a server sends: lines, messages, schemas, content."""

import asyncio
import base64

import mcp_types
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp.shared.message import SessionMessage

from caesura.tools.artifacts import ArtifactStore
from caesura.tools.errors import ToolError
from caesura.tools.mcp.listing import (
    MAX_CHARACTERS,
    MAX_FILES,
    output_of,
    without_lost_references,
    without_patterns,
)
from caesura.tools.mcp.stdio import Endless, lines, read_message
from caesura.tools.schema.validator import schema_validator
from tests.tools.mcp.calls import PNG


async def read(data: bytes, pieces: int, most: int) -> list[tuple[bytes, bool]]:
    """All lines of `data`, fed in pieces of that size."""
    stream = asyncio.StreamReader()
    for start in range(0, len(data), pieces):
        stream.feed_data(data[start : start + pieces])
    stream.feed_eof()
    return [each async for each in lines(stream, most)]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.binary(max_size=30).map(lambda part: part.replace(b"\n", b""))),
    st.integers(1, 40),
    st.integers(4, 20),
)
def test_lines_are_whole_or_marked_as_cut(parts, pieces, most):
    found = asyncio.run(read(b"".join(part + b"\n" for part in parts), pieces, most))
    assert found == [(part[:most], len(part) > most) for part in parts]


def test_a_line_without_end_is_not_read_for_ever():
    try:
        asyncio.run(read(b"x" * 10_000, 100, 10))
    except Endless:
        return
    raise AssertionError("it was read to its end")


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_a_message_or_none(data, cut):
    assert isinstance(read_message(data, cut, 100), SessionMessage | None)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["pattern", "properties", "items", "$defs", "patternProperties"]),
                inner,
                max_size=3,
            )
        ),
        max_leaves=20,
    )
)
def test_no_pattern_is_left_as_a_keyword(schema):
    without_patterns(schema)

    def check(here: object, names: bool) -> None:
        if isinstance(here, list):
            for each in here:
                check(each, False)
        elif isinstance(here, dict):
            assert names or not {"pattern", "patternProperties"} & set(here)
            for key, each in here.items():
                check(each, not names and key in ("properties", "$defs"))

    check(schema, False)


def test_a_property_called_pattern_stays():
    schema = {"properties": {"pattern": {"type": "string", "pattern": "a"}}, "pattern": "b"}
    without_patterns(schema)
    assert schema == {"properties": {"pattern": {"type": "string"}}}


def test_a_reference_that_leads_nowhere_takes_any_value():
    lost = {"type": "array", "items": {"$ref": "#/$defs/F"}, "$defs": {"F": {"type": "string"}}}
    schema = {"type": "object", "properties": {"lost": lost, "found": {"$ref": "#/properties"}}}
    assert without_lost_references(schema) == ["#/$defs/F"]
    assert lost["items"] == {} and schema["properties"]["found"] == {"$ref": "#/properties"}
    assert schema_validator(schema)({"lost": ["a"]}) == {"lost": ["a"]}


def result(*blocks: object, **fields: object) -> mcp_types.CallToolResult:
    return mcp_types.CallToolResult(content=list(blocks), **fields)


def text(said: str) -> mcp_types.TextContent:
    return mcp_types.TextContent(type="text", text=said)


def blob(kind: str, data: bytes = PNG) -> mcp_types.EmbeddedResource:
    resource = mcp_types.BlobResourceContents(
        uri="file:///a", mime_type=kind, blob=base64.b64encode(data).decode()
    )
    return mcp_types.EmbeddedResource(type="resource", resource=resource)


async def test_texts_resources_and_links(tmp_path):
    resource = mcp_types.TextResourceContents(uri="file:///b", text="inside")
    output = await output_of(
        result(
            text("one"),
            mcp_types.EmbeddedResource(type="resource", resource=resource),
            mcp_types.ResourceLink(type="resource_link", name="notes", uri="file:///notes"),
            blob("image/png"),
            blob("application/zip"),
        ),
        ArtifactStore(tmp_path),
    )
    [artifact] = output.artifacts
    assert output.text.splitlines() == [
        "one",
        "inside",
        "[resource notes: file:///notes]",
        f"Saved as {artifact.url}: PNG picture, {len(PNG)} bytes.",
        "[a file of type application/zip that is not kept]",
    ]


async def test_structured_content_counts_where_there_is_no_text(tmp_path):
    store = ArtifactStore(tmp_path)
    assert (await output_of(result(structured_content={"a": 1}), store)).text == '{"a":1}'
    both = result(text("said"), structured_content={"a": 1})
    assert (await output_of(both, store)).text == "said"
    assert (await output_of(result(), store)).text == "done"


async def test_results_are_bounded(tmp_path):
    store = ArtifactStore(tmp_path, max_file_bytes=100)
    many = [blob("image/png", bytes([n])) for n in range(MAX_FILES + 1)]
    output = await output_of(result(*many, text("x" * 10**6)), store)
    assert len(output.artifacts) == MAX_FILES
    assert len(output.text) == MAX_CHARACTERS
    output = await output_of(result(blob("image/png", bytes(101))), store)
    assert "that is not kept: the file has 101 bytes; at most 100 are allowed" in output.text


async def test_an_error_is_raised_with_what_it_says(tmp_path):
    for blocks, said in (((text("no such file"),), "no such file"), ((), "the call failed")):
        try:
            await output_of(result(*blocks, is_error=True), ArtifactStore(tmp_path))
        except ToolError as error:
            assert said in str(error)
        else:
            raise AssertionError("no error")
