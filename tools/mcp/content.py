"""Conversion of a server's result to text; pictures and sounds go to the artifact store."""

import asyncio
import base64
import binascii
from typing import Any

import mcp_types
from pydantic_core import to_json

from caesura.tools.artifacts import MEDIA_TYPES, Artifact, ArtifactError, ArtifactStore
from caesura.tools.errors import ToolError
from caesura.tools.result import Output

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
