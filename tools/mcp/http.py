"""The streamable HTTP transport, with a size limit on a server's answers.

The URL is the operator's and may lead to a private address. Redirects stay within its origin.
"""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import mcp_types
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client

from caesura.tools.context import trace_headers
from caesura.tools.mcp.settings import ServerSettings

CONNECT_SECONDS = 10.0
_OF_THE_SESSION = re.compile(r"session|not initiali[sz]ed", re.IGNORECASE)


@asynccontextmanager
async def transport(settings: ServerSettings) -> AsyncIterator[TransportStreams]:
    """Yield the streams of messages to and from a server's endpoint."""
    assert settings.url is not None
    client = httpx2.AsyncClient(
        headers={"User-Agent": "caesura", **settings.headers, "Accept-Encoding": "identity"},
        # A call may be silent for as long as its own time-out allows.
        timeout=httpx2.Timeout(CONNECT_SECONDS, read=None),
        transport=_Bounded(settings.max_message_bytes),
        trust_env=False,  # a proxy would replace our transport
    )
    async with (
        client,
        streamable_http_client(
            settings.url, http_client=client, max_sse_event_size=settings.max_message_bytes
        ) as streams,
    ):
        yield streams


class _Bounded(httpx2.AsyncHTTPTransport):
    """Refuses compressed answers and those above a size limit.

    A refusal of the session becomes a 404 without a body, which the library tells as the end of
    the session. It would tell a body's own error as one of the call, and keep the session.
    """

    def __init__(self, max_bytes: int) -> None:
        super().__init__()
        self._max_bytes = max_bytes

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request, with the trace headers of the current call."""
        # The library sends in the context of the caller.
        request.headers.update(trace_headers())
        response = await super().handle_async_request(request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        # The library bounds each event; a stream of events may last for days.
        is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        response.stream = _BoundedStream(
            response.stream,
            None if is_stream else self._max_bytes,
            "the server compressed its answer unasked" if encoding != "identity" else "",
        )
        if response.status_code in (400, 404) and "mcp-session-id" in request.headers:
            return await _refused(response)
        return response


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, max_bytes: int | None, refused: str) -> None:
        self._stream = stream
        self._max_bytes = max_bytes
        self._refused = refused

    async def __aiter__(self) -> AsyncIterator[bytes]:
        # The library turns StreamError into an error answer; others would end the connection.
        if self._refused:
            raise httpx2.StreamError(self._refused)
        size = 0
        async for piece in self._stream:
            size += len(piece)
            if self._max_bytes is not None and size > self._max_bytes:
                raise httpx2.StreamError(f"the server sent more than {self._max_bytes} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _refused(response: httpx2.Response) -> httpx2.Response:
    """Return an equal response, or a plain 404 if the server does not know the session.

    By the protocol a 404 within a session says so, whatever its body; some servers say it with a
    400. Only an error about the method or its parameters is about something else.
    """
    try:
        body = await response.aread()
        error = json.loads(body)["error"]
        code, message = error["code"], str(error["message"])
    except (httpx2.StreamError, ValueError, LookupError, TypeError, RecursionError):
        code, message, body = None, "", b""
    finally:
        await response.aclose()
    about_the_call = code in (mcp_types.METHOD_NOT_FOUND, mcp_types.INVALID_PARAMS)
    if response.status_code == 404:
        forgotten = not about_the_call
    else:
        forgotten = not about_the_call and _OF_THE_SESSION.search(message) is not None
    if forgotten:
        return httpx2.Response(404)
    return httpx2.Response(response.status_code, headers=response.headers, content=body)
