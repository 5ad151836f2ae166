"""Answers' bodies, read within bounds: how much comes, what it unpacks to, how deep it nests."""

import asyncio
import json
import zlib
from collections.abc import AsyncIterator
from typing import Any, NoReturn

from aiohttp import ClientResponse

from caesura.tools.net.errors import HttpRefused

MAX_DEPTH = 64
"""How deep arrays and objects of a JSON answer may nest."""
_PIECE_BYTES = 65_536
_THREAD_FROM_BYTES = 65_536


async def read_body(answer: ClientResponse, max_bytes: int) -> bytes:
    """The whole body, unpacked if it is gzip.

    Raises HttpRefused as soon as it is longer than `max_bytes`, packed or unpacked.
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
    """The JSON value of a body, parsed in a thread where it is long.

    Raises HttpRefused for what is not JSON (NaN is not), and beyond MAX_DEPTH.
    """
    try:
        if len(data) < _THREAD_FROM_BYTES:
            return load_json(data)
        return await asyncio.to_thread(load_json, data)
    except ValueError as error:
        raise HttpRefused(f"{host} answered with no valid JSON: {error}") from None


def load_json(data: bytes | str) -> Any:
    """Parse JSON that somebody else wrote; raises ValueError, beyond MAX_DEPTH too."""
    try:
        value = json.loads(data, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at character {error.pos}") from None
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except RecursionError:
        raise ValueError("it nests too deep") from None
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return value
    raise ValueError("it nests too deep")


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


async def _unpacked(answer: ClientResponse) -> AsyncIterator[bytes]:
    """The body's pieces, each bounded, however well it is packed."""
    packing = answer.headers.get("Content-Encoding", "").strip().lower()
    if packing in ("", "identity"):
        async for piece in answer.content.iter_chunked(_PIECE_BYTES):
            yield piece
        return
    if packing not in ("gzip", "x-gzip"):
        raise HttpRefused(f"{answer.url.host} packed its answer in a way that was not asked for")
    unpacker = zlib.decompressobj(wbits=31)
    try:
        async for piece in answer.content.iter_chunked(_PIECE_BYTES):
            rest = piece
            full = True
            while (rest or full) and not unpacker.eof:
                unpacked = unpacker.decompress(rest, _PIECE_BYTES)
                yield unpacked
                await asyncio.sleep(0)  # a well packed answer must not keep the loop
                rest, full = unpacker.unconsumed_tail, len(unpacked) == _PIECE_BYTES
    except zlib.error:
        raise HttpRefused(f"{answer.url.host} sent a damaged answer") from None
    if not unpacker.eof:
        raise HttpRefused(f"{answer.url.host} sent only a part of its answer")


def _too_long(host: str | None, max_bytes: int) -> HttpRefused:
    return HttpRefused(f"{host} answered with more than the {max_bytes} bytes that are allowed")
