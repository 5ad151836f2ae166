"""Answers that go out packed by gzip, and that are not sent again while a client has them.

An event of a stream is packed and flushed by itself, so that it arrives at once.
"""

import asyncio
import hashlib
import zlib
from collections.abc import Mapping

from starlette.requests import HTTPConnection
from starlette.responses import Response

GZIP = "gzip"
LEVEL = 5
"""Of zlib: little is gained above it, and time is lost."""
MIN_BYTES = 1024
"""Smaller answers go out as they are."""
MAX_INLINE_BYTES = 2**15
"""The most bytes that the event loop packs itself; a thread packs more."""
PACKED = {"Content-Encoding": GZIP}
VARY = {"Vary": "Accept-Encoding"}


def takes_gzip(request: HTTPConnection) -> bool:
    """Return whether the client takes gzip, by `Accept-Encoding` (RFC 9110, section 12.5.3)."""
    weights: dict[str, float] = {}
    for each in ",".join(request.headers.getlist("Accept-Encoding")).lower().split(","):
        name, _, weight = each.partition(";")
        weights[name.strip()] = _weight(weight)
    return weights.get(GZIP, weights.get("*", 0.0)) > 0


def _weight(said: str) -> float:
    try:
        return float(said.partition("=")[2]) if said.strip() else 1.0
    except ValueError:
        return 0.0


class Packer:
    """Packs the pieces of one answer, each so that what it holds can be read at once."""

    def __init__(self) -> None:
        self._pack = zlib.compressobj(LEVEL, wbits=31)

    async def packed(self, piece: bytes, *, last: bool = False) -> bytes:
        """Return the bytes to send for a piece; `last` ends the answer."""
        if len(piece) <= MAX_INLINE_BYTES:
            return self._packed(piece, last)
        return await asyncio.to_thread(self._packed, piece, last)

    def _packed(self, piece: bytes, last: bool) -> bytes:
        mode = zlib.Z_FINISH if last else zlib.Z_SYNC_FLUSH
        return self._pack.compress(piece) + self._pack.flush(mode)


def tag_of(*parts: object) -> str:
    """Return the entity tag of what these parts determine.

    It is weak, since the bytes of an answer depend on its packing too.
    """
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part if isinstance(part, bytes) else repr(part).encode())
        digest.update(b"\0")
    return f'W/"{digest.hexdigest()[:32]}"'


def has(request: HTTPConnection, tag: str) -> bool:
    """Return whether the client has what the tag names, by `If-None-Match`."""
    said = ",".join(request.headers.getlist("If-None-Match"))
    wanted = tag.removeprefix("W/")
    return any(each.strip().removeprefix("W/") in (wanted, "*") for each in said.split(","))


def not_modified(tag: str, headers: Mapping[str, str]) -> Response:
    """Return the answer for a client that has what the tag names."""
    return Response(status_code=304, headers={**headers, **VARY, "ETag": tag})


class File:
    """A text that every client gets, packed once, with its tag."""

    def __init__(self, text: str, media_type: str, headers: Mapping[str, str]) -> None:
        self._plain = text.encode()
        self._gzip = zlib.compress(self._plain, 9, wbits=31)
        self._tag = tag_of(self._plain)
        self._headers = {**headers, "Content-Type": f"{media_type}; charset=utf-8"}

    def answer(self, request: HTTPConnection) -> Response:
        """Return the answer to a request for it."""
        if has(request, self._tag):
            return not_modified(self._tag, self._headers)
        packs = takes_gzip(request) and len(self._plain) >= MIN_BYTES
        headers = {**self._headers, **VARY, "ETag": self._tag, **(PACKED if packs else {})}
        return Response(self._gzip if packs else self._plain, headers=headers)
