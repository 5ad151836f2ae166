"""The connection of one request: its body, within a bound, and the moment its client leaves.

A large body is parsed beside the event loop, and a compressed one is decoded there.
"""

import asyncio
import gzip
import io
import zlib
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import zstandard
from starlette.requests import HTTPConnection, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from caesura.runtime.server.http.errors import ApiError, invalid
from caesura.runtime.server.http.sockets import SocketLimits

T = TypeVar("T")

MAX_INLINE_BODY_BYTES = 64 * 2**10
"""The largest body that the event loop parses itself; a thread parses larger ones."""
_PARSING = ThreadPoolExecutor(2, "caesura-parsing")


async def parsed(parse_body: Callable[[bytes], T], body: bytes) -> T:
    """Return the request in a body, parsed in a thread if it is large; raise `ApiError`."""
    if len(body) <= MAX_INLINE_BODY_BYTES:
        return parse_body(body)
    return await asyncio.get_running_loop().run_in_executor(_PARSING, parse_body, body)


_CLOSE = {"Connection": "close"}
"""Headers of an answer behind which the rest of a body would have to be read."""
_DISCONNECT: Message = {"type": "http.disconnect"}
_TOLD_SECONDS = 5.0
"""How long an application may take to end a request after it was told of the disconnect."""


async def parsed_once(request: Request, parse_body: Callable[[bytes], T]) -> T:
    """Return what `parsed` returns for the body of a request, which is parsed at the first call."""
    known: dict[Any, T] = request.scope.setdefault(_PARSED, {})
    if parse_body not in known:
        known[parse_body] = await parsed(parse_body, await request.body())
    return known[parse_body]


JSON = "application/json"
_PARSED = "caesura.parsed"
_MAX_SHOWN_CHARACTERS = 100


def sends_json(request: HTTPConnection) -> bool:
    """Return whether the headers of a request say that its body is JSON."""
    return request.headers.get("Content-Type", "").partition(";")[0].strip().lower() == JSON


CODINGS = ("gzip", "deflate", "zstd")
"""The values of `Content-Encoding` that a body may have (RFC 9110, section 8.4.1; RFC 8878)."""
_ZSTD_WINDOW_BYTES = 2**23
"""The least window that a decoder of zstd has to support (RFC 8878, section 3.1.1.1.2)."""
_BROKEN = (EOFError, OSError, zlib.error, zstandard.ZstdError)


def coding_of(scope: Scope) -> str:
    """Return the coding of a request's body, or an empty text for a plain body.

    Raises `ApiError` 415 for one that is not read here, and for several.
    """
    said = ",".join(HTTPConnection(scope).headers.getlist("Content-Encoding"))
    coding = said.strip().lower().removeprefix("x-")
    if coding in ("", "identity"):
        return ""
    if coding not in CODINGS:
        known = ", ".join(CODINGS)
        raise ApiError(
            415,
            f"The body's Content-Encoding is {said[:_MAX_SHOWN_CHARACTERS]!r}: send it plain, or"
            f" in one of {known}.",
            code="unsupported_media_type",
            headers={"Accept-Encoding": known},
        )
    return coding


def decoded(body: bytes, coding: str, most: int) -> bytes:
    """Return a body without its coding; raise `ApiError` 413 above `most` bytes, or 400."""
    try:
        plain = _plain(body, coding, most + 1)
    except _BROKEN:
        raise invalid(f"The body cannot be decoded by its Content-Encoding, {coding}.") from None
    if len(plain) > most:
        raise _too_large(most + 1, most)
    return plain


def _plain(body: bytes, coding: str, most: int) -> bytes:
    """Return the first `most` bytes of a body without its coding, or all of them."""
    match coding:
        case "gzip":
            return gzip.GzipFile(fileobj=io.BytesIO(body)).read(most)
        case "deflate":
            # Some clients send the bare data, without the zlib format around it.
            wraps = len(body) > 1 and body[0] & 15 == 8 and not (body[0] << 8 | body[1]) % 31
            reader = zlib.decompressobj(zlib.MAX_WBITS if wraps else -zlib.MAX_WBITS)
            plain = reader.decompress(body, most)
            if len(plain) < most and not reader.eof:
                raise EOFError
            return plain
    window = max(most, _ZSTD_WINDOW_BYTES)
    frames = zstandard.ZstdDecompressor(max_window_size=window)
    return frames.stream_reader(body, read_across_frames=True).read(most)


def _too_large(size: int, most: int) -> ApiError:
    return ApiError(
        413,
        f"The body has {size} bytes or more, and this server takes at most {most}: send a smaller"
        " one.",
        code="request_too_large",
        headers=_CLOSE,
    )


class JsonOnly:
    """Middleware of a route that refuses, with 415, a body whose type is not JSON.

    Browsers send bodies of some other types across origins without a preflight request.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, if its body is JSON."""
        request = HTTPConnection(scope)
        if not sends_json(request):
            said = request.headers.get("Content-Type", "")
            shown = repr(said[:_MAX_SHOWN_CHARACTERS]) if said else "missing"
            raise ApiError(
                415,
                f"The body's Content-Type is {shown}: send {JSON}.",
                code="unsupported_media_type",
            )
        await self._app(scope, receive, send)


class Connections:
    """Middleware that reads a body whole, and cancels the handler once the client has left.

    A body is read within a time, before its request takes any place of another one.

    A server notices that a client left only if it reads from the connection. A tool may run for
    minutes without reading or writing anything. So this middleware reads, and nothing else does.
    """

    def __init__(self, app: ASGIApp, max_body_bytes: int, limits: SocketLimits) -> None:
        self._app = app
        self._max_body_bytes = max_body_bytes
        self.limits = limits
        """The bounds on the connections that it reads from."""
        self._bytes_read = 0
        self._under_way: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request.

        Raises `ApiError` 413 for a body above the bound, 408 for one that comes too slowly, 429
        where too many bytes of others are being read, and 415 for a coding that is not known.
        """
        if scope["type"] != "http":
            await self._tracked(self._app(scope, receive, send))
            return
        coding = coding_of(scope)
        body = await self._read_in_time(scope, receive)
        if body is None:
            return
        body = await self._decoded(scope, body, coding)
        connection = _Connection(body, receive, send)
        handler = self._app(scope, connection.receive, connection.send)
        await connection.run(self._tracked(handler))

    async def _tracked(self, answer: Awaitable[None]) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._under_way.add(task)
        try:
            await answer
        finally:
            self._under_way.discard(task)

    def cancel_all(self) -> None:
        """Cancel all requests under way, downloads and streams too."""
        for task in self._under_way:
            task.cancel()

    async def _read_in_time(self, scope: Scope, receive: Receive) -> bytes | None:
        """Return the whole body, or None if the client left before its end."""
        pieces: list[bytes] = []
        try:
            async with asyncio.timeout(self.limits.body_seconds) as limit:
                return await self._read(scope, receive, pieces, limit)
        except TimeoutError:
            raise ApiError(
                408,
                f"The body came too slowly: {sum(map(len, pieces))} bytes were read. Send it within"
                f" {self.limits.body_seconds:g} s, and 1 s more for every"
                f" {self.limits.body_rate} bytes.",
                code="request_timeout",
                headers=_CLOSE,
            ) from None
        finally:
            self._bytes_read -= sum(map(len, pieces))

    async def _read(
        self, scope: Scope, receive: Receive, pieces: list[bytes], limit: asyncio.Timeout
    ) -> bytes | None:
        began = asyncio.get_running_loop().time() + self.limits.body_seconds
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        size, read = int(announced) if announced.isdigit() else 0, 0
        while size <= self._max_body_bytes:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            piece = message.get("body", b"")
            pieces.append(piece)
            read += len(piece)
            self._bytes_read += len(piece)
            if not message.get("more_body", False):
                return b"".join(pieces)
            if self._bytes_read > self.limits.max_body_bytes_read:
                raise ApiError(
                    429,
                    "The server reads too many large bodies at once: retry after 1 s.",
                    code="too_many_requests",
                    headers={"Retry-After": "1", **_CLOSE},
                )
            limit.reschedule(began + read / self.limits.body_rate)
            size = max(size, read)
        raise _too_large(size, self._max_body_bytes)

    async def _decoded(self, scope: Scope, body: bytes, coding: str) -> bytes:
        """Return a body without its coding, and change the headers to those of a plain body."""
        if not coding:
            return body
        most = self._max_body_bytes
        loop = asyncio.get_running_loop()
        plain = await loop.run_in_executor(_PARSING, decoded, body, coding, most)
        dropped = (b"content-encoding", b"content-length")
        kept = [(name, value) for name, value in scope["headers"] if name.lower() not in dropped]
        scope["headers"] = [*kept, (b"content-length", str(len(plain)).encode())]
        return plain


class _Connection:
    """What a handler reads and writes, and the end of the handler when its client leaves."""

    def __init__(self, body: bytes, receive: Receive, send: Send) -> None:
        self._body: bytes | None = body
        self._receive = receive
        self._send = send
        self._left = asyncio.Event()
        self._answered = False

    async def receive(self) -> Message:
        """Return the body once; then wait until the client leaves."""
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._left.wait()
        return _DISCONNECT

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            # From here on the server reports a disconnect, although the client may have stayed.
            self._answered = True
        await self._send(message)

    async def run(self, handler: Awaitable[None]) -> None:
        """Run a handler to its end. A handler whose client leaves is cancelled, without error.

        Raises `ApiError` 503 if the handler was cancelled for another reason.
        """
        handling = asyncio.ensure_future(handler)
        leaving = asyncio.ensure_future(self._wait_for_leave())
        try:
            await asyncio.wait({handling, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if self._answered:
                await asyncio.wait({handling})
        finally:
            leaving.cancel()
            left = not handling.done() and self._left.is_set()
            handling.cancel()
            await asyncio.gather(handling, leaving, return_exceptions=True)
        if handling.cancelled() and not left:
            raise ApiError(503, "The server is shutting down.", code="server_shutting_down")
        if not left:
            handling.result()

    async def _wait_for_leave(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._left.set()


class ToldOfLeaving:
    """An application that is told of a disconnect, instead of being cancelled at once.

    vLLM's handlers do their work in a task of its own, which only a disconnect ends. A handler
    that is cancelled leaves that task to nobody, and its request goes on in the engine.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; once cancelled, let the application end it, within a time."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        left = asyncio.Event()

        async def send_unless_left(message: Message) -> None:
            # A handler that was told of a disconnect still answers, with nothing.
            if not left.is_set():
                await send(message)

        handler = self._app(scope, _until(left, receive), send_unless_left)
        answering = asyncio.ensure_future(handler)
        try:
            await asyncio.wait({answering})
        except asyncio.CancelledError:
            left.set()
            await asyncio.wait({answering}, timeout=_TOLD_SECONDS)
            raise
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)
        answering.result()


def _until(left: asyncio.Event, receive: Receive) -> Receive:
    """Return `receive`, which reports a disconnect too once `left` is set."""

    async def receive_or_leave() -> Message:
        reading = asyncio.ensure_future(receive())
        leaving = asyncio.ensure_future(left.wait())
        try:
            await asyncio.wait({reading, leaving}, return_when=asyncio.FIRST_COMPLETED)
            return reading.result() if reading.done() else _DISCONNECT
        finally:
            reading.cancel()
            leaving.cancel()

    return receive_or_leave
