"""The streamable HTTP transport, with a size limit on a server's answers.

The URL is the operator's and may lead to a private address. Redirects stay within its origin.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client

from caesura.tools.context import trace_headers
from caesura.tools.mcp.settings import ServerSettings

CONNECT_SECONDS = 10.0


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
    """Refuses compressed answers and those above a size limit."""

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
