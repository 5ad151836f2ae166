"""Pictures, sounds and videos of a history by reference: a digest, and the place of each."""

import asyncio
import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from caesura.runtime.trajectories.trajectory import Medium
from caesura.scheduler.messages import MEDIA_KINDS

_BLOCKS = {"image": "image"}
"""The kinds of media by the type of a block in Anthropic's form."""
_RESULT = "tool_result"
"""The type of a block that may hold others."""


def media_of(messages: Sequence[Any]) -> tuple[Medium, ...] | None:
    """Return the media of messages, in order.

    The messages are those of any API, with data URLs for addresses. None: the bytes of one are not
    there.
    """
    made: list[Medium] = []
    for place, message in enumerate(messages):
        for number, part in _parts(message):
            for kind, data in _found(part):
                if data is None:
                    return None
                made.append(Medium(kind, sha256(data).hexdigest(), place, number))
    return tuple(made)


async def media_in(messages: Sequence[Any]) -> tuple[Medium, ...] | None:
    """Return what `media_of` does; a thread reads the bytes, if there are any."""
    if not any(_holds(part) for message in messages for _, part in _parts(message)):
        return ()
    return await asyncio.to_thread(media_of, messages)


def _holds(part: Mapping[str, Any]) -> bool:
    """Return whether a part may hold a medium."""
    return part.get("type") in (*MEDIA_KINDS, *_BLOCKS, _RESULT)


def _parts(message: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    content = message.get("content") if isinstance(message, Mapping) else None
    for number, part in enumerate(content if isinstance(content, list | tuple) else ()):
        if isinstance(part, Mapping):
            yield number, part


def _found(part: Mapping[str, Any]) -> Iterator[tuple[Any, bytes | None]]:
    """Yield the kind and the bytes of each medium in a part."""
    name = part.get("type")
    if name == _RESULT:
        for _, inner in _parts(part):
            yield from _found(inner)
    elif isinstance(name, str) and name in MEDIA_KINDS:
        value = part.get(name)
        held = value.get("url", value.get("data")) if isinstance(value, Mapping) else value
        yield MEDIA_KINDS[name], _bytes_of(held, is_url=name != "input_audio")
    elif isinstance(name, str) and name in _BLOCKS:
        source = part.get("source")
        source = source if isinstance(source, Mapping) else {}
        held = source.get("url", source.get("data"))
        yield _BLOCKS[name], _bytes_of(held, is_url="url" in source)


def _bytes_of(text: Any, *, is_url: bool) -> bytes | None:
    """Return the bytes that a data URL holds, or a text in base64; None for anything else."""
    if not isinstance(text, str):
        return None
    if is_url:
        head, _, text = text.lstrip().partition(",")
        if not (head[:5].lower() == "data:" and head.lower().endswith(";base64")):
            return None
    try:
        return base64.b64decode(text)
    except binascii.Error:
        return None
