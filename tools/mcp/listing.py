"""What a server offers and answers, put into Caesura's forms: its list of tools, and results.

Parts of a tool's JSON schema that would hinder its validation are removed. A result becomes a text;
its pictures and sounds go to the artifact store.
"""

import asyncio
import base64
import binascii
import copy
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import mcp_types
from pydantic_core import to_json

from caesura.tools.artifacts import MEDIA_TYPES, Artifact, ArtifactError, ArtifactStore
from caesura.tools.errors import ToolError
from caesura.tools.mcp.settings import ServerSettings
from caesura.tools.result import Output
from caesura.tools.schema.validator import lost_references, subschemas
from caesura.tools.source import free_name
from caesura.tools.tool import Tool

if TYPE_CHECKING:
    from mcp_types import Tool as Listed


MAX_CHARACTERS = 200_000
"""Limit for a result's text, before the dispatcher cuts it to the tool's own limit."""
MAX_BLOCKS = 256
MAX_FILES = 16
MAX_REASON_CHARACTERS = 4000
SUFFIXES = {kind: suffix for suffix, kind in MEDIA_TYPES.items()} | {
    "image/jpg": "jpg",
    "audio/x-wav": "wav",
    "audio/wave": "wav",
    "audio/mp3": "mp3",
}
_KINDS = {"image": "picture", "audio": "sound"}


async def output_of(result: mcp_types.CallToolResult, store: ArtifactStore) -> Output:
    """Return the result as an Output.

    Raises ToolError with the server's text where the server reports that the call failed.
    """
    files: list[Artifact] = []
    texts = [await _block(block, store, files) for block in result.content[:MAX_BLOCKS]]
    if len(result.content) > MAX_BLOCKS:
        texts.append(f"[{len(result.content) - MAX_BLOCKS} more blocks were left out]")
    if not any(texts) and result.structured_content is not None:
        texts = [to_json(result.structured_content).decode()]
    text = "\n".join(each for each in texts if each)[:MAX_CHARACTERS]
    if result.is_error:
        raise ToolError(text[:MAX_REASON_CHARACTERS] or "the server reports that the call failed")
    return Output(text or "done", tuple(files))


async def _block(block: Any, store: ArtifactStore, files: list[Artifact]) -> str:
    """Return one block's text; a file is stored and appended to `files`."""
    match block:
        case mcp_types.TextContent(text=text):
            return str(text)
        case mcp_types.ImageContent() | mcp_types.AudioContent():
            return await _file(block.data, block.mime_type, store, files)
        case mcp_types.ResourceLink():
            return f"[resource {block.name}: {block.uri}]"
        case mcp_types.EmbeddedResource(resource=mcp_types.TextResourceContents() as resource):
            return str(resource.text)
        case mcp_types.EmbeddedResource(resource=mcp_types.BlobResourceContents() as resource):
            return await _file(resource.blob, resource.mime_type or "", store, files)
        case _:
            return f"[content of an unknown kind: {type(block).__name__}]"


async def _file(encoded: str, kind: str, store: ArtifactStore, files: list[Artifact]) -> str:
    kind = kind.partition(";")[0].strip().lower()
    suffix = SUFFIXES.get(kind)
    if suffix is None:
        return f"[a file of type {kind[:64] or 'unknown'} that is not kept]"
    if len(files) >= MAX_FILES:
        return f"[a file beyond the first {MAX_FILES} that is not kept]"
    try:
        artifact = await asyncio.to_thread(_store, encoded, suffix, store)
    except (binascii.Error, ValueError):
        return f"[a file of type {kind} that is not valid base64]"
    except ArtifactError as error:
        return f"[a file of type {kind} that is not kept: {error}]"
    files.append(artifact)
    noun = _KINDS.get(kind.partition("/")[0], "file")
    return f"Saved as {artifact.url}: {suffix.upper()} {noun}, {artifact.size_bytes} bytes."


def _store(encoded: str, suffix: str, store: ArtifactStore) -> Artifact:
    return store.put(base64.b64decode(encoded, validate=True), suffix)


def without_patterns(schema: Any) -> None:
    """Remove the regular expressions from a JSON schema, in place, at any depth.

    A server's expression could take for ever on an argument. So could a part with its own dialect
    (`$schema`), whose checks are not counted. A property that is named "pattern" stays.
    """
    for part in subschemas(schema):
        part.pop("pattern", None)
        part.pop("patternProperties", None)
        part.pop("$schema", None)  # it would bypass our counting checks


def without_lost_references(schema: dict[str, Any]) -> list[str]:
    """Remove the references that lead nowhere from a JSON schema, in place, and return them.

    Such a part then takes any value, which the server checks itself.
    """
    return [part.pop("$ref") for part in lost_references(schema)]


LOG = logging.getLogger(__name__)

MAX_DESCRIPTION_CHARACTERS = 4000
MAX_SCHEMA_CHARACTERS = 64_000
MAX_LIST_CHARACTERS = 1_000_000
"""Limit for all schemas of a list: checking more would take seconds of processor time."""

Call = Callable[[str, dict[str, Any]], Awaitable[Output]]


def made(
    server: str,
    settings: ServerSettings,
    listed: Iterable["Listed"],
    before: Sequence[Tool],
    call: Call,
) -> Iterator[Tool]:
    """Yield the tools that the settings allow, reusing the object of each unchanged tool.

    An unusable tool is left out, with a warning that names it. Blocking.
    """
    known = {tool.name: tool for tool in before}
    taken: set[str] = set()
    characters = 0
    for each in listed:
        if not settings.uses(each.name):
            continue
        name = free_name(each.name, taken)
        try:
            size = len(json.dumps(each.input_schema))
            if size > MAX_SCHEMA_CHARACTERS:
                raise ValueError(f"its schema has more than {MAX_SCHEMA_CHARACTERS} characters")
            if characters + size > MAX_LIST_CHARACTERS:
                raise ValueError(f"all schemas have more than {MAX_LIST_CHARACTERS} characters")
            tool = _tool(name, settings, each, known.get(name), call)
        except (ValueError, TypeError, RecursionError) as error:
            LOG.warning("MCP server %r: skipped tool %r: %s", server, each.name[:64], _line(error))
            continue
        taken.add(name)
        characters += size
        yield tool


def _tool(
    name: str, settings: ServerSettings, listed: "Listed", old: Tool | None, call: Call
) -> Tool:
    schema: dict[str, Any] = copy.deepcopy(dict(listed.input_schema))
    without_patterns(schema)
    lost = without_lost_references(schema)
    description = (listed.description or listed.title or "")[:MAX_DESCRIPTION_CHARACTERS]
    known = (description, schema, _is_safe(listed))
    if old is not None and (old.description, old.parameters, old.safe_to_repeat) == known:
        return old
    if lost:
        LOG.warning(
            "tool %r: its schema lacks %s, to which it refers: any value is sent there",
            name,
            lost[0],
        )
    remote = listed.name

    async def run(**arguments: Any) -> Output:
        return await call(remote, arguments)

    return Tool.from_schema(
        name,
        description,
        schema,
        run,
        timeout_seconds=settings.timeout_seconds,
        concurrency=settings.concurrency,
        max_result_tokens=settings.max_result_tokens,
        breaker=settings.breaker,
        approval=settings.asks(listed.name),
        safe_to_repeat=_is_safe(listed),
    )


def _is_safe(listed: "Listed") -> bool:
    """Return whether the server says that a call can be repeated without a further effect."""
    hints = listed.annotations
    return hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)


def _line(error: Exception) -> str:
    return " ".join((str(error) or type(error).__name__).split())[:300]
