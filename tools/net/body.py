"""Reading of answers' bodies, with limits on packed size, unpacked size and JSON depth."""

import asyncio
import json
import zlib
from collections.abc import AsyncIterator
from typing import Any, NoReturn

from aiohttp import ClientResponse

from caesura.tools.net.errors import HttpRefused

MAX_DEPTH = 64
"""The deepest nesting of arrays and objects in a JSON answer."""
_PIECE_BYTES = 65_536
_THREAD_FROM_BYTES = 65_536


async def read_body(answer: ClientResponse, max_bytes: int) -> bytes:
    """Return the whole body, unpacked if it is gzip.

    Raises HttpRefused once it is longer than `max_bytes`, packed or unpacked.
    """
    host = answer.url.host
    told = answer.content_length
    if told is not None and told > max_bytes:
        raise _too_long(host, max_bytes)
    body = bytearray()
    async for piece in _unpacked(answer):
        body += piece
        if len(body) > max_bytes:
            raise _too_long(host, max_bytes)
    return bytes(body)


async def parse_json(data: bytes, host: str | None) -> Any:
    """Return the JSON value of a body, parsed in a thread where it is long.

    Raises HttpRefused for invalid JSON (NaN is invalid), and beyond MAX_DEPTH.
    """
    try:
        if len(data) < _THREAD_FROM_BYTES:
            return load_json(data)
        return await asyncio.to_thread(load_json, data)
    except ValueError as error:
        raise HttpRefused(f"{host} answered with invalid JSON: {error}") from None


def load_json(data: bytes | str) -> Any:
    """Return the value of untrusted JSON; raises ValueError, also beyond MAX_DEPTH."""
    try:
        value = json.loads(data, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at character {error.pos}") from None
    except UnicodeDecodeError:
        raise ValueError("the text is not UTF-8") from None
    except RecursionError:
        raise ValueError(f"it nests deeper than {MAX_DEPTH} levels") from None
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return value
    raise ValueError(f"it nests deeper than {MAX_DEPTH} levels")


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not allowed")


async def _unpacked(answer: ClientResponse) -> AsyncIterator[bytes]:
    """Yield the body's unpacked pieces, each of bounded size."""
    packing = answer.headers.get("Content-Encoding", "").strip().lower()
    if packing in ("", "identity"):
        async for piece in answer.content.iter_chunked(_PIECE_BYTES):
            yield piece
        return
    if packing not in ("gzip", "x-gzip"):
        raise HttpRefused(f"{answer.url.host} used a compression that was not requested")
    unpacker = zlib.decompressobj(wbits=31)
    try:
        async for piece in answer.content.iter_chunked(_PIECE_BYTES):
            rest = piece
            full = True
            while (rest or full) and not unpacker.eof:
                unpacked = unpacker.decompress(rest, _PIECE_BYTES)
                yield unpacked
                await asyncio.sleep(0)  # unpacking a long answer must not block the event loop
                rest, full = unpacker.unconsumed_tail, len(unpacked) == _PIECE_BYTES
    except zlib.error:
        raise HttpRefused(f"{answer.url.host} sent a damaged answer") from None
    if not unpacker.eof:
        raise HttpRefused(f"{answer.url.host} sent only a part of its answer")


def _too_long(host: str | None, max_bytes: int) -> HttpRefused:
    return HttpRefused(f"{host} sent a longer answer than the {max_bytes} bytes allowed")
