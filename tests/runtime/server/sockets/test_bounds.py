"""Clients that send, read or come badly lose their own connection, and hold up nobody else."""

import asyncio
import gzip
import logging
import socket
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import zstandard

from caesura.runtime.server import create_app
from caesura.runtime.server.http.sockets import SocketLimits
from caesura.runtime.server.listen import listening
from caesura.runtime.server.load.options import ServerOptions
from caesura.runtime.testing import ScriptedEngine
from caesura.tools.registry import Registry
from tests.kit.waiting import until

HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
)
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
METRICS = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
BODY = b'{"model":"tiny/scripted","messages":[{"role":"user","content":"Hi"}]}'
SOON = 0.05
"""A time-out that the test waits for; no other thing has to happen within it."""


class Address:
    """The address of a server, and what clients without a library do there."""

    def __init__(self, engine: ScriptedEngine, port: int) -> None:
        self.engine = engine
        self._port = port

    async def opened(self, **options: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._port, **options)

    async def said(self, data: bytes) -> bytes:
        """Return all that comes until the server closes the connection."""
        reader, writer = await self.opened()
        writer.write(data)
        async with asyncio.timeout(60):
            answer = await ended(reader)
        writer.close()
        return answer


async def ended(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""


@pytest.fixture
async def at() -> AsyncIterator[Callable[..., Any]]:
    """Serve a script with some limits of connections."""
    async with AsyncExitStack() as stack:

        async def serve(script: Any = ("Hello!",), **limits: Any) -> Address:
            engine = script
            if not isinstance(script, ScriptedEngine):
                engine = ScriptedEngine(list(script), model="tiny/scripted")
            app = create_app(
                engine, Registry(), ServerOptions(sockets=SocketLimits(**limits), max_concurrent=1)
            )
            port = await stack.enter_async_context(listening(app, shutdown_timeout=0))
            return Address(engine, port)

        yield serve


async def test_headers_that_never_end(at):
    served = await at(header_seconds=SOON)
    assert b"408 Request Timeout" in await served.said(b"GET /health HTTP/1.1\r\nX: ")
    assert await served.said(b"") == b""


async def test_headers_that_come_a_byte_at_a_time(at):
    served = await at(header_seconds=SOON)
    reader, writer = await served.opened()

    async def drip() -> None:
        while True:
            writer.write(b"\r\n")
            await asyncio.sleep(SOON / 10)

    dripping = asyncio.create_task(drip())
    async with asyncio.timeout(60):
        assert b"200" not in await ended(reader)
    dripping.cancel()
    writer.close()


async def test_headers_without_bound(at):
    served = await at()
    answer = await served.said(b"GET /health HTTP/1.1\r\n" + b"X-Header: y\r\n" * 10_000)
    assert b"431" in answer or answer == b""


async def test_the_next_request_has_its_own_time(at):
    served = await at(header_seconds=SOON)
    reader, writer = await served.opened()
    writer.write(HEALTH)
    assert await reader.readuntil(b'"ok"}')
    writer.write(b"GET /hea")
    async with asyncio.timeout(60):
        assert b"408" in await ended(reader)
    writer.close()


async def test_a_body_that_never_ends_takes_no_place(at):
    served = await at(body_seconds=60)
    _, silent = await served.opened()
    silent.write(HEAD + b"Content-Length: 100\r\n\r\n{")
    await silent.drain()
    asked = HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY
    assert b"Hello!" in await served.said(asked)
    silent.close()


@pytest.mark.parametrize("framing", [b"Content-Length: 100", b"Transfer-Encoding: chunked"])
async def test_a_body_that_never_ends_is_refused(at, framing):
    served = await at(body_seconds=SOON)
    answer = await served.said(HEAD + framing + b"\r\n\r\n1\r\n{\r\n")
    assert b"408" in answer and b"request_timeout" in answer


async def test_bodies_together_are_bounded(at):
    served = await at(max_body_bytes_read=100)
    answer = await served.said(HEAD + b"Content-Length: 1000\r\n\r\n" + b" " * 200)
    assert b"429" in answer and b"Retry-After: 1".lower() in answer.lower()


def bare(data: bytes) -> bytes:
    """Return deflated data without the zlib format around it, as some clients send."""
    writer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return writer.compress(data) + writer.flush()


def coded(coding: bytes, body: bytes) -> bytes:
    framing = b"Connection: close\r\nContent-Length: %d\r\n" % len(body)
    return HEAD + framing + b"Content-Encoding: " + coding + b"\r\n\r\n" + body


CODED = [
    (b"gzip", gzip.compress),
    (b"x-gzip", lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:])),
    (b"GZIP", gzip.compress),
    (b"deflate", zlib.compress),
    (b"deflate", bare),
    (b"zstd", zstandard.compress),
    (b"zstd", lambda data: zstandard.compress(data[:9]) + zstandard.compress(data[9:])),
    (b"identity", bytes),
]


@pytest.mark.parametrize(("coding", "encode"), CODED)
async def test_a_compressed_body_is_read(at, coding, encode):
    served = await at()
    assert b"Hello!" in await served.said(coded(coding, encode(BODY)))


@pytest.mark.parametrize(
    ("coding", "encode"),
    [(b"gzip", gzip.compress), (b"deflate", zlib.compress), (b"zstd", zstandard.compress)],
)
async def test_a_compressed_body_is_bounded_by_what_it_becomes(at, coding, encode):
    served = await at()
    large = encode(BODY + b" " * ServerOptions().client_max_size)
    assert len(large) < 2**16
    answer = await served.said(coded(coding, large))
    assert b"413" in answer and b"request_too_large" in answer
    for broken in (b"", BODY, encode(BODY)[:-9]):
        answer = await served.said(coded(coding, broken))
        assert b"400" in answer and (b"Content-Encoding" in answer or b"JSON" in answer)


@pytest.mark.parametrize("coding", [b"br", b"gzip, gzip", b"gzip\r\nContent-Encoding: zstd"])
async def test_a_coding_that_is_not_read_is_refused_by_those_that_are(at, coding):
    served = await at()
    answer = await served.said(coded(coding, BODY))
    assert b"415" in answer and b"accept-encoding: gzip, deflate, zstd" in answer.lower()


async def test_a_client_that_reads_nothing_ends_its_run(at):
    words = " ".join(["tedious"] * 400_000)
    engine = ScriptedEngine([words], model="tiny/scripted")
    served = await at(engine, write_seconds=SOON)
    small = socket.socket()
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    small.setblocking(False)
    await asyncio.get_running_loop().sock_connect(small, ("127.0.0.1", served._port))
    body = BODY.replace(b"}]}", b'}],"stream":true}')
    request = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    await asyncio.get_running_loop().sock_sendall(small, request)
    await until(lambda: engine.open_sessions == 1)
    await until(lambda: engine.open_sessions == 0)
    small.close()


async def test_beyond_the_bound_only_health_is_answered(at):
    served = await at(max_connections=2)
    held = [await served.opened() for _ in range(2)]
    assert b'"ok"' in await served.said(HEALTH)
    refused = await served.said(METRICS)
    assert b"503" in refused and b"too_many_connections" in refused
    for _, writer in held:
        writer.close()


async def test_what_no_server_understands_is_refused_and_not_logged(at, caplog):
    served = await at()
    with caplog.at_level(logging.DEBUG):
        head = (
            b"GET /health HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\x00\r\n\r\n"
        )
        assert b"400" in await served.said(head)
    assert "secret" not in caplog.text
